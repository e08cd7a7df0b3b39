"""`inplace logs` after a failure: what the Pod that failed first said last, then the others in the second before."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from inplace.agent.report.log_line import log_line
from inplace.cli.logs.first_failed import LAST_LINES, LINES_OF_ANOTHER, failure_of_status
from inplace.cli.logs.reading import GONE
from inplace.cli.refusal import CliExit, RefusalError
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire import names as wire
from tests.cli.command import REPOSITORY
from tests.cli.logs.room import BARE, FORBIDDEN, START_S, Room, at, room

pytestmark = pytest.mark.virtual_time

ERROR = "RuntimeError: CUDA error: uncorrectable ECC error"


def restarted(epoch: int = 2, **failure: Any) -> KubeObject:
    """Return a status whose group restarted because of a failure at second 10."""
    found = {"pod": "train-big-job-0-1", "node": "n", "container": "worker", "exitCode": 1} | failure
    last = {"epoch": epoch, "trigger": "worker_exit", "startedAt": at(11), "syncedAt": at(13), "firstFailure": found}
    return wire.status_of_epochs(epoch, epoch - 1) | {wire.LAST_GROUP_RESTART: last}


async def failed(pods: int = 3, *, lines: int = 3, status: KubeObject | None = None) -> Room:
    """Return a group that runs epoch 2 in the containers of epoch 1; the worker of rank 1 died at 10.5."""
    made = await room()
    await made.group(pods, status or restarted(finishedAt=at(10)))
    for index in range(pods):
        pod = await made.pod(index, epoch=2)
        made.mark(pod, 1, "worker_starting", epoch=1)
        for number in range(lines):
            made.say(pod, 9.1 + number / 1_000, f"step {number} of {index}")
        made.say(pod, 10.2 - index / 10, f"late of {index}")
        if index == 1:
            made.say(pod, 10.45, ERROR)
        made.mark(pod, 10.5 if index == 1 else 11.0, "worker_exited", epoch=1, exit_code=1)
        made.mark(pod, 12, "worker_starting", epoch=2)
        made.say(pod, 12.5, f"again {index}")
    return made


async def test_the_last_words_come_first() -> None:
    """Of the failed Pod its end; of the others the second before; nothing of the next epoch."""
    made = await failed()
    done = await made.run()
    assert done.out.splitlines()[0] == (
        "first failure: container worker of Pod train-big-job-0-1 on n with exit code 1, epoch 1, "
        "2026-01-01 00:00:10 UTC"
    )
    assert done.texts[2:6] == ["step 0 of 1", "step 1 of 1", "step 2 of 1", "late of 1"]
    assert done.texts[6] == ERROR
    assert "worker_exited" in done.texts[7]
    assert done.texts[8:] == [
        "",
        "what the others said from 00:00:09.500 to 00:00:10.500 UTC",
        "late of 2",
        "late of 0",
    ]
    assert (done.code, done.err) == (0, "")


@pytest.mark.attack
async def test_a_worker_cannot_hide_its_last_words() -> None:
    """A mark of another epoch, which it prints, ends nothing: its agent lifted none then."""
    made = await failed()
    pod = await made.pod(3, agent=True, epoch=2, name="train-big-job-0-x")
    for epoch, second in ((1, 1.0), (2, 30.0)):
        made.mark(f"{pod}/agent", second, "barrier_lifted", epoch=epoch)
    made.mark(pod, 1, "worker_starting", epoch=1)
    made.mark(pod, 9, "worker_starting", epoch=99)
    made.say(pod, 10.4, ERROR)
    await made.client.patch(
        JOBSETS, "default", "train", {"status": restarted(finishedAt=at(10), pod=pod)}, subresource="status"
    )
    assert ERROR in (await made.run()).texts


async def test_it_is_not_the_default_where_lines_are_chosen() -> None:
    """Nor before a failure."""
    made = await failed()
    assert "again 0" in (await made.run(everything=True)).texts
    assert (await made.run(ranks=(range(1),))).texts[-1] == "again 0"
    calm = await failed(status=wire.status_of_epochs(2, 1))
    assert "again 0" in (await calm.run()).texts


async def test_it_is_200_lines_and_100_of_each_other() -> None:
    """The last ones."""
    made = await failed(lines=250)
    for index in (0, 2):
        for number in range(150):
            made.say(f"train-big-job-0-{index}", 10.3, f"busy {number}")
    made = await _sorted(made)
    done = await made.run()
    end = done.texts.index("")
    assert len(done.texts[1:end]) == LAST_LINES
    assert done.texts[1] == "step 53 of 1"
    assert len(done.texts[end + 2 :]) == 2 * LINES_OF_ANOTHER


async def _sorted(made: Room) -> Room:
    for log in made.logs.values():
        log.pieces_kept.sort()
    return made


async def test_a_log_of_many_lines_is_read_from_a_minute_before() -> None:
    """The rest of it only where that has too few lines."""
    made = await failed(1, lines=250, status=restarted(finishedAt=at(10), pod="train-big-job-0-0"))
    await made.run()
    assert made.requests == 1
    made = await failed(1, lines=100, status=restarted(finishedAt=at(10), pod="train-big-job-0-0"))
    await made.run()
    assert made.requests == 2


async def test_kubelet_s_previous_container_has_the_words() -> None:
    """In depth containers: the failed instance has ended, and those of the others."""
    made = await room()
    await made.group(2, restarted(finishedAt=at(10)))
    for index in (0, 1):
        ended = {"exitCode": 1, "containerID": "c", "startedAt": at(1), "finishedAt": at(10 + index)}
        pod = await made.pod(index, epoch=2, began=12, restarts=1, last=ended)
        made.mark(pod, 1, "worker_starting", epoch=1, previous=True)
        made.say(pod, 10, f"late of {index}", previous=True)
        made.say(pod, 11, "the barrier is up")
        made.mark(pod, 12, "worker_starting", epoch=2)
    done = await made.run()
    assert done.texts[2] == "late of 1"
    assert done.texts[-1] == "late of 0"


async def test_a_bare_worker_s_log_is_cut_by_time() -> None:
    """Without marks the failed instance is the one that ran then."""
    made = await room()
    await made.group(1, restarted(finishedAt=at(10), pod="train-big-job-0-0"))
    ended = {"exitCode": 1, "containerID": "c", "startedAt": at(1), "finishedAt": at(10)}
    pod = await made.pod(0, command=BARE, epoch=2, began=12, restarts=1, last=ended)
    made.say(pod, 9, "before", previous=True)
    made.say(pod, 13, "again")
    assert (await made.run()).texts[1] == "before"


async def test_a_container_that_kubelet_has_removed_is_named() -> None:
    """What its guard said before the next epoch is not taken for last words; the others' second is shown."""
    made = await failed()
    pod = await made.pod(1, epoch=2, began=12, restarts=1)
    made.restart(pod)
    made.say(pod, 11.5, "no agent there yet")
    made.mark(pod, 12, "worker_starting", epoch=2)
    done = await made.run()
    assert "no agent there yet" not in done.out
    assert done.err == "inplace logs: not read: train-big-job-0-1: kubelet has no log of it, epoch 1 any more\n"
    assert "late of 0" in done.texts


async def test_containers_that_kubelet_has_removed_have_not_been_silent() -> None:
    """A restart of all containers takes every log with it: that is said, and not that the others said nothing."""
    made = await room()
    await made.group(2, restarted(finishedAt=at(10)))
    for index in (0, 1):
        made.mark(await made.pod(index, epoch=2, began=12, restarts=1), 12, "worker_starting", epoch=2)
    done = await made.run()
    assert done.texts[-1] == "kubelet has no log of others from 00:00:09.999 to 00:00:10.999 UTC"
    assert done.code == CliExit.NOT_DONE


async def test_of_a_hang_the_pod_that_was_silent_first_is_read() -> None:
    """Another one told of it first."""
    status = restarted(finishedAt=at(10), reason="Stalled", message="silent for 6 s at step 30", exitCode=None)
    status[wire.LAST_GROUP_RESTART] |= {
        "trigger": "stalled",
        "firstSilent": {"pods": ["train-big-job-0-2"], "count": 1, "step": 29, "quietMilliseconds": 6100},
    }
    done = await (await failed(status=status)).run()
    assert done.out.startswith("first failure: pod train-big-job-0-2 was silent first: at step 29, quiet for 6.1 s")
    assert done.texts[2:6] == ["step 0 of 2", "step 1 of 2", "step 2 of 2", "late of 2"]


async def test_containers_that_started_in_the_second_of_the_failure_are_of_the_next_epoch() -> None:
    """The status has whole seconds, and a restart takes less: neither their marks nor their words come before it."""
    made = await room()
    await made.group(3, restarted(finishedAt=at(10)))
    for index in (0, 1):
        pod = await made.pod(index, epoch=2, began=10, restarts=1)
        made.say(pod, 10.3, f"no agent there yet, {index}")
        made.mark(pod, 10.4, "worker_starting", epoch=2)
        made.say(pod, 10.5, f"again {index}")
    bare = await made.pod(2, command=BARE, epoch=2, began=10, restarts=1)
    made.say(bare, 10.5, "again 2")
    done = await made.run()
    assert "again" not in done.out
    assert "no agent" not in done.out
    assert done.texts[-1] == "kubelet has no log of others from 00:00:09.999 to 00:00:10.999 UTC"


async def test_who_only_listens_has_said_nothing() -> None:
    """A group of one has no others."""
    made = await failed(2)
    made.logs["train-big-job-0-0", False].pieces_kept.clear()
    assert (await made.run()).texts[-1].startswith("the others said nothing from 00:00:09.500")
    alone = await failed(1, status=restarted(finishedAt=at(10), pod="train-big-job-0-0"))
    assert "others" not in (await alone.run()).out


async def test_a_pod_that_is_gone_is_named() -> None:
    """The others' second before the failure is shown."""
    made = await failed(status=restarted(finishedAt=at(10), pod="train-big-job-0-9"))
    done = await made.run()
    assert done.err == f"inplace logs: not read: train-big-job-0-9: {GONE}\n"
    assert done.texts[-4:] == ["late of 1", "late of 0", ERROR, done.texts[-1]]


async def test_a_kubelet_that_hangs_costs_ten_seconds() -> None:
    """Of the failed Pod, and of another one."""
    made = await failed()
    made.hangs |= {"train-big-job-0-1", "train-big-job-0-2"}
    done = await made.run()
    assert "train-big-job-0-1, train-big-job-0-2: its kubelet sent nothing for 10 s" in done.err
    assert done.texts[-1] == "late of 0"


async def test_a_missing_right_is_named() -> None:
    """The command ends with its exit code."""
    made = await failed()
    made.refuses["train-big-job-0-1"] = FORBIDDEN
    with pytest.raises(RefusalError, match="`get` on `pods/log`") as refused:
        await made.run()
    assert refused.value.code == CliExit.NOT_ALLOWED


async def test_without_a_status_of_ours_the_pods_tell() -> None:
    """The failure is called a guess."""
    made = await failed(status=wire.status_of_epochs(2, 1))
    ended = {"exitCode": 3, "containerID": "c", "startedAt": at(1), "finishedAt": at(10)}
    pod = await made.pod(2, command=BARE, epoch=2, ended=ended)
    done = await made.run(first_failed=True)
    assert done.out.startswith(f"first failure: guessed from the Pods: container worker of Pod {pod} on n with exit co")
    assert "late of 2" in done.texts


async def test_a_failure_that_nobody_knows_of() -> None:
    """The command says so, and what to do."""
    made = await failed(status=wire.status_of_epochs(2, 1))
    with pytest.raises(RefusalError, match="no failure of train is known, from its status or its Pods; --all shows"):
        await made.run(first_failed=True)


@pytest.mark.parametrize(
    "last", [None, 7, {"epoch": 2}, {"epoch": "x", "firstFailure": 7}, {"firstFailure": {"pod": 7}}]
)
async def test_a_strange_status_is_none(last: object) -> None:
    """A status that another wrote never ends the command in a traceback."""
    assert failure_of_status({"status": {wire.LAST_GROUP_RESTART: last}}) is None
    assert failure_of_status({}) is None


PAGE = (REPOSITORY / "docs" / "worker-logs.md").read_text()
BAD_GPU = "train-workers-0-2-8wt6n"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/work/train.py", line 88, in step',
    "    loss.backward()",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
)


async def a_bad_gpu() -> Room:
    """Return a group of four Pods, one of which met a bad GPU at step 812."""
    made = await room()
    found = {"pod": BAD_GPU, "node": "node-7", "container": "worker", "exitCode": 1, "finishedAt": at(41)}
    last = {"epoch": 4, "trigger": "worker_exit", "startedAt": at(42), "firstFailure": found}
    await made.group(4, wire.status_of_epochs(4, 3) | {wire.LAST_GROUP_RESTART: last})
    names = ("train-workers-0-0-6p76h", "train-workers-0-1-tnnvg", BAD_GPU, "train-workers-0-3-q2x4d")
    for index, name in enumerate(names):
        pod = await made.pod(index, name=name, epoch=4)
        made.say(pod, 40.9 + index / 1_000, f"step=811 rank={index}")
        if name == BAD_GPU:
            made.say(pod, 41.204, *TRACEBACK)
        elif index == 1:
            made.say(pod, 41.188, "[rank1] watchdog: collective 811 has waited for 0.2 s")
        made.mark(
            pod, 41.25 if name == BAD_GPU else 41.4, "worker_exited", epoch=3, exit_code=1 if name == BAD_GPU else 143
        )
        made.mark(pod, 44, "worker_starting", epoch=4)
    return made


async def test_the_page_shows_the_command_s_output() -> None:
    """docs/worker-logs.md has it whole."""
    done = await (await a_bad_gpu()).run()
    assert textwrap.indent(f"$ inplace logs train\n{done.out}", " " * 4) in PAGE, done.out


async def test_the_mark_is_shown_as_it_is_written() -> None:
    """docs/worker-logs.md shows the line that begins an epoch."""
    assert log_line(START_S, "info", "worker_starting", {"epoch": 4}) in PAGE
