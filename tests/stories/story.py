"""Find, play and write stories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inplace.simulator.cluster.virtual_time import run
from tests.stories.scenes import Scene, virtual_scene
from tests.stories.words import StoryWorld
from tests.transcript import Block, joined, parse

FOLDER: Final = Path(__file__).parent
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


async def _play(story: Story, scene: Scene) -> list[str]:
    """Play a story; return its blocks with what was seen."""
    world, blocks = StoryWorld(scene), []
    for block in story.blocks:
        await world.play(block.commands)
        blocks.append(block.written(await world.look()))
        world.turn()
    return blocks


def told(story: Story) -> list[str]:
    """Return a story's blocks with the answers that virtual time gives."""

    async def main() -> list[str]:
        async with virtual_scene() as scene:
            return await _play(story, scene)

    return run(main())


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
