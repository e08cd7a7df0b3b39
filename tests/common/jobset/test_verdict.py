"""Of the failures that Pods tell in any order, the one is to blame that explains the others."""

from __future__ import annotations

from itertools import permutations

import pytest

from inplace.common.jobset.causes import Failure
from inplace.common.jobset.failure_class import FailureClass
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.verdict import Evidence, evidence_of, explains, verdict_of
from inplace.common.protocol.last_progress import LastProgress

ECHO = "RuntimeError: Connection closed by peer [10.0.0.7]:41234"
EARLY, LATE = "2026-01-01T00:00:01.000Z", "2026-01-01T00:00:02.000Z"
BEHIND = FurthestBehind(("p2",), 1, LastProgress(40, 4.0), "n2")


@pytest.mark.parametrize(
    ("failure", "evidence"),
    [
        (Failure("p", exit_code=137, reason="OOMKilled", last_line=ECHO), Evidence.KUBERNETES),
        (Failure("p", exit_code=1, last_line="ValueError: 7"), Evidence.OWN),
        (Failure("p", exit_code=137), Evidence.OWN),
        (Failure("p", exit_code=1, last_line=ECHO), Evidence.ECHO),
        (Failure("p", exit_code=1, last_line="RuntimeError: NCCL error: unhandled system error"), Evidence.ECHO),
        (Failure("p"), Evidence.NONE),
    ],
)
def test_what_kubernetes_says_explains_most_and_an_echo_least(failure: Failure, evidence: Evidence) -> None:
    """A failure of which nothing is known explains nothing at all."""
    assert evidence_of(failure) is evidence


def test_stronger_evidence_wins_in_every_order_and_however_late() -> None:
    """An echo may be minutes older: who lost a peer ends before the peer does."""
    failures = [
        Failure("echo", exit_code=1, finished_at=EARLY, last_line=ECHO),
        Failure("own", exit_code=1, finished_at=EARLY, last_line="KeyError: 7"),
        Failure("node", exit_code=137, reason="NodeLost", finished_at=LATE),
    ]
    for order in permutations(failures):
        known = order[0]
        for late in order[1:]:
            known = late if explains(late, known) else known
        assert known.pod == "node"


def test_where_all_lost_a_peer_the_pod_that_was_behind_is_to_blame() -> None:
    """Its own end was not told, and it made no step while the others made one; what it lost says how that showed."""
    told = Failure("p0", "n0", "worker", 1, last_line=ECHO)
    verdict = verdict_of({"trigger": "worker_exit", "firstFailure": told.fields()}, BEHIND)
    assert verdict.culprit is not None
    assert (verdict.found, verdict.culprit.pod, verdict.culprit.node) == (FailureClass.COLLECTIVE, "p2", "n2")
    assert verdict.proof == f"Stalled: silent first, at step 40; pod p0 lost it: {ECHO}"
    assert str(verdict) == f"collective, pod p2 on node n2: {verdict.proof}"


def test_a_worker_that_says_why_it_failed_is_to_blame_whoever_was_behind() -> None:
    """The rank that is behind may only have waited for it."""
    told = Failure("p0", "n0", "worker", 1, last_line="KeyError: 7")
    verdict = verdict_of({"trigger": "worker_exit", "firstFailure": told.fields()}, BEHIND)
    assert (verdict.found, verdict.culprit) == (FailureClass.CODE, told)


def test_a_hang_in_which_all_are_at_one_step_names_nobody() -> None:
    """Any Pod may be the first to tell of it."""
    tied = FurthestBehind(("p1", "p2"), 8, LastProgress(40, 4.0))
    entry = {"trigger": "stalled", "firstFailure": Failure("p1", reason="Stalled").fields()}
    assert str(verdict_of(entry, tied)) == "collective, no pod can be named"
    assert str(verdict_of({})) == "unknown, no pod can be named"
