"""From which step a group goes on, as `status`, `explain` and `history` tell it."""

from __future__ import annotations

import pytest

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import group_state
from inplace.cli.status.document import status_data
from inplace.cli.status.history import history_data, history_lines
from inplace.common.jobset.restart_history import FIELD, PastRestart, fields_of
from inplace.common.protocol.members import Members
from inplace.common.protocol.resume import Resume, Saved
from inplace.common.wire import names as wire
from inplace.common.wire.members import Announced, announcement_text, members_text
from tests.cli.facts import drawn, explanation_of, jobset, pod, text_of


def pods(*shared: int) -> list[PodFact]:
    """Return four Pods that run epoch 7, of which the first ones told of these shared steps."""
    texts = [
        announcement_text(7, Announced(6, Saved((4_200,), step))) for step in (*shared, *[None] * (4 - len(shared)))
    ]
    return [pod(slot, 7, annotations=wire.epoch_annotations(7) | {wire.RAN: text}) for slot, text in enumerate(texts)]


PODS = pods()


def told(members: Members, *, deprecated: int = 6) -> dict[str, object]:
    """Return the status of a group of 4 Pods at epoch 7."""
    return {**wire.status_of_epochs(7, deprecated), wire.MEMBERS_FIELD: members_text(members)}


@pytest.mark.parametrize(
    ("resume", "shared", "words"),
    [
        (
            Resume(4_200, local=True),
            (3_950, 4_000),
            "went on from step 4,200 (all 4 Pods have it themselves; shared: 4,000)",
        ),
        (Resume(4_200, local=True), (), "went on from step 4,200 (all 4 Pods have it themselves; shared: none)"),
        (Resume(4_000, local=False), (4_000,), "went on from step 4,000 (shared storage)"),
    ],
)
def test_the_running_epoch_says_where_it_began(resume: Resume, shared: tuple[int, ...], words: str) -> None:
    """Status and explain say it in words, the document in fields."""
    state = group_state(jobset(4, status=told(Members(7, 4, resume=resume, everyone=True))), pods(*shared))
    assert words in drawn(state)
    assert words in text_of(explanation_of(state))
    assert status_data(state)["scopes"][0]["resume"] == {
        "step": resume.step,
        "kind": resume.kind,
        "shared": max(shared, default=None),
    }


@pytest.mark.parametrize(
    "status",
    [
        told(Members(7, 4, everyone=True)),
        told(Members(6, 4, resume=Resume(9, local=True), everyone=True)),
        told(Members(7, 4, resume=Resume(9, local=True), everyone=True), deprecated=7),
        wire.status_of_epochs(7, 6),
    ],
)
def test_nothing_is_said_where_nobody_knows(status: dict[str, object]) -> None:
    """A list without a step, of another epoch, or of one that is over says nothing; so does no list."""
    state = group_state(jobset(4, status=status), PODS)
    assert "went on from" not in drawn(state)
    assert status_data(state)["scopes"][0]["resume"] is None


def test_a_past_restart_keeps_it() -> None:
    """The history has the step and where it lay."""
    past = PastRestart(5, trigger="worker_exit", resume_step=4_200, resume_kind="local")
    raw = jobset(4, status=wire.status_of_epochs(5, 4) | {FIELD: fields_of([past])})
    rows = history_data(raw)["restarts"]
    assert "; went on from the local step 4,200" in "\n".join(history_lines(rows))
    assert (rows[0]["resumeStep"], rows[0]["resumeKind"]) == (4_200, "local")
