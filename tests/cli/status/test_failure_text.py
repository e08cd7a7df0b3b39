"""The first failure in one line, as status, explain and timeline print it."""

from __future__ import annotations

import pytest

from inplace.cli.group.last_restart import LastRestart
from inplace.cli.status.document import blame_text, failure_text
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.protocol.last_progress import LastProgress

POD = {"pod": "train-w-0-3", "container": "worker", "node": "n7"}


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (
            POD | {"exitCode": 137, "reason": "OOMKilled", "message": "long"},
            "container worker of Pod train-w-0-3 on n7 killed by SIGKILL (137, OOMKilled)",
        ),
        (
            POD | {"reason": "Stalled", "message": "silent for 11 s at step 1200"},
            "container worker of Pod train-w-0-3 on n7 (Stalled) silent for 11 s at step 1200",
        ),
        ({}, "an unknown Pod"),
    ],
)
def test_the_line_has_what_a_person_needs(failure: dict[str, object], text: str) -> None:
    """Of a worker that hangs also its seconds and its step; another failure's message may be long."""
    assert failure_text(failure) == text
    assert failure_text(failure, explained=True).count("silent") <= 1, "what hangs has its message once"


HUNG = POD | {"reason": "Stalled", "message": "silent for 6 s at step 30"}


@pytest.mark.parametrize(
    ("silent", "text"),
    [
        (FurthestBehind(("q",), 1, LastProgress(29, 6.1)), "pod q was silent first: at step 29, quiet for 6.1 s"),
        (None, f"first to tell of the hang: {failure_text(HUNG)}"),
    ],
)
def test_a_hang_is_that_of_the_pod_that_was_silent_first(silent: FurthestBehind | None, text: str) -> None:
    """The Pod that told of it may be any of those that wait; it is named only as long as nothing else is known."""
    assert blame_text(LastRestart(2, "stalled", first_failure=HUNG, first_silent=silent)) == text
    assert blame_text(LastRestart(2, "worker_exit", first_failure=HUNG, first_silent=silent)) == failure_text(HUNG)
