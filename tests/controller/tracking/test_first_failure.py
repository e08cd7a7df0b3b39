"""The failure that came first is named, in whatever order the Pods of a group tell of theirs."""

from __future__ import annotations

from itertools import permutations

from inplace.common.jobset.causes import Failure
from inplace.common.jobset.verdict import explains

CULPRIT, VICTIM = "ValueError: bad sample 4711", "RuntimeError: Connection closed by peer [10.0.0.7]:41234"


def test_the_first_is_the_same_in_every_order() -> None:
    """Where each has a moment of its own."""
    failures = [
        Failure(f"pod-{number}", exit_code=1, finished_at=f"2026-01-01T00:00:0{number}.000Z", last_line=line)
        for number, line in enumerate([VICTIM, "", CULPRIT, VICTIM, "KeyError: 7"])
    ]
    for order in permutations(failures):
        known = order[0]
        for late in order[1:]:
            known = late if explains(late, known) else known
        assert known.pod == "pod-1"


def test_whole_seconds_decide_nothing_within_one() -> None:
    """Kubelet cuts the moment: who is told first stays, unless the second before is meant."""
    known = Failure("a", exit_code=1, finished_at="2026-01-01T00:00:05Z")
    assert not explains(Failure("b", exit_code=1, finished_at="2026-01-01T00:00:05Z"), known)
    assert not explains(Failure("b", exit_code=1, finished_at="2026-01-01T00:00:05.100Z"), known)
    assert explains(Failure("b", exit_code=1, finished_at="2026-01-01T00:00:04Z"), known)
    assert explains(Failure("b", exit_code=1, finished_at="2026-01-01T00:00:04.900Z"), known)
