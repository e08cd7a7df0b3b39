"""Run stories beside each other, most of them on one cluster, and say how each went."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from inplace.common.kube.errors import ApiError
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.nodes import PLAIN, NodeShape
from tests.stories_of_failure.scene import Scene, StoryError
from tests.stories_of_failure.story import POOL, Story

AT_ONCE: Final = 8  # two cores start so many groups without making any of them late
SHARED_NODES: Final = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a story went; `wrong` is "" if it is as it should be."""

    story: Story
    seconds: float
    wrong: str


async def played(stories: Sequence[Story], tell: Callable[[Outcome], None] = lambda _: None) -> list[Outcome]:
    """Play stories, and tell each outcome as it comes; return all of them in the stories' order."""
    turns = asyncio.Semaphore(AT_ONCE)
    with TemporaryDirectory(prefix="stories-") as name:

        async def play(shared: Cluster, story: Story) -> Outcome:
            async with turns:
                if story.alone:
                    async with _cluster([story]) as own:
                        outcome = await _played(own, story, Path(name))
                else:
                    outcome = await _played(shared, story, Path(name))
            tell(outcome)
            return outcome

        async with _cluster([story for story in stories if not story.alone]) as shared, asyncio.TaskGroup() as group:
            plays = [group.create_task(play(shared, story), name=story.name) for story in stories]
        return [done.result() for done in plays]


@asynccontextmanager
async def _cluster(stories: Iterable[Story]) -> AsyncIterator[Cluster]:
    pools = [NodeShape(labels={POOL: story.name}, pods=1) for story in stories for _ in range(story.nodes)]
    # The nodes of a pool are the last ones, and have room for nothing but its story's Pods.
    async with Cluster(nodes=[PLAIN] * SHARED_NODES + pools, controller="process", adds_agent=True) as cluster:
        yield cluster


async def _played(cluster: Cluster, story: Story, folder: Path) -> Outcome:
    began_s, wrong = time.monotonic(), ""
    try:
        await Scene(cluster, story, folder / story.name).play()
    except (ApiError, StoryError) as error:
        wrong = str(error)
    return Outcome(story, time.monotonic() - began_s, wrong)
