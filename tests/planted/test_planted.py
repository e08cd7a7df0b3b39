"""The planted bugs fit the code, and the campaign catches some of them here; `make mutants` hunts them all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from inplace.cli import main as cli_main
from inplace.common.protocol.decision import Decision
from inplace.common.protocol.ledger import Ledger
from tests.planted.__main__ import main
from tests.planted.bug import STORIES, Area, Bug, hunted
from tests.planted.campaign import AS_IT_IS, Bounds, BrokenBugError, Found, Hunt, disturb, hunt
from tests.planted.catalogue import BUGS, HUNTED
from tests.planted.mistake import instead_of, planted
from tests.planted.table import NOT_HUNTED, PAGE, page
from tests.stories.story import red

MODELLED = 22  # on what happened to other projects
PLANTED = {
    Area.PROTOCOL: 20,
    Area.AGENT: 9,
    Area.WATCHDOG: 4,
    Area.INFORMER: 5,
    Area.QUEUE: 3,
    Area.LEADER: 4,
    Area.BACKOFF: 1,
    Area.CONTROLLER: 16,
    Area.BUDGET: 4,
    Area.KUBELET: 3,
}
FEW = Bounds(40, 0, 0, 40)
CAUGHT = [  # a bug, how far to hunt it, the property that it breaks
    ("synced beats deprecated", FEW, "L1"),
    ("a watch that went silent is never given up", FEW, "L1"),
    ("a Pod that vanished while it waits is forgotten", Bounds(0, 60, 0, 0), "S2"),  # soak seed 1000257 found it once
    ("an agent takes any JobSet of the name for its own", Bounds(0, 40, 0, 0), "S3"),  # by seed 37
]


def test_there_are_enough_of_every_kind() -> None:
    """Each area has its number of bugs; dropping one must change this test."""
    assert len({bug.name for bug in BUGS}) == len(BUGS)
    assert all(bug.finders for bug in BUGS)
    assert Counter(bug.area for bug in HUNTED) == PLANTED
    assert sum(bool(bug.model) for bug in HUNTED) == MODELLED


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.mistakes], ids=lambda bug: bug.name)
def test_every_bug_still_fits(bug: Bug) -> None:
    """Each mistake has its function's parameters, changes its code, and gives it back; another one is an error."""
    functions = [mistake.function for mistake in bug.mistakes]
    codes = [function.__code__ for function in functions]
    with planted(*bug.mistakes):
        assert all(function.__code__ not in codes for function in functions)
    assert [function.__code__ for function in functions] == codes


@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in BUGS if STORIES in bug.finders], ids=lambda bug: bug.name)
def test_a_story_turns_red(bug: Bug) -> None:
    """One of the family that the bug names is not as it is told."""
    with planted(*bug.mistakes):
        assert red(bug.stories)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bounds", "rule"), CAUGHT)
def test_the_campaign_catches(name: str, bounds: Bounds, rule: str) -> None:
    """The campaign catches these bugs, by the property that they break."""
    bug = next(bug for bug in HUNTED if bug.name == name)
    assert hunt(bug, bounds).found.rule.startswith(f"{rule} ")


@pytest.mark.slow
def test_the_code_as_it_is_is_not_caught() -> None:
    """The hunt finds nothing in the real code."""
    found = hunt(AS_IT_IS, Bounds(2, 0, 2, 3)).found
    assert (found.rule, found.runs) == ("", 5)


@pytest.mark.slow
def test_a_mutant_that_is_not_in_the_catalogue_fails_loudly() -> None:
    """A hunt for something else than a bug of the catalogue is an error, and nothing that survived."""
    with pytest.raises(BrokenBugError, match="ended with 1"):
        hunt(replace(AS_IT_IS, name="no such bug"), Bounds(1, 0, 0, 1))


@pytest.mark.slow
def test_a_mutant_that_changes_nothing_is_no_catch_and_says_why() -> None:
    """A mistake in a function that no program calls is shown as one that nobody called."""
    idle = instead_of(cli_main.main, lambda original, *_: original())
    found = disturb(hunted("idle", Area.PROTOCOL, (idle,)), Bounds(1, 0, 0, 1))
    assert (found.rule, found.what) == ("", "nobody called inplace.cli.main.main")


def test_a_typing_error_is_no_catch() -> None:
    """A bug that cannot run raises an error and does not count as caught."""

    def fails(original: object, *_: object, **__: object) -> Decision:
        raise NameError("name 'top' is not defined")

    with pytest.raises(BrokenBugError, match="top"):
        disturb(hunted("typo", Area.PROTOCOL, (instead_of(Ledger.decide, fails),)), FEW)


def test_the_page_lists_them_all() -> None:
    """docs/planted-bugs.md has a result for each; `tests.planted --by campaign --only NAME --write` puts it there."""
    assert page(PAGE.read_text()) == PAGE.read_text()
    assert NOT_HUNTED[0] not in PAGE.read_text()


def test_a_survivor_is_shown() -> None:
    """The table shows a bug that was not caught, and one that was not hunted; a hunt changes its own row alone."""
    lives, caught = Hunt(HUNTED[0], Found(480), 1.0), Hunt(HUNTED[1], Found(7, {"seed": 6}, "S1 a rule"), 1.0)
    text = page(page("", [lives, caught]), [])
    assert "| **not caught** | - | 480 |" in text
    assert "| S1 a rule | seed 6 | 7 |" in text
    assert text.count("| **not hunted yet** | - | - |") == len(HUNTED) - 2
    assert f"1 of {len(HUNTED)} are caught" in text


@pytest.mark.parametrize("arguments", [["--only", "nothing of this name"], ["--processes", "x"]])
def test_bad_input_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input is refused with the allowed values."""
    with pytest.raises(SystemExit):
        main(arguments)
    assert "expected" in capsys.readouterr().err
