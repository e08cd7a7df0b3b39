"""Notices of the epoch that runs, and ranks that were slow before, in `inplace status` and `inplace explain`."""

from __future__ import annotations

import pytest

from inplace.cli.group.notices import ALL_SLOWER, LINES_MAX
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.status.document import TRIGGERS, failure_text, status_data
from inplace.cli.status.watch import watch_line
from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.notices import GroupNotice
from inplace.common.kube.resources import PODS as POD_KIND
from inplace.common.kube.resources import KubeObject
from inplace.common.kube.timestamps import precise_time
from inplace.common.wire import names as wire
from inplace.common.wire.notice import BUSY, KINDS, LISTED_MAX, LOSS, SLOW, STEPS, Notice, notice_text
from tests.cli.facts import drawn, explanation_of, jobset, pod, text_of
from tests.cli.scenes import explained as explained_by
from tests.cli.scenes import seen, status, training, until

AT_S = 1_767_225_600.0  # 00:00:00 UTC
PODS = [pod(0, 2), pod(1, 2)]


def notice(kind: str, number: int = 17, **fields: object) -> KubeObject:
    """Return an entry of status.notices, of a rank of its own."""
    entry = {"kind": kind, "epoch": 2, "value": 310, "rank": f"rank-{number}", "step": 1200}
    return entry | {"pod": f"train-{number}", "node": f"n{number}", "at": precise_time(AT_S)} | fields


def group(*notices: object, restart_on: str | None = None, status: KubeObject | None = None) -> GroupState:
    """Return a group of two Pods at epoch 2, with notices and more of its status."""
    raw = jobset(2, status=wire.status_of_epochs(2, 1) | {wire.NOTICES: list(notices)} | (status or {}))
    if restart_on is not None:
        raw["metadata"]["annotations"] = {wire.RESTART_ON: restart_on}
    return group_state(raw, PODS)


def explained(state: GroupState, now_s: float = AT_S) -> str:
    """Return the text of `inplace explain`."""
    return text_of(explanation_of(state, PODS, now_s=now_s))


@pytest.mark.parametrize("kind", [LOSS, SLOW, STEPS])
def test_status_has_a_line_for_each_notice(kind: str) -> None:
    """In its own words, and for programs with every field; without notices there is no line."""
    state = group(notice(kind), notice(kind, 3))
    text = drawn(state)
    for entry in (notice(kind), notice(kind, 3)):
        assert f"\n{GroupNotice.read(entry)}\n" in text
    assert status_data(state)["notices"][0] == notice(kind) | {"scope": ""}
    assert status_data(group())["notices"] == []
    assert "rank" not in drawn(group())


def test_the_lines_of_a_watch_tell_three_notices() -> None:
    """A pipe prints a line when it changes, and a rank that is busy changes its notice again and again."""
    line = watch_line(group(notice(BUSY), *(notice(LOSS, number) for number in range(4))), "table")
    assert line.startswith("Running epoch 2: 2 of 2; rank 0 (train-0): the loss is no finite number")
    assert [f"rank {number} (" in line for number in (*range(4), 17)] == [True, True, True, False, False]


def test_a_loss_is_explained() -> None:
    """Since which step, at which rank first, that nothing restarts because of it, and what to do."""
    state = group(notice(LOSS, 3, step=1210, value=20), notice(LOSS, 17, value=20))
    text = explained(state)
    assert "it trains badly: all 2 Pods are at epoch 2" in text
    assert (
        "1. rank 17 (train-17): the loss is no finite number from step 1200 on, 20 steps in a row or more; 1 other "
        "rank or more tell the same; nothing restarts because of it, as inplace.dev/restart-on does not name loss\n"
        "     train-3, train-17\n"
    ) in text
    assert (
        "1. look at the data and the learning rate of step 1200; then let the script load a checkpoint from before "
        "step 1200: inplace restart train -n default"
    ) in text
    assert "Nothing keeps it from training" not in text


def test_a_slow_rank_is_explained() -> None:
    """With its Pod, its node and the factor, and how to move it."""
    text = explained(group(notice(SLOW)))
    assert (
        "rank 17 (train-17): its own work on a step takes 3.1 times as long as before at step 1200 (node n17); the "
        "others wait for it at each step"
    ) in text
    assert (
        "look at node n17 (GPU clocks, ECC errors, temperature); to move the Pod: kubectl cordon n17 && kubectl "
        "delete pod train-17 -n default"
    ) in text


def test_slow_steps_are_explained() -> None:
    """Steps alone name no rank; the script can change that."""
    text = explained(group(notice(STEPS)))
    assert "which rank is slow, steps alone cannot tell" in text
    assert "inplace.progress(step, waited_s=SECONDS)" in text


def test_many_slow_ranks_are_not_accused() -> None:
    """As many as are listed may be all: one line, no rank and no node; fewer are named."""
    ranks = [notice(SLOW, number) for number in range(LISTED_MAX)]
    text = drawn(group(*ranks))
    assert ALL_SLOWER in text
    assert "rank 0" not in text
    causes = explanation_of(group(*ranks), PODS, now_s=AT_S).causes
    assert [one.kind for one in causes] == ["SlowRanks"]
    assert "cordon" not in causes[0].advice
    named = explanation_of(group(*ranks[1:]), PODS, now_s=AT_S).causes
    assert [one.kind for one in named] == ["SlowRank"] * (LISTED_MAX - 1)


@pytest.mark.parametrize("after_s", [599, 600])
def test_a_busy_rank_is_told_until_its_time_is_over(after_s: int) -> None:
    """It is no obstacle: the group trains, and one line says until when nobody is called silent."""
    state, is_told = group(notice(BUSY, value=600)), after_s < 600
    words = "rank 17 (train-17) is busy: no silence of its group is a stall until about 00:10:00 UTC"
    text = explained(state, AT_S + after_s)
    assert (words in text, words in drawn(state, now_s=AT_S + after_s)) == (is_told, is_told)
    assert "it trains: all 2 Pods" in text
    assert "Nothing keeps it from training." in text


@pytest.mark.parametrize("fields", [{"at": "soon"}, {"at": "9999-12-31T23:59:59Z"}, {"at": "", "value": 2**62}])
def test_a_busy_rank_whose_time_cannot_be_told_is_told(fields: KubeObject) -> None:
    """In the notice's own words: no value of another program ends the command."""
    entry = notice(BUSY, **fields)
    assert str(GroupNotice.read(entry)) in drawn(group(entry))
    assert "is busy: no silence" in explained(group(notice(BUSY, value=2**62)))


@pytest.mark.parametrize(
    ("restart_on", "is_named"), [(None, False), ("slow, steps", False), ("loss", True), ("x", False)]
)
def test_explain_says_what_restarts(restart_on: str | None, is_named: bool) -> None:
    """As the annotation names the kind, or does not; a value that cannot be read names none."""
    text = explained(group(notice(LOSS), restart_on=restart_on))
    assert ("the group restarts because of it" in text) is is_named
    assert ("does not name loss" in text) is not is_named


def test_only_notices_of_epochs_that_run_count() -> None:
    """No notice of another epoch or scope, and none once the epoch is over or the JobSet has ended."""
    assert not group(notice(LOSS, epoch=1), notice(LOSS, epoch=3), notice(LOSS, scope="a")).notices
    assert not group(notice(LOSS), status=wire.status_of_epochs(2, 2)).notices
    ended = [{"type": "Completed", "status": "True"}]
    assert not group(notice(LOSS), status={"conditions": ended}).notices


def test_whatever_the_status_says_lines_are_bounded_and_clean() -> None:
    """Garbage is passed over, a control character stays visible, and the eleventh line says how many more there are."""
    forged = notice(LOSS, rank="rank-1\n\x1b[2J", pod="p\nq")
    text = drawn(group(forged, 7, None, {"kind": "x", "epoch": 2}, {"kind": LOSS, "epoch": "2"}))
    assert "\x1b" not in text
    assert "(p q): the loss is no finite number" in text
    many = [notice(kind, number) for kind in KINDS for number in range(16)]
    lines = drawn(group(*many), now_s=AT_S).splitlines()
    assert sum(" busy: " in line or "the loss" in line for line in lines) == LINES_MAX
    assert any(line.startswith("and ") and line.endswith(" notices more: -o json") for line in lines)


SLOW_RANKS = {
    "slowRanks": [{"pod": "train-3", "node": "n7", "rank": 17, "workMilliseconds": 3100}],
    "typicalWorkMilliseconds": 980,
}


def test_slow_ranks_of_the_run_before_are_told() -> None:
    """In one line of status and in a moment of explain, and for programs."""
    last = {"epoch": 2, "trigger": "worker_exit", "startedAt": precise_time(AT_S), "syncedAt": precise_time(AT_S + 5)}
    state = group(status={wire.LAST_GROUP_RESTART: last | SLOW_RANKS})
    words = (
        "slow in the run before the last restart: rank 17 (train-3) on n7: 3.1 s of its own work on a step, half of "
        "the Pods less than 980 ms"
    )
    assert words in drawn(state)
    assert f"00:00:05  {words}" in explained(state)
    restart = status_data(state)["lastRestart"]
    assert restart is not None
    assert {name: restart[name] for name in ("slowRanks", "typicalWorkMilliseconds")} == SLOW_RANKS


@pytest.mark.parametrize(
    ("entry", "end"),
    [
        ({"slowRanks": "x"}, None),
        ({"slowRanks": [{"pod": "p", "workMilliseconds": 40}]}, "pod p: 40 ms of its own work on a step, "),
        ({"slowRanks": [3, {"pod": "p", "workMilliseconds": "x"}]}, "pod p: 0 ms of its own work on a step, "),
        (
            {"slowRanks": [{"pod": f"p{n}", "workMilliseconds": 2000} for n in range(9)]},
            "pod p3: 2.0 s; pod p4: 2.0 s of its own work on a step, ",
        ),
    ],
)
def test_slow_ranks_of_any_status_are_bounded(entry: KubeObject, end: str | None) -> None:
    """At most five, each as far as it is known; what cannot be read ends no command."""
    text = drawn(group(status={wire.LAST_GROUP_RESTART: {"epoch": 2, "typicalWorkMilliseconds": 980} | entry}))
    assert "slow in the run" not in text if end is None else f"{end}half of the Pods less than 980 ms\n" in text


@pytest.mark.parametrize(
    ("trigger", "reason"), [("loss_not_finite", "LossNotFinite"), ("slow", "Slow"), ("slow", "SlowSteps")]
)
def test_a_restart_because_of_a_notice_is_told(trigger: str, reason: str) -> None:
    """With the notice's words, which have rank and step; history has no message, and names Pod and node."""
    words = str(GroupNotice.read(notice(SLOW)))
    failure = {"pod": "train-17", "node": "n17", "reason": reason, "message": words}
    last = {"epoch": 2, "trigger": trigger, "startedAt": precise_time(AT_S), "firstFailure": failure}
    state = group(status={wire.LAST_GROUP_RESTART: last})
    assert f"last restart: {TRIGGERS[trigger]}, Pod train-17 on n17 ({reason}) {words}" in drawn(state)
    assert f"first failure: Pod train-17 on n17 ({reason}) {words}" in explained(state)
    assert failure_text(failure | {"message": ""}) == f"Pod train-17 on n17 ({reason})"


def test_every_trigger_has_words() -> None:
    """Status, explain, history, timeline and report say each in the words of one table."""
    assert set(TRIGGERS) >= {trigger.value for trigger in Trigger}


@pytest.mark.virtual_time
async def test_the_notice_of_a_pod_reaches_a_person() -> None:
    """From the Pod's annotation by the controller into the status: both commands name rank, Pod and node."""
    async with training() as cluster:
        victim = sorted(cluster.pods(), key=lambda one: str(one["metadata"]["name"]))[2]
        name, node = victim["metadata"]["name"], victim["spec"]["nodeName"]
        text = notice_text(Notice(1, SLOW, 310, "rank-2", 1200, cluster.clock.wall_s()))
        body = {"metadata": {"annotations": {wire.NOTICE: text}}}
        await cluster.client().patch(POD_KIND, "default", name, body)
        await until(cluster, lambda: bool(status(cluster).get(wire.NOTICES)))
        assert f"\nrank 2 ({name}): its own work on a step takes 3.1 times" in drawn(await seen(cluster))
        (cause,) = (await explained_by(cluster)).causes
        assert f"look at node {node} " in cause.advice
