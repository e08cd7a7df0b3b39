"""`inplace stacks`: who is elsewhere comes first, whatever the logs, the Pods and the rights are like."""

from __future__ import annotations

import asyncio
import textwrap
import time
from typing import Any

import pytest

from inplace.agent.report.log_line import log_line
from inplace.cli.logs.reading import STREAMS_MAX
from inplace.cli.refusal import CliExit, RefusalError
from inplace.cli.stacks.stacks import SHARED_S, SKEW_S
from inplace.common.kube.resources import JOBSETS
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.stacks import SILENCE
from tests.cli.command import REPOSITORY
from tests.cli.facts import spared
from tests.cli.logs.room import BARE, FORBIDDEN, START_S, Room, at, room
from tests.cli.logs.test_tails import tail
from tests.cli.stacks.room import LOADER, REQUEST, answer, run, stack, taken
from tests.cli.test_documents import check

pytestmark = pytest.mark.virtual_time


async def group(pods: int, status: dict[str, Any] | None = None) -> tuple[Room, list[str]]:
    """Return a group that runs, and its Pods."""
    made = await room()
    await made.group(pods, status or wire.status_of_epochs(1, 0))
    return made, [await made.pod(index) for index in range(pods)]


async def requested(made: Room) -> str | None:
    """Return the JobSet's request."""
    raw = await made.client.get(JOBSETS, "default", "train")
    text: str | None = (raw["metadata"].get("annotations") or {}).get(wire.STACKS_REQUESTED)
    return text


async def test_who_differs_comes_first() -> None:
    """Equal stacks are one group: the first line says who is not in it, and so do the first paragraphs."""
    made, pods = await group(16)
    for index, pod in enumerate(pods):
        line = stack()
        if index == 3:
            line = stack(silent=True, state="T", by="kernel", step=811, frames=("do_signal_stop",))
        if index == 7:
            line = stack(frames=LOADER, step=811)
        answer(made, pod, 0.3, line, taken())
    done = await run(made)
    assert done.code == CliExit.DONE
    first, *_ = done.out.splitlines()
    assert first == (
        "14 of 16 ranks in all_reduce() of distributed_c10d.py:2219 at step 812; "
        "rank 3 answers nothing (stopped) at step 811; rank 7 in read() of dataset.py:88 at step 811"
    )
    paragraphs = done.out.split("\n\n")[1:]
    assert [one.splitlines()[0].split(":")[0] for one in paragraphs] == [
        f"rank 3 ({pods[3]})",
        f"rank 7 ({pods[7]})",
        "ranks 0-2,4-6,8-15",
    ]
    assert paragraphs[1].splitlines()[1:] == [
        "  read  dataset.py:88",
        "  next_batch  train.py:41",
        "  <module>  train.py:118",
    ]
    assert await requested(made) == str(REQUEST)


async def test_an_answer_that_comes_late_is_waited_for_and_one_that_never_comes_is_said() -> None:
    """Only logs without an answer are read again."""
    made, pods = await group(3)
    for pod in pods:
        made.say(pod, -1, "step 1")
    answer(made, pods[0], 0.1, stack(), taken())

    async def late() -> None:
        await asyncio.sleep(3)
        answer(made, pods[1], 3, stack(), taken())

    task = asyncio.create_task(late())
    done = await run(made, timeout_s=5)
    await task
    assert done.out.splitlines()[:2] == [
        "2 of 2 ranks in all_reduce() of distributed_c10d.py:2219 at step 812",
        f"1 container without stacks ({pods[2]}): no answer in time",
    ]
    assert made.requests < 2 * 5 / 0.25 + 3


async def test_two_persons_share_a_request() -> None:
    """A request of the last seconds is not written again; an older one is."""
    made, (pod,) = await group(1)
    answer(made, pod, 0.1, stack(), taken())
    await run(made)
    assert (await run(made, now_s=START_S + SHARED_S - 0.1)).code == CliExit.DONE
    assert await requested(made) == str(REQUEST)
    answer(made, pod, 8, stack(request=REQUEST + 8_000), taken(request=REQUEST + 8_000))
    await run(made, now_s=START_S + 8)
    assert await requested(made) == str(REQUEST + 8_000)


async def test_the_clock_of_a_node_may_be_a_minute_off() -> None:
    """Answers are known by the request's id."""
    made, pods = await group(2)
    made.say(pods[0], -SKEW_S - 1, "an old line")
    answer(made, pods[0], -60, stack(), taken())
    answer(made, pods[1], 60, stack(request=REQUEST - 5), taken(request=REQUEST - 5), stack(), taken())
    done = await run(made)
    assert done.out.startswith("2 of 2 ranks in all_reduce()")


async def test_ranks_have_the_launchers_numbers_where_it_gave_some() -> None:
    """Two Pods of four ranks."""
    made, pods = await group(2)
    for index, pod in enumerate(pods):
        lines = [stack(pid, rank=f"rank-{4 * index + pid}", step=810 + pid) for pid in range(4)]
        if index:
            lines[2] = stack(2, rank="rank-6", frames=LOADER, step=809)
        answer(made, pod, 0.1, *lines, taken(ranks=4))
    done = await run(made)
    assert done.out.splitlines()[0] == (
        "7 of 8 ranks in all_reduce() of distributed_c10d.py:2219 at steps 810 to 813; "
        "rank 6 in read() of dataset.py:88 at step 809"
    )
    local = [stack(pid, rank=f"local-{pid}") for pid in range(2)]
    made, (pod,) = await group(1)
    answer(made, pod, 0.1, *local, stack(2, rank="local-2", frames=LOADER), taken(ranks=3))
    assert f"rank {pod}:local-2 in read()" in (await run(made)).out


async def test_who_cannot_be_asked_is_said() -> None:
    """Upstream's agent, and a Pod whose worker has not started."""
    made, pods = await group(1)
    pods.append(await made.pod(1, command=BARE))
    answer(made, pods[0], 0.1, taken(ranks=0, message="no worker runs"))
    made.say(pods[1], 0.1, "step 1")
    done = await run(made, timeout_s=1)
    assert done.code == CliExit.NOT_DONE
    assert f"1 container without stacks ({pods[0]}): no worker runs" in done.out
    assert f"({pods[1]}): no guard of inplace runs there, so it cannot be asked" in done.out
    assert "expected agents and a CRD of this version" in done.err


async def test_json_has_everything() -> None:
    """Groups with all their ranks and threads."""
    made, pods = await group(2)
    other = stack(thread="loader", frames=LOADER)
    answer(made, pods[0], 0.1, stack(), other, taken())
    done = await run(made, as_json=True, timeout_s=1)
    data = check("stacks", done.out)
    (one,) = data["groups"]
    assert (data["request"], data["ranks"]) == (REQUEST, 1)
    assert [(thread["name"], len(thread["frames"])) for thread in one["threads"]] == [("main", 3), ("loader", 3)]
    assert one["ranks"] == [{"rank": 0, "pod": pods[0], "container": "worker", "name": "", "pid": 7, "step": 812}]
    assert data["unanswered"] == {"no answer in time": [pods[1]]}


async def test_the_chosen_ranks_alone_are_read() -> None:
    """All are asked: the request is one annotation."""
    made, pods = await group(4)
    for pod in pods:
        answer(made, pod, 0.1, stack(), taken())
    done = await run(made, ranks=(range(1, 3),))
    assert done.out.startswith("2 of 2 ranks")
    assert made.requests == 2


async def test_a_spare_is_not_asked_and_a_rank_is_not_a_slot() -> None:
    """Slot 0 has no worker that could answer, and slot 2 plays its rank."""
    made, pods = await group(3, spared(3, "2", members=Members(1, 2, ((0, 2),)), epochs=(1, 0))["status"])
    for pod in pods[1:]:
        answer(made, pod, 0.1, stack(), taken())
    done = await run(made, as_json=True, timeout_s=1)
    data = check("stacks", done.out)
    assert {one["rank"]: one["pod"] for one in data["groups"][0]["ranks"]} == {0: pods[2], 1: pods[1]}
    assert (data["unanswered"], made.requests) == ({}, 2)
    chosen = await run(made, ranks=(range(1),), timeout_s=1)
    assert chosen.out.startswith("1 of 1 rank")


async def test_the_stacks_before_a_restart_can_still_be_read() -> None:
    """The watchdog took them, and nobody is asked again."""
    last = {"epoch": 2, "trigger": "stalled", "startedAt": at(200)}
    made, pods = await group(2, wire.status_of_epochs(2, 1) | {wire.LAST_GROUP_RESTART: last})
    for pod in pods:
        answer(made, pod, 20, stack(request=REQUEST), taken())
        answer(made, pod, 190, stack(request=SILENCE, frames=LOADER), taken(request=SILENCE))
        made.mark(pod, 205, "worker_starting", epoch=2)
    done = await run(made, last=True, now_s=START_S + 4_000)
    assert done.out.splitlines()[:2] == [
        "taken at 00:03:10 UTC in epoch 1, because ranks were silent",
        "2 of 2 ranks in read() of dataset.py:88 at step 812",
    ]
    assert await requested(made) is None
    assert made.requests == 2
    made, _ = await group(1)
    done = await run(made, last=True)
    assert (done.code, done.out) == (CliExit.NOT_DONE, "no stacks of JobSet train are in its logs of that time\n")


async def test_answers_of_two_hangs_are_not_mixed() -> None:
    """The second one came soon after the first, and one Pod had nothing to say of it: it is left out.

    Its first answer comes before any mark in what is read of its log.
    """
    last = {"epoch": 3, "trigger": "stalled", "startedAt": at(200)}
    made, pods = await group(2, wire.status_of_epochs(3, 2) | {wire.LAST_GROUP_RESTART: last})
    for pod in pods:
        answer(made, pod, 150, stack(request=SILENCE, frames=LOADER), taken(request=SILENCE))
        made.mark(pod, 160, "worker_starting", epoch=2)
    answer(made, pods[0], 190, stack(request=SILENCE), taken(request=SILENCE))
    for pod in pods:
        made.mark(pod, 205, "worker_starting", epoch=3)
    done = await run(made, last=True)
    assert done.out.splitlines()[:2] == [
        "taken at 00:03:10 UTC in epoch 2, because ranks were silent",
        "1 of 1 rank in all_reduce() of distributed_c10d.py:2219 at step 812",
    ]


async def test_a_look_by_hand_does_not_replace_the_stacks_of_a_hang() -> None:
    """Be it before the restart or after it, be it once or a hundred times."""
    last = {"epoch": 2, "trigger": "stalled", "startedAt": at(200)}
    made, pods = await group(2, wire.status_of_epochs(2, 1) | {wire.LAST_GROUP_RESTART: last})
    for pod in pods:
        answer(made, pod, 190, stack(request=SILENCE, frames=LOADER), taken(request=SILENCE))
        answer(made, pod, 195, stack(request=REQUEST), taken())
        made.mark(pod, 205, "worker_starting", epoch=2)
        for number in range(100):
            answer(made, pod, 206 + number, stack(request=REQUEST + number), taken(request=REQUEST + number))
    done = await run(made, last=True, now_s=START_S + 4_000)
    assert done.out.splitlines()[:2] == [
        "taken at 00:03:10 UTC in epoch 1, because ranks were silent",
        "2 of 2 ranks in read() of dataset.py:88 at step 812",
    ]


async def test_the_stacks_of_a_container_that_kubelet_removed_can_still_be_read() -> None:
    """The agent's log has what the last run wrote."""
    last = {"epoch": 2, "trigger": "stalled", "startedAt": at(200)}
    made = await room()
    await made.group(1, wire.status_of_epochs(2, 1) | {wire.LAST_GROUP_RESTART: last})
    pod = await made.pod(0, epoch=2, agent=True, began=201, restarts=1)
    lines = (stack(request=SILENCE, frames=LOADER), taken(request=SILENCE))
    text = "".join(log_line(START_S + 190, "info", event, fields) + "\n" for event, fields in lines)
    made.mark(f"{pod}/agent", 202, "announcement_accepted", epoch=2)
    made.say(f"{pod}/agent", 203, tail(1, 2, 190, text))
    made.mark(pod, 205, "worker_starting", epoch=2)
    done = await run(made, last=True, now_s=START_S + 4_000)
    assert done.out.splitlines()[:2] == [
        "taken at 00:03:10 UTC in epoch 1, because ranks were silent",
        "1 of 1 rank in read() of dataset.py:88 at step 812",
    ]


@pytest.mark.parametrize("what", ["jobsets", "pods/log"])
async def test_a_missing_right_is_named(what: str) -> None:
    """Which verb on which resource."""
    made, (pod,) = await group(1)
    if what == "jobsets":
        made.refuses_patch = FORBIDDEN
    else:
        made.refuses[pod] = FORBIDDEN
    verb = "patch" if what == "jobsets" else "get"
    with pytest.raises(RefusalError, match=f"ask for the right `{verb}` on `{what}`") as refused:
        await run(made, timeout_s=1)
    assert refused.value.code == CliExit.NOT_ALLOWED


async def test_a_group_that_cannot_answer_is_not_asked() -> None:
    """It completed, or it has no Pods."""
    now = {"lastTransitionTime": at(1), "reason": "AllJobsCompleted", "message": "all jobs completed"}
    made, _ = await group(1, {"conditions": [{"type": "Completed", "status": "True"} | now]})
    with pytest.raises(RefusalError, match="it completed"):
        await run(made)
    made = await room()
    await made.group(1, wire.status_of_epochs(1, 0))
    with pytest.raises(RefusalError, match="no container of the chosen Pods"):
        await run(made)


@pytest.mark.parametrize(
    "line",
    [
        b'{"timestamp": "x", "event": "stack", "request": 1e400}',
        b'{"timestamp": "x", "event": "stack", "request": ' + str(REQUEST).encode() + b', "pid": "7"}',
        b'{"timestamp": "x", "event": "stack", ' + b"[" * 100_000,
        b'{"timestamp": "x", "event": "stack"' + b"\0" * 10_000,
        b"\xff" * 20_000,
    ],
)
async def test_what_a_worker_forges_does_no_harm(line: bytes) -> None:
    """It is left out, whatever it is."""
    made, (pod,) = await group(1)
    made.say(pod, 0.1, line)
    answer(made, pod, 0.2, stack(), taken())
    assert (await run(made)).out.startswith("1 of 1 rank in all_reduce()")


async def test_a_flood_of_answers_is_bounded() -> None:
    """A worker that writes answers for 10,000 ranks gets 64."""
    made, (pod,) = await group(1)
    answer(made, pod, 0.2, *(stack(pid, frames=(f"f{pid} x.py:1",)) for pid in range(10_000)), taken())
    done = await run(made)
    assert "58 more at 58 other places" in done.out.splitlines()[0]
    assert len(done.out) < 10_000


async def test_a_kubelet_that_hangs_holds_nobody_up() -> None:
    """Its Pods are said to have given no answer, and why."""
    made, pods = await group(3)
    for pod in pods[:2]:
        answer(made, pod, 0.1, stack(), taken())
    made.hangs.add(pods[2])
    done = await run(made)
    assert done.out.startswith("2 of 2 ranks")
    assert f"inplace stacks: not read: {pods[2]}: its kubelet sent nothing for 10 s" in done.err


async def test_a_thousand_pods_need_32_streams() -> None:
    """One request for the log of each Pod that has answered."""
    made, pods = await group(1_000)
    for pod in pods:
        answer(made, pod, 0.1, stack(), taken())
    began_s = time.monotonic()
    done = await run(made)
    assert done.out.startswith("1,000 of 1,000 ranks in all_reduce()")
    assert (made.requests, made.most_open) == (1_000, STREAMS_MAX)
    assert time.monotonic() - began_s < 60


PAGE = (REPOSITORY / "docs" / "hangs.md").read_text()
PODS, RANKS = 16, 8
NOTE = "its process is stopped or has ended, so it was not asked"


async def test_the_page_shows_the_command_s_output() -> None:
    """docs/hangs.md: 128 ranks in 16 Pods, of which one reads data and one is stopped."""
    made = await room()
    await made.group(PODS, wire.status_of_epochs(1, 0))
    for index in range(PODS):
        pod = await made.pod(index, name=f"train-workers-0-{index}-{index:02x}c7d")
        lines = []
        for local in range(RANKS):
            rank = RANKS * index + local
            line = stack(100 + local, rank=f"rank-{rank}")
            if rank == 3:
                kernel: dict[str, Any] = {"by": "kernel", "state": "T", "message": NOTE, "silent": True}
                line = stack(100 + local, rank="rank-3", frames=("do_signal_stop", "get_signal"), **kernel)
            if rank == 17:
                line = stack(100 + local, rank="rank-17", frames=LOADER, step=811)
            lines.append(line)
        answer(made, pod, 0.3, *lines, taken(ranks=RANKS))
    done = await run(made)
    assert textwrap.indent(f"$ inplace stacks train\n{done.out}", " " * 4) in PAGE, done.out
