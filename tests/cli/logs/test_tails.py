"""`inplace logs` where kubelet has lost a log: the agent's log has what each run wrote last."""

from __future__ import annotations

import json
import re

import pytest

from inplace.agent.report.log_line import log_line
from inplace.cli.logs import reading
from inplace.cli.refusal import CliExit
from inplace.common.wire.run_tail import TAIL
from tests.cli.logs.room import BARE, START_S, Room, at, room
from tests.cli.logs.test_first_failed import restarted

pytestmark = pytest.mark.virtual_time
ERROR = "ValueError: shard 7 is truncated"


def tail(epoch: int, began: float, ended: float, text: str, *, file: int = 0, part: int = 1, left_out: int = 0) -> str:
    """Return a line of an agent's log."""
    fields = {"epoch": epoch, "began_ms": round((START_S + began) * 1000), "ended_ms": round((START_S + ended) * 1000)}
    return log_line(
        START_S + 40, "warning", TAIL, {**fields, "left_out": left_out, "file": file, "part": part, "text": text}
    )


async def cleaned(runs: int = 3, pods: int = 2, *, told: bool = True) -> Room:
    """Return a group whose rank 1 failed in each epoch, each time 10 s after its start, and got new containers."""
    made = await room()
    await made.group(pods, restarted(runs + 1, finishedAt=at(10 * runs)))
    for index in range(pods):
        fails = index == 1
        pod = await made.pod(
            index, epoch=runs + 1, agent=True, began=10 * runs + 1 if fails else 0, restarts=runs if fails else 0
        )
        agent = f"{pod}/agent"
        if told:
            made.mark(agent, 10 * runs + 2, "announcement_accepted", epoch=runs + 1)
        for epoch in range(1, runs + 1):
            began = 10 * (epoch - 1) + 2
            if not fails:
                made.mark(agent, began, "barrier_lifted", epoch=epoch)
                made.mark(pod, began, "worker_starting", epoch=epoch)
                made.say(pod, began + 1, f"trains {epoch}")
            elif told:
                text = f"begins {epoch}\nTraceback (most recent call last):\n{ERROR}\n"
                made.say(agent, 10 * runs + 2.1, tail(epoch, began, 10 * epoch, text))
        made.mark(agent, 10 * runs + 3, "barrier_lifted", epoch=runs + 1)
        made.mark(pod, 10 * runs + 3, "worker_starting", epoch=runs + 1)
        made.say(pod, 10 * runs + 4, f"again {index}")
    return made


async def test_each_run_is_there_in_the_order_of_time() -> None:
    """With its epoch, at the time of its last output."""
    made = await cleaned()
    done = await made.run(pattern=re.compile("Traceback|Error|trains"))
    assert (done.code, done.err) == (0, "")
    assert done.texts == [
        text for epoch in (1, 2, 3) for text in (f"trains {epoch}", "Traceback (most recent call last):", ERROR)
    ]
    assert "01-01 00:00:20.000 rank 1 train-big-job-0-1  ValueError" in done.out
    second = await made.run(epoch=2)
    assert [text for text in second.texts if "{" not in text] == [
        "trains 2",
        "begins 2",
        "Traceback (most recent call last):",
        ERROR,
    ]
    lines = [json.loads(line) for line in (await made.run(as_json=True, everything=True)).out.splitlines()]
    assert [line["epoch"] for line in lines if line["line"] == ERROR] == [1, 2, 3]


async def test_the_first_failure_has_its_traceback() -> None:
    """And nothing that the guard of the next container says."""
    made = await cleaned()
    done = await made.run()
    assert done.texts[-5:-2] == ["begins 3", "Traceback (most recent call last):", ERROR]
    assert "again" not in done.out
    assert done.err == ""


async def test_tails_of_earlier_runs_are_not_the_first_failure() -> None:
    """The run that failed last is in the present container, the ones before it were in the container before."""
    made = await room()
    await made.group(1, restarted(4, finishedAt=at(33), pod="train-big-job-0-0"))
    last = {"exitCode": 137, "reason": "RestartAllContainers", "startedAt": at(21), "finishedAt": at(32)}
    pod = await made.pod(0, epoch=4, agent=True, began=32.5, restarts=2, last=last)
    made.mark(f"{pod}/agent", 32.6, "announcement_accepted", epoch=3)
    made.say(f"{pod}/agent", 32.7, tail(1, 2, 10, f"{ERROR} 1\n"), tail(2, 12, 32, f"{ERROR} 2\n"))
    made.mark(pod, 32.8, "worker_starting", epoch=3)
    made.say(pod, 33, f"{ERROR} 3")
    made.mark(pod, 33.1, "worker_exited", epoch=3, exit_code=1)
    made.mark(pod, 34, "worker_starting", epoch=4)
    done = await made.run()
    assert f"{ERROR} 3" in done.texts
    assert "worker_exited" in done.texts[-1]


async def test_what_the_log_has_is_not_there_twice() -> None:
    """A run whose lines kubelet still has, in part or whole."""
    made = await cleaned(1)
    made.say("train-big-job-0-1", 9, ERROR)
    made.logs["train-big-job-0-1", False].pieces_kept.sort()
    assert (await made.run(everything=True)).texts.count(ERROR) == 1


async def test_old_lines_are_left_out() -> None:
    """By the time of a run's last output."""
    made = await cleaned()
    assert (await made.run(since_s=-25, pattern=re.compile("Error"))).texts == [ERROR]


@pytest.mark.attack
async def test_a_worker_that_prints_a_tail_says_nothing_of_another_run() -> None:
    """Beside a guard a tail counts in the agent's log alone; what it says there marks no epoch."""
    made = await cleaned(1)
    text = 'worker_starting epoch=99\nbarrier_lifted epoch=98\n{"event": "barrier_lifted", "epoch": 97}\n'
    made.say("train-big-job-0-1/agent", 14, tail(1, 2, 10.5, text))
    made.say("train-big-job-0-0", 13, tail(7, 5, 6, "forged\n"))
    lines = [json.loads(line) for line in (await made.run(as_json=True, everything=True)).out.splitlines()]
    assert {line["epoch"] for line in lines} <= {None, 1, 2}
    assert "forged" not in [line["line"] for line in lines]


async def test_a_supervisors_log_repeats_what_its_last_containers_wrote() -> None:
    """Behind its start, and before its first mark; the log of the container before it is still there."""
    made = await room()
    await made.group(1)
    command = ["inplace-agent", "run", "--", "python", "train.py"]
    last = {"exitCode": 88, "containerID": "c", "startedAt": at(20), "finishedAt": at(30)}
    pod = await made.pod(0, command=command, epoch=3, began=31, restarts=2, last=last)
    made.mark(pod, 21, "worker_starting", epoch=2, previous=True)
    made.say(pod, 29, "error of 2", previous=True)
    made.mark(pod, 32, "announcement_accepted", epoch=3)
    made.say(pod, 32.1, tail(1, 2, 10, "error of 1\n"), tail(2, 21, 29, "error of 2\n"))
    made.mark(pod, 33, "worker_starting", epoch=3)
    made.say(pod, 34, "again")
    done = await made.run(everything=True)
    assert [text for text in done.texts if "{" not in text] == ["error of 1", "error of 2", "again"]
    assert [text for text in (await made.run(epoch=1)).texts if "{" not in text] == ["error of 1"]


async def test_what_had_to_make_room_is_named() -> None:
    """A run of which only its size is known is a line that says so."""
    made = await cleaned(1)
    made.say("train-big-job-0-1/agent", 13, tail(1, 0.5, 1, "", left_out=70_000))
    assert " [70,000 bytes left out]" in (await made.run(everything=True)).out


async def test_pieces_are_one_text() -> None:
    """A line may be in two of them."""
    made = await cleaned(1)
    for part, text in enumerate(("one\ntw", "o\nthree\n"), 1):
        made.say("train-big-job-0-1/agent", 13, tail(1, 0.5, 1, text, part=part))
    assert [text for text in (await made.run(everything=True)).texts if text in ("one", "two", "three")] == [
        "one",
        "two",
        "three",
    ]


async def test_an_agent_that_has_just_started_is_waited_for() -> None:
    """It tells once it has announced; if it does not, the command says what is missing."""
    made = await cleaned(told=False)
    done = await made.run(pattern=re.compile("Error"))
    assert done.code == CliExit.NOT_DONE
    assert f"not read: train-big-job-0-1: {reading.LOST[:150]}" in done.err


async def test_a_log_that_nobody_keeps_is_never_passed_over_in_silence() -> None:
    """A worker without a guard whose container was started again."""
    made = await room()
    await made.group(1)
    pod = await made.pod(0, command=BARE, epoch=3, began=31, restarts=2)
    made.say(pod, 32, "again")
    done = await made.run(pattern=re.compile("Error"))
    assert done.code == CliExit.NOT_DONE
    assert "kubelet removed the log of its earlier runs" in done.err


async def test_a_pattern_that_no_line_has_is_an_exit_code() -> None:
    """With a word about it."""
    made = await room()
    await made.group(1)
    made.say(await made.pod(0), 1, "fine")
    done = await made.run(pattern=re.compile("Error"))
    assert (done.code, done.out) == (CliExit.NOT_DONE, "")
    assert done.err == "inplace logs: no line of these logs matches\n"
