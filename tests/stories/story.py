"""Find, play and write stories."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inplace.simulator.cluster.virtual_time import run
from tests.stories.scenes import Scene, virtual_scene
from tests.stories.words import StoryWorld
from tests.transcript import Block, joined, parse

FOLDER: Final = Path(__file__).parent
SERVED: Final = (
    "members",
    "members_units",
    *("elastic", "failure_policy", "left_jobs", "lives", "requests", "restarts"),
    *("scopes", "startup", "success_policy", "suspend", "marked_nodes", "bad_nodes", "disruptions"),
)
"""Families whose stories run on a served API server too, as far as they need no virtual time."""

TITLE: Final = "## "


@dataclass(frozen=True, slots=True)
class Story:
    """One story of a file: its blocks, the first of which has the claim."""

    family: str
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        """Return the claim."""
        return f"{self.family}: {self.blocks[0].comment[0].removeprefix(TITLE)}"

    @property
    def is_virtual(self) -> bool:
        """Say whether it needs virtual time: it waits long, or its words need the embedded server's insides."""
        return any(StoryWorld.is_virtual(line) for block in self.blocks for line in block.commands)


def stories(path: Path) -> list[Story]:
    """Return the stories of a file."""
    found: list[list[Block]] = []
    for block in parse(path.read_text()):
        if block.comment and block.comment[0].startswith(TITLE):
            found.append([])
        found[-1].append(block)
    return [Story(path.stem, tuple(blocks)) for blocks in found]


def files() -> list[Path]:
    """Return every file of stories, sorted by name."""
    return sorted(FOLDER.glob("*.txt"))


def served_stories() -> list[Story]:
    """Return the stories that are played over a connection, in real time."""
    found = [story for path in files() if path.stem in SERVED for story in stories(path)]
    return [story for story in found if not story.is_virtual]


async def play(story: Story, scene: Scene, patience_s: float = 0.0) -> list[str]:
    """Play a story; return its blocks with what was seen.

    Args:
        story: of this scene's words.
        scene: of this story alone.
        patience_s: how long each answer may take in real time. Then its order, and how long things took, are those
            that the story has.
    """
    world, blocks = StoryWorld(scene), []
    for block in story.blocks:
        await world.play(block.commands)
        until_s = asyncio.get_running_loop().time() + patience_s
        output = await world.look()
        while patience_s and _blurred(output) != _blurred(block.output):
            if asyncio.get_running_loop().time() > until_s:
                break
            await scene.pause(1.0)
            output = await world.look()
        else:
            output = list(block.output) if patience_s else output
        blocks.append(block.written(output))
        world.turn()
    return blocks


def _blurred(lines: Iterable[str]) -> list[str]:
    return sorted(re.sub(r" in [\d.]+ s(?=$|;)", "", line) for line in lines)


def told(story: Story) -> list[str]:
    """Return a story's blocks with the answers that virtual time gives."""

    async def main() -> list[str]:
        async with virtual_scene() as scene:
            return await play(story, scene)

    return run(main())


def red(family: str) -> str:
    """Return the first story of a family that is not as it is told; "" for none."""
    for story in stories(FOLDER / f"{family}.txt"):
        try:
            if told(story) != [block.written(list(block.output)) for block in story.blocks]:
                return str(story)
        except Exception:  # noqa: BLE001 - a bug may break anything
            return str(story)
    return ""


def rewritten(path: Path) -> str:
    """Return a file of stories with the answers of production code."""
    blocks: list[str] = []
    for story in stories(path):
        try:
            blocks += told(story)
        except BaseException as error:
            error.add_note(str(story))
            raise
    return joined(blocks)
