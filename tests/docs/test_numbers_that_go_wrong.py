"""docs/numbers-that-go-wrong.md shows what the commands print, and the numbers of the wire."""

from __future__ import annotations

from inplace.cli.group.state import group_state
from inplace.cli.status.document import slow_text
from inplace.common.jobset.notices import GroupNotice
from inplace.common.jobset.slow_ranks import SlowRank, SlowRanks
from inplace.common.wire import names as wire
from inplace.common.wire.notice import KINDS, LISTED_MAX
from inplace.controller.api.object_events import Event
from tests.cli.command import REPOSITORY
from tests.cli.facts import explanation_of, jobset, pod, text_of

PAGE = (REPOSITORY / "docs" / "numbers-that-go-wrong.md").read_text()
POD = "train-workers-0-17-x7k2p"
PODS = 32


def shown(text: str) -> str:
    """Return a text as a block of the page."""
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def test_explain_prints_what_the_page_shows() -> None:
    """A slow rank, with its reason and its cure."""
    entry = {"kind": "slow", "epoch": 1, "value": 310, "rank": "rank-17", "step": 1200, "pod": POD, "node": "n7"}
    state = group_state(
        jobset(PODS, status=wire.status_of_epochs(1, 0) | {wire.NOTICES: [entry]}),
        pods := [pod(n, 1) for n in range(PODS)],
    )
    words = str(GroupNotice.read(entry))
    event = Event(reason="WorkerNotice", message=words, type="Warning", last_timestamp="2026-01-01T02:10:04Z")
    assert shown(text_of(explanation_of(state, pods, [event]))) in PAGE


def test_a_slow_rank_of_the_run_before_is_shown() -> None:
    """As status and explain name it after a restart."""
    assert shown(slow_text(SlowRanks((SlowRank(POD, "n7", 17, 3100),), 1000))) in PAGE


def test_every_kind_has_a_row() -> None:
    """And the bound of the status is the one on the page."""
    assert [kind for kind in KINDS if f"\n| `{kind}` |" not in PAGE] == []
    assert f"at most {LISTED_MAX} notices of a kind" in PAGE
