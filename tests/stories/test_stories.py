"""Every story is as it is told."""

from __future__ import annotations

import pytest

from tests.stories.scenes import loopback_scene
from tests.stories.story import Story, files, play, served_stories, stories, told
from tests.transcript import joined

OVER_HTTP = ("lives", "startup", "suspend")  # of those that are played on a real server; each takes a second
ALL = [story for path in files() for story in stories(path)]


@pytest.mark.parametrize("story", ALL, ids=str)
def test_story(story: Story) -> None:
    """The whole controller gives exactly the story's answers in virtual time; see `make rewrite`."""
    assert joined(told(story)) == joined([block.written(list(block.output)) for block in story.blocks])


def test_each_story_makes_a_claim_of_its_own() -> None:
    """It opens with the sentence that it proves."""
    claims = [str(story) for story in ALL]
    assert [claim for claim in claims if not claim.endswith(".") or claims.count(claim) > 1] == []


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("story", [story for story in served_stories() if story.family in OVER_HTTP], ids=str)
async def test_story_over_http(story: Story) -> None:
    """It is the same over HTTP, in real time."""
    async with loopback_scene() as scene:
        blocks = await play(story, scene, patience_s=10.0)
    assert joined(blocks) == joined([block.written(list(block.output)) for block in story.blocks])
