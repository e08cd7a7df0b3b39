"""Stories on a real kube-apiserver: the controller's program with the shipped permissions tells the same."""

from __future__ import annotations

import pytest

from tests.cluster.features.stage import Stage
from tests.stories.scenes import ServedScene
from tests.stories.story import Story, play, served_stories
from tests.transcript import joined

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("story", served_stories(), ids=str)
async def test_story(stage: Stage, story: Story) -> None:
    """The answers are those of virtual time; see `make rewrite`."""
    blocks = await play(story, ServedScene(stage.client, stage.namespace, is_real=True), patience_s=20.0)
    assert joined(blocks) == joined([block.written(list(block.output)) for block in story.blocks])
