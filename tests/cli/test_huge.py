"""The commands' cost follows the Pods that exist, also for the largest specs that the API accepts."""

from __future__ import annotations

import pytest

from inplace.cli.group.state import NAMED_MAX, group_state
from inplace.cli.status.document import list_data, status_data
from inplace.cli.status.explain import explanation_data
from inplace.cli.status.watch import watch_line
from inplace.common.jobset.headline import GroupPhase
from inplace.common.jobset.scopes import BY_REPLICATED_JOB
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire import names as wire
from tests.cli.facts import JOB, drawn, explanation_of, jobset, pod, text_of

LARGEST = INT32_MAX * INT32_MAX


def test_a_spec_of_as_many_slots_as_the_types_hold() -> None:
    """For 2**62 slots and two Pods, one of them behind, every view answers at once and counts exactly."""
    pods = [pod(INT32_MAX - 1, 2, job_index=INT32_MAX - 1), pod(7, 1)]
    state = group_state(jobset((INT32_MAX, INT32_MAX), status=wire.status_of_epochs(1, 1)), pods)
    assert (state.phase, state.expected, state.arrived, state.late) == (GroupPhase.RESTARTING, LARGEST, 1, LARGEST - 1)
    assert state.stragglers[0].pod == "train-big-job-0-7"
    assert (len(state.stragglers), state.unnamed) == (1 + NAMED_MAX, LARGEST - 2 - NAMED_MAX)
    text = drawn(state, 100)
    assert f"waiting for {LARGEST - 1:,} Pods" in text
    assert f"{LARGEST - 2:,} no Pod" in text
    assert len(status_data(state)["stragglers"]) == 1 + NAMED_MAX
    assert f"waits for {LARGEST - 1:,} Pods: train-big-job-0-7" in watch_line(state, "table")
    found = explanation_of(state, pods)
    assert next(cause.text for cause in found.causes) == f"{LARGEST - 2:,} Pods: no Pod"
    assert all(len(line) < 1_000 for line in text_of(found).splitlines())
    assert explanation_data(found)["causes"]


@pytest.mark.parametrize("size", [(INT32_MAX, 0), (0, INT32_MAX)])
def test_jobs_without_pods_are_not_counted_through(size: tuple[int, int]) -> None:
    """2**31 - 1 replicas of no Pods make no slots and take no time."""
    assert group_state(jobset(size), ()).expected == 0


def test_many_scopes_share_one_bound() -> None:
    """A JobSet of 3,000 scopes names as many slots as one of one scope."""
    raw = jobset(*[(INT32_MAX, 9)] * 3_000, status={wire.RESTART_SCOPE_FIELD: BY_REPLICATED_JOB})
    state = group_state(raw, ())
    assert (len(state.scopes), len(state.stragglers)) == (3_000, NAMED_MAX)
    assert state.unnamed == 3_000 * 9 * INT32_MAX - NAMED_MAX


def test_a_list_names_no_slot() -> None:
    """A list of a thousand such JobSets has a thousand lines and names no slot."""
    raw = jobset((INT32_MAX, INT32_MAX), status=wire.status_of_epochs(1, 1))
    assert {list_data(raw)["jobs"] for _ in range(1_000)} == {INT32_MAX}


@pytest.mark.parametrize("text", ["9" * 5_000, "-1", "0x10", "٣", "1e9", ""])
def test_an_epoch_that_is_none_counts_as_none(text: str) -> None:
    """A JobSet is shown with any text in its Pods' annotations and labels."""
    labels = {wire.REPLICATED_JOB_NAME: JOB, wire.JOB_INDEX: text[:63], wire.JOB_COMPLETION_INDEX: text[:63]}
    odd = pod(labels=labels, annotations={wire.EPOCH: text, wire.ATTEMPT: text})
    state = group_state(jobset((1, 1)), [odd])
    assert (state.arrived, state.late) == (0, 1)
