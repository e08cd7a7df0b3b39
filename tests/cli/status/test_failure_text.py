"""The first failure in one line, as status, explain and timeline print it."""

from __future__ import annotations

import pytest

from inplace.cli.status.document import failure_text

POD = {"pod": "train-w-0-3", "container": "worker", "node": "n7"}


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (
            POD | {"exitCode": 137, "reason": "OOMKilled", "message": "long"},
            "container worker of Pod train-w-0-3 on n7 with exit code 137 (OOMKilled)",
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
