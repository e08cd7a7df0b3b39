"""`inplace logs -f` goes on over restarts: new instances of containers, and new Pods, until the JobSet has ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from inplace.cli.logs.reading import STREAMS_MAX
from inplace.cli.refusal import CliExit, RefusalError
from inplace.common.kube.resources import JOBSETS, PODS
from inplace.common.protocol.members import Members
from tests.cli.facts import spared
from tests.cli.logs.room import BARE, FORBIDDEN, Printed, Room, at, room

pytestmark = pytest.mark.virtual_time

MOVES: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ((1, ()), (2, ((0, 1),)))


async def end(made: Room) -> None:
    """Let the JobSet complete."""
    completed = {"type": "Completed", "status": "True", "reason": "x", "message": "", "lastTransitionTime": at(9)}
    status = {"terminalState": "Completed", "conditions": [completed]}
    await made.client.patch(JOBSETS, "default", "train", {"status": status}, subresource="status")


async def following(pods: int, **options: Any) -> tuple[Room, asyncio.Task[Printed]]:
    """Return a group whose logs are followed, and the command."""
    made = await room()
    await made.group(pods)
    for index in range(pods):
        made.say(await made.pod(index, command=BARE), 1, f"first of {index}")
    task = asyncio.create_task(made.run(follow=True, **options))
    await asyncio.sleep(3)
    return made, task


async def complete(made: Room, pods: int, restarts: int = 0) -> None:
    """End the containers, and the JobSet."""
    for index in range(pods):
        made.end(f"train-big-job-0-{index}")
        await made.pod(
            index, command=BARE, restarts=restarts, ended={"exitCode": 0, "containerID": "c", "finishedAt": at(9)}
        )
    await end(made)


async def test_new_lines_come_in_the_order_of_time() -> None:
    """Until the JobSet has completed; then the command ends."""
    made, task = await following(2)
    made.say("train-big-job-0-1", 4.0, "b")
    made.say("train-big-job-0-0", 3.5, "a")
    await asyncio.sleep(3)
    made.say("train-big-job-0-0", 6, "c")
    await complete(made, 2)
    done = await asyncio.wait_for(task, 60)
    assert done.code == CliExit.DONE
    assert done.texts == ["first of 0", "first of 1", "a", "b", "c"]


async def test_a_container_that_restarts_is_followed_on() -> None:
    """Its last words come from kubelet's previous log, and then those of the new instance, each once."""
    made, task = await following(1)
    pod = "train-big-job-0-0"
    made.say(pod, 4, "last words")
    made.restart(pod)
    made.say(pod, 5, "again")
    await asyncio.sleep(0.2)
    ended = {"exitCode": 1, "containerID": "c", "startedAt": at(0), "finishedAt": at(4)}
    await made.pod(0, command=BARE, began=5, restarts=1, last=ended)
    await asyncio.sleep(10)
    made.say(pod, 15, "on")
    await complete(made, 1, restarts=1)
    assert (await asyncio.wait_for(task, 60)).texts == ["first of 0", "last words", "again", "on"]


async def test_a_rank_that_moves_is_followed_on() -> None:
    """A spare has none; what it says as rank 0, once the status says that it plays it, is rank 0's."""
    made = await room()
    status = [spared(2, "1", members=Members(epoch, 1, taken), epochs=(epoch, 0))["status"] for epoch, taken in MOVES]
    await made.group(2, status[0])
    for index in range(2):
        made.say(await made.pod(index, command=BARE), 1, f"first of {index}")
    task = asyncio.create_task(made.run(follow=True))
    await asyncio.sleep(3)
    await made.client.patch(JOBSETS, "default", "train", {"status": status[1]}, subresource="status")
    await asyncio.sleep(3)
    made.say("train-big-job-0-1", 6, "second of 1")
    await complete(made, 2)
    done = await asyncio.wait_for(task, 60)
    ranks = [line.split(" rank ")[1].split()[0] for line in done.out.splitlines()]
    assert (ranks, done.texts[-1]) == (["0", "-", "0"], "second of 1")


async def test_a_new_pod_is_followed() -> None:
    """From its first line; of the one that is gone there is no word."""
    made, task = await following(1)
    await made.client.delete(PODS, "default", "train-big-job-0-0", grace_period_s=0)
    made.end("train-big-job-0-0")
    pod = await made.pod(0, command=BARE, name="train-big-job-0-0-new", began=5)
    made.say(pod, 6, "new")
    await asyncio.sleep(5)
    made.end(pod)
    ended = {"exitCode": 0, "containerID": "c", "finishedAt": at(9)}
    await made.pod(0, command=BARE, name=pod, ended=ended)
    await end(made)
    done = await asyncio.wait_for(task, 60)
    assert (done.texts, done.err) == (["first of 0", "new"], "")


async def test_more_logs_than_streams_are_asked_in_turn() -> None:
    """Every line comes, and no more are open at once."""
    pods = 3 * STREAMS_MAX
    made, task = await following(pods)
    for index in range(pods):
        made.say(f"train-big-job-0-{index}", 5 + index / 1_000, f"more of {index}")
    await asyncio.sleep(5)
    await complete(made, pods)
    done = await asyncio.wait_for(task, 60)
    assert sorted(done.texts) == sorted(f"{word} of {index}" for word in ("first", "more") for index in range(pods))
    assert made.most_open <= STREAMS_MAX


async def test_a_pod_that_comes_late_is_read_beside_those_that_are_followed() -> None:
    """No number of followed logs takes all streams."""
    made, task = await following(STREAMS_MAX)
    late = await made.pod(0, command=BARE, name="train-big-job-0-0-late", began=4)
    made.say(late, 5, "late")
    await asyncio.sleep(5)
    made.end(late)
    await made.pod(0, command=BARE, name=late, ended={"exitCode": 0, "containerID": "c", "finishedAt": at(9)})
    await complete(made, STREAMS_MAX)
    assert (await asyncio.wait_for(task, 60)).texts[-1] == "late"


@pytest.mark.parametrize(("asked", "texts"), [({}, ["late"]), ({"since_s": 100.0}, ["old", "late"])])
async def test_the_past_is_ten_seconds_or_what_is_asked(asked: dict[str, Any], texts: list[str]) -> None:
    """Of a log of hours nobody wants all before what comes."""
    made = await room()
    await made.group(1)
    made.say(await made.pod(0), -60, "old")
    made.say(await made.pod(0), -5, "late")
    task = asyncio.create_task(made.run(follow=True, **asked))
    await asyncio.sleep(5)
    made.end("train-big-job-0-0")
    await made.pod(0, ended={"exitCode": 0, "containerID": "c", "finishedAt": at(9)})
    await end(made)
    assert (await asyncio.wait_for(task, 60)).texts == texts


async def test_a_missing_right_ends_it() -> None:
    """With the right that is missing."""
    made = await room()
    await made.group(1)
    made.refuses[await made.pod(0)] = FORBIDDEN
    with pytest.raises(RefusalError, match="`get` on `pods/log`"):
        await asyncio.wait_for(made.run(follow=True), 60)


async def test_a_jobset_that_is_deleted_ends_it() -> None:
    """As `inplace status --watch` does."""
    made, task = await following(1)
    await made.client.delete(JOBSETS, "default", "train")
    made.end("train-big-job-0-0")
    with pytest.raises(RefusalError, match="JobSet train was deleted"):
        await asyncio.wait_for(task, 60)
