"""A request for stacks: from the JobSet to the lines of the worker's log, in every mode, at a bounded pace."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inplace.agent.settings.arguments import WorkerOptions
from inplace.agent.worker import stacks_command
from inplace.agent.worker.stacks_command import StacksCommand
from inplace.common.wire.stacks import SILENCE
from tests.agent.progress.test_watchdog import told, watched
from tests.agent.supervisor_rig import Supervised, main_of, running
from tests.agent.test_guard import working
from tests.agent.worker.test_host import Owner

ASKS = "import inplace\ninplace.progress(int(os.environ['INPLACE_EPOCH']))\ndef read():\n  note('main')\n"
STEPS = ASKS + "  while True: time.sleep(3600)\nread()\n"
REQUEST = 1_764_284_140_123


async def request(group: Supervised, text: str) -> None:
    """Let the JobSet carry a request."""
    group.stacks = text
    group.show(1, 0)


@pytest.mark.asyncio
async def test_a_supervisor_answers_each_request_once(tmp_path: Path) -> None:
    """The lines are in the container's log; the worker goes on, and nothing is sent to the API server for it."""
    async with running(tmp_path, STEPS, RANK="3") as group:
        sent = len(group.server.received)
        await request(group, str(REQUEST))
        (taken,) = await group.said("stacks_taken")
        assert (taken["request"], taken["ranks"]) == (REQUEST, 1)
        (stack,) = group.logged("stack")
        assert (stack["frames"][0].split()[0], stack["rank"], stack["by"]) == ("read", "rank-3", "faulthandler")
        group.show(1, 0)
        assert len(group.server.received) == sent
        os.kill(main_of(group), signal.SIGKILL)
        assert await group.announced() == 2
        group.child.kill()


@pytest.mark.asyncio
async def test_a_request_from_before_the_agent_is_not_answered(tmp_path: Path) -> None:
    """It asked another worker. One that nobody can read is told, and changes nothing."""
    async with running(tmp_path, STEPS, stacks="5") as group:
        await request(group, "soon")
        (refused,) = await group.said("stacks_request_refused")
        assert "expected the Unix time in milliseconds, saw 'soon'" in refused["message"]
        await request(group, "6")
        (taken,) = await group.said("stacks_taken")
        assert taken["request"] == 6
        group.child.kill()


@pytest.mark.asyncio
async def test_a_guard_answers_for_its_agent(tmp_path: Path) -> None:
    """The agent asks over the link, and the lines are in the log of the worker's container."""
    async with working(tmp_path, STEPS, RANK="3") as (agent, group):
        main = int(await group.noted("main"))
        agent.take_stacks(REQUEST)
        assert group.child.stderr is not None
        lines = list[dict[str, Any]]()
        while not any(line["event"] == "stacks_taken" for line in lines):
            lines.append(json.loads(await asyncio.wait_for(group.child.stderr.readline(), 20)))
        (stack,) = (line for line in lines if line["event"] == "stack")
        assert (stack["request"], stack["pid"], stack["frames"][0].split()[0]) == (REQUEST, main, "read")
        assert not agent.log.lines
        agent.leave()
        assert (await group.finished())[0] == 143


def _is_past(moment_s: float) -> bool:
    return time.monotonic() > moment_s


def _has_said(owner: Owner, answers: int) -> bool:
    return len(owner.log.of("stacks_taken")) == answers


def _has_heard(owner: Owner, words: int) -> bool:
    return len(owner.heard) == words


def times_that_it_looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """Return a list. Each decision to look adds its time and its request; instead of what looks, /bin/true runs."""
    began, begin = list[tuple[float, str]](), StacksCommand._begin

    def noted(command: StacksCommand, now_s: float, main: int, own: Mapping[str, str]) -> None:
        began.append((now_s, str(command._request)))
        begin(command, now_s, main, own)

    monkeypatch.setattr(StacksCommand, "_begin", noted)
    monkeypatch.setattr(stacks_command, "spawn", lambda _command, _env: os.posix_spawn("/bin/true", ["true"], {}))
    return began


def test_two_persons_who_ask_twice_a_second_share_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process looks at a time, and the next one begins after ANSWER_S_MIN, for the newest request."""
    monkeypatch.setattr(stacks_command, "ANSWER_S_MIN", 1.5)
    began = times_that_it_looks(monkeypatch)
    owner = Owner(WorkerOptions(("/bin/sh", "-c", "exec sleep 1263")))
    owner.host.start({})
    for number in range(1, 7):
        owner.host.take_stacks(number)
        owner.host.take_stacks(SILENCE)
        until_s = time.monotonic() + 0.2
        owner.until(partial(_is_past, until_s))
    owner.until(lambda: len(began) == 2)
    assert [request for _, request in began] == ["1", "6"]
    assert began[1][0] - began[0][0] >= 1.5
    owner.host.signal(signal.SIGKILL)
    owner.until(lambda: len(owner.heard) == 2)


def test_the_next_worker_is_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs too, seconds after the first one: the pace is that of one worker."""
    began = times_that_it_looks(monkeypatch)
    owner = Owner(WorkerOptions(("/bin/sh", "-c", "exec sleep 1267")))
    for restarts in (1, 2):
        owner.host.start({})
        for _ in range(2):
            owner.host.take_stacks(SILENCE)
            owner.until(partial(_is_past, time.monotonic() + 0.1))
        owner.host.signal(signal.SIGKILL)
        owner.until(partial(_has_heard, owner, 2 * restarts))
    assert [request for _, request in began] == [str(SILENCE)] * 2


def test_what_looks_is_killed_when_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says so, and the next request is answered."""
    monkeypatch.setattr(stacks_command, "STACKS_S_MAX", 0.2)
    monkeypatch.setattr(stacks_command, "ANSWER_S_MIN", 0.3)
    monkeypatch.setattr(stacks_command, "_PROGRAM", "import time; time.sleep(1264)")
    owner = Owner(WorkerOptions(("/bin/sh", "-c", "exec sleep 1265")))
    owner.host.start({})
    for number in (1, 2):
        owner.host.take_stacks(number)
        owner.until(partial(_has_said, owner, number))
    assert [line["request"] for line in owner.log.of("stacks_taken")] == [1, 2]
    assert owner.log.of("stacks_taken")[0]["message"] == "it did not end within 0.2 s, and was killed"
    owner.host.signal(signal.SIGKILL)
    owner.until(lambda: len(owner.heard) == 2)


def test_a_worker_that_ends_leaves_nobody_who_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is left before the next announcement; without a worker the answer is that none runs."""
    monkeypatch.setattr(stacks_command, "_PROGRAM", "import time; time.sleep(1266)")
    monkeypatch.setattr(stacks_command, "ANSWER_S_MIN", 0.0)
    owner = Owner(WorkerOptions((sys.executable, "-c", "import time; time.sleep(0.5)")))
    owner.host.start({})
    owner.host.take_stacks(1)
    owner.until(lambda: len(owner.heard) == 2)
    assert owner.heard == [("exited", 0), ("gone", True)]
    owner.host.take_stacks(2)
    assert [line["request"] for line in owner.log.of("stacks_taken")] == [1, 2]
    assert owner.log.of("stacks_taken")[1]["message"] == "no worker runs"


@pytest.mark.asyncio
async def test_the_stacks_of_a_silent_rank_are_taken_before_its_restart(tmp_path: Path) -> None:
    """By itself, once, while the rank is silent and nobody has told of it; the restart does not wait for them."""
    script = ASKS + "  for step in range(20): inplace.progress(step); time.sleep(0.05)\n  time.sleep(3600)\nread()\n"
    async with watched(tmp_path, script, RANK="0", STALL_AFTER_S="4") as group:
        failure = await told(group)
        (stack,) = await group.said("stack")
        await group.said("worker_failed")
        events = [line["event"] for line in group.lines]
        assert events.index("stacks_taken") < events.index("worker_stalled")
        assert (stack["request"], stack["step"], stack["frames"][0].split()[0]) == (SILENCE, failure.step, "read")
        group.child.kill()
