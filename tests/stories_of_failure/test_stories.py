"""Each story of failure is as it says; `python -m tests.stories_of_failure` prints them as a table."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.stories_of_failure.scene import VERBS
from tests.stories_of_failure.story import Story, stories
from tests.stories_of_failure.suite import played

STORIES: Final = {story.name: story for story in stories()}


@pytest.fixture(scope="session")
def wrong(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Play the chosen stories beside each other, for all of pytest's processes; return what is wrong by name."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    chosen = [str(item.callspec.params["name"]) for item in items if item.originalname == test_story.__name__]
    return _played([STORIES[name] for name in chosen], folder / "stories")


def _played(chosen: Sequence[Story], folder: Path) -> dict[str, str]:
    """Play them, or wait for the process that does."""
    folder.mkdir(exist_ok=True)
    result = folder / "wrong.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            outcomes = asyncio.run(played(chosen))
            result.write_text(json.dumps({outcome.story.name: outcome.wrong for outcome in outcomes}))
    found: dict[str, str] = json.loads(result.read_text())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_story(name: str, wrong: dict[str, str]) -> None:
    """What happens to the group, and what `inplace` prints of it, is as the story says."""
    assert wrong[name] == ""


def test_each_line_of_a_story_has_a_verb() -> None:
    """A word that is misspelt is found without the minutes that the stories take."""
    lines = [line for story in STORIES.values() for line in story.play.splitlines() if line.strip()]
    assert {line.split()[0] for line in lines} == VERBS


def test_there_are_as_many_as_the_page_says() -> None:
    """28 scripts, 28 reports and five alerts at least, and no two of one name."""
    every = stories()
    counts = [sum(story.kind == kind for story in every) for kind in ("scripts", "reports", "alerts")]
    assert len(STORIES) == len(every)
    assert [count >= least for count, least in zip(counts, (28, 28, 5), strict=True)] == [True] * 3
