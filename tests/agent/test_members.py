"""An agent and a guard of a group with spares, as real processes: a member learns its rank, a spare ends with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import OUR_PATH, WORKER_QUERY
from inplace.common.wire.members import members_text
from testbed.ports import free_ports
from tests.agent.process import COMMAND, environment, process
from tests.agent.scripted_server import Exchange, ScriptedServer, Step, Views, jobset
from tests.agent.supervisor_rig import PRELUDE, RUN, supervised, until
from tests.agent.test_guard import Guarded, guarded

pytestmark = pytest.mark.asyncio

VERSION = 100  # of the Pod after its first PATCH, and one more after each
SLOT = "2"
OF_SLOT = {"MEMBERS": "train-w-0-*.train", "RESTART_SCOPE": "w", "JOB_COMPLETION_INDEX": SLOT}
OF_MANIFEST = {"JOB_COMPLETION_INDEX": SLOT, "RANK": SLOT, "WORLD_SIZE": "3", "MASTER_ADDR": "train-w-0-0.train"}
LEARNED = ("INPLACE_RANK", "INPLACE_SIZE", "INPLACE_COORDINATOR", "JOB_COMPLETION_INDEX", "RANK", "WORLD_SIZE")
NOTES = f"note('epoch-' + os.environ['INPLACE_EPOCH'], ' '.join(os.environ[name] for name in {LEARNED}))\n"
TRAINS = f"import inplace\ninplace.ready()\n{NOTES}note('main')\nfor step in range(3): inplace.progress(step)\n"


def group(synced: int = 0, deprecated: int = 0, members: Members | None = None) -> list[dict[str, Any]]:
    """Return status.scopedEpochs; the list of nobody is an empty text."""
    text = members_text(members) if members is not None else ""
    epochs = {wire.SYNCED_EPOCH: synced, wire.DEPRECATED_EPOCH: deprecated}
    return [{"name": "w", **epochs, wire.MEMBERS_FIELD: text}]


@dataclass
class Answers:
    """Answers each PATCH with the next version of the Pod."""

    version: int = VERSION - 1

    async def __call__(self, exchange: Exchange) -> None:
        """Store the patch."""
        self.version += 1
        await exchange.answer(200, {"metadata": {"resourceVersion": str(self.version)}})


@dataclass
class Pod:
    """One agent, its server and its guard."""

    server: ScriptedServer
    agent: asyncio.subprocess.Process
    guard: Guarded
    port: str
    views: Views = field(default_factory=Views)

    async def announced(self, count: int) -> tuple[str, str]:
        """Return what announcement number `count` says: the epoch, and what this Pod ran."""
        await self.server.until(lambda: len(self.server.annotations) >= count)
        annotations = self.server.annotations[count - 1]
        return annotations[wire.EPOCH], annotations[wire.RAN]

    def show(self, synced: int, deprecated: int, members: Members | None, **more: Any) -> None:
        """Show the agent what the group is doing."""
        self.views.show(0, 0, scopes=group(synced, deprecated, members), **more)

    async def asked(self, query: str = "") -> tuple[int, dict[str, Any]]:
        """Return the barrier's status and body."""
        return await asyncio.to_thread(_asked, self.port, f"{OUR_PATH}{query and '?' + query}")

    async def logged(self, event: str) -> dict[str, Any]:
        """Return the agent's next line with this event."""
        assert self.agent.stderr is not None
        while True:
            line: dict[str, Any] = json.loads(await self.agent.stderr.readline())
            if line["event"] == event:
                return line


def _asked(port: str, target: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{target}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


@asynccontextmanager
async def pod(
    folder: Path, worker: str | list[str], *options: str, depth: str = "process", **env: str
) -> AsyncIterator[Pod]:
    """Run both containers of slot 2."""
    views, port = Views(), str(free_ports(1)[0])
    lists: list[Step] = [jobset(scopes=group()), jobset(scopes=group(1, 1))]
    settings = OF_SLOT | {
        "LINK_FILE": str(folder / "link"),
        "EPOCH_FILE": str(folder / "epoch"),
        "BARRIER_PORT": port,
        "RESTART_DEPTH": depth,
        "CLEAN_AFTER_FAILURES": "0",
        **env,
    }
    async with (
        ScriptedServer(lists=lists, watches=[(views.follow,)] * 2, answer=Answers()) as server,
        process(environment(folder, server, **settings), *COMMAND) as agent,
        guarded(folder, worker, *options, **OF_MANIFEST) as guard,
    ):
        yield Pod(server, agent, guard, port, views)


async def test_a_member_learns_the_rank_that_it_plays(tmp_path: Path) -> None:
    """Slot 2 plays rank 1; the next announcement says what it ran, and another epoch may give it another rank."""
    async with pod(tmp_path, NOTES + RUN) as one:
        assert await one.announced(1) == ("1", "v1,epoch=1,ran=0")
        one.show(1, 0, Members(1, 2, ((1, 2),), seen=VERSION))
        assert await one.guard.noted("epoch-1") == "1 2 train-w-0-0.train 1 1 2"
        lifted = await one.logged("barrier_lifted")
        assert (lifted["epoch"], lifted["rank"], lifted["size"]) == (1, 1, 2)
        await until(lambda: bool(one.guard.tree()), "the worker")
        status, state = await one.asked(WORKER_QUERY)
        assert (status, state["rank"], state["spare"]) == (200, 1, False)
        one.show(1, 1, None)
        assert await one.announced(2) == ("2", "v1,epoch=2,ran=1")
        one.show(2, 1, Members(2, 2, ((0, 2),), seen=VERSION + 1))
        assert await one.guard.noted("epoch-2") == "0 2 train-w-0-2.train 0 0 2"


async def test_a_pod_of_a_job_learns_its_rank_and_its_job_s(tmp_path: Path) -> None:
    """Pod 2 of Job 5, which plays rank 1 of 2 Jobs with four Pods each; JOB_COMPLETION_INDEX stays."""
    names = ("INPLACE_JOB_RANK", "INPLACE_JOBS")
    notes = NOTES + f"note('job', ' '.join(os.environ[name] for name in {names}))\n"
    async with pod(tmp_path, notes + RUN, MEMBERS="5/train-w-*-0.train") as one:
        await one.announced(1)
        one.show(1, 0, Members(1, 2, ((1, 5),), seen=VERSION, pods=4))
        assert await one.guard.noted("epoch-1") == "6 8 train-w-0-0.train 2 6 8"
        assert await one.guard.noted("job") == "1 2"
        lifted = await one.logged("barrier_lifted")
        assert (lifted["rank"], lifted["size"], lifted["job"]) == (6, 8, 1)
        one.show(1, 1, None)
        await one.announced(2)
        one.show(2, 1, Members(2, 2, ((1, 4),), seen=VERSION + 1, pods=4))
        assert (await one.announced(3))[0] == "3"  # its Job is a spare


async def test_an_agent_that_starts_anew_remembers_what_this_pod_ran(tmp_path: Path) -> None:
    """Not so a new Pod: its folder is empty."""
    async with pod(tmp_path, NOTES + RUN, depth="containers") as one:
        await one.announced(1)
        one.show(1, 0, Members(1, 3, seen=VERSION))
        await one.guard.noted("epoch-1")
        one.show(1, 1, None)
        assert await one.agent.wait() == 88
        env = OF_SLOT | {"EPOCH_FILE": str(tmp_path / "epoch"), "LINK_FILE": str(tmp_path / "link")}
        async with process(environment(tmp_path, one.server, **env), *COMMAND):
            _, ran = await one.announced(2)
            assert ran.endswith(",ran=1")


@pytest.mark.parametrize("depth", ["process", "containers"])
async def test_a_spare_starts_nothing_is_ready_and_ends_with_its_group(tmp_path: Path, depth: str) -> None:
    """It announces the next epoch; a startup probe is not answered; the guard's code is 0, and the agent stays."""
    async with pod(tmp_path, NOTES + RUN, depth=depth) as one:
        await one.announced(1)
        assert (await one.asked(WORKER_QUERY))[0] == 503
        one.show(1, 0, Members(1, 2, seen=VERSION))
        assert await one.announced(2) == ("2", "v1,epoch=2,ran=0")
        assert (await one.logged("spare_waiting"))["epoch"] == 1
        status, state = await one.asked(WORKER_QUERY)
        assert (status, state["rank"], state["spare"]) == (200, None, True)
        assert (await one.asked())[0] == 503
        one.show(1, 0, Members(1, 2, seen=VERSION), ended="Completed")
        assert (await one.guard.finished())[0] == 0
        assert one.agent.returncode is None
        assert list((tmp_path / "notes").iterdir()) == []


async def test_a_member_that_runs_is_not_ended(tmp_path: Path) -> None:
    """What the status says of the end is for Pods without a worker."""
    async with pod(tmp_path, NOTES + RUN) as one:
        await one.announced(1)
        one.show(1, 0, Members(1, 3, seen=VERSION))
        await one.guard.noted("epoch-1")
        one.show(1, 0, Members(1, 3, seen=VERSION), ended="Completed")
        await asyncio.sleep(0.3)
        assert one.guard.child.returncode is None
        assert one.guard.tree()


async def test_a_spare_with_an_agent_of_its_own_ends_with_its_group(tmp_path: Path) -> None:
    """The container of a supervisor ends with 0, too."""
    views = Views()
    server = ScriptedServer(lists=[jobset(scopes=group())], watches=[(views.follow,)], answer=Answers())
    async with supervised(tmp_path, NOTES + RUN, server=server, **OF_SLOT) as one:
        assert await one.announced() == 1
        views.show(0, 0, scopes=group(1, 0, Members(1, 2, seen=VERSION)))
        assert await one.announced() == 2
        views.show(0, 0, scopes=group(1, 0, Members(1, 2, seen=VERSION)), ended="Completed")
        assert await one.finished() == 0
        assert one.notes("started") == []


async def test_a_standby_learns_its_rank_at_its_release(tmp_path: Path) -> None:
    """It started when nobody knew the rank, and has the same variables as a fresh worker."""
    async with pod(tmp_path, TRAINS + RUN, "--standby") as one:
        await one.announced(1)
        one.show(1, 0, Members(1, 3, seen=VERSION))
        assert await one.guard.noted("epoch-1") == "2 3 train-w-0-0.train 2 2 3"
        standby = (await _said(one.guard, "standby_ready"))["pid"]
        one.show(1, 1, None)
        await one.announced(2)
        one.show(2, 1, Members(2, 2, ((0, 2),), seen=VERSION + 1))
        assert await one.guard.noted("epoch-2") == "0 2 train-w-0-2.train 0 0 2"
        assert (await _said(one.guard, "standby_released"))["pid"] == standby


async def test_torchruns_options_say_the_rank_and_never_an_old_one(tmp_path: Path) -> None:
    """Kubelet filled them in; a standby that was started with another rank's is not released."""
    script = PRELUDE + "note('argv-' + os.environ.get('INPLACE_EPOCH', '0'), ' '.join(sys.argv[1:]))\n" + TRAINS + RUN
    words = ["torchrun", "--nnodes=3", "--node-rank", SLOT, "--master-addr=train-w-0-0.train", "train.py"]
    async with pod(tmp_path, [sys.executable, "-c", script, *words], "--standby") as one:
        await one.announced(1)
        one.show(1, 0, Members(1, 2, ((1, 2),), seen=VERSION))
        argv = "torchrun --nnodes=2 --node-rank 1 --master-addr=train-w-0-0.train train.py"
        assert await one.guard.noted("argv-1") == argv
        standby = (await _said(one.guard, "standby_ready"))["pid"]
        os.kill(next(pid for pid in one.guard.tree() if pid != standby), signal.SIGKILL)
        await one.announced(2)
        one.show(2, 1, Members(2, 2, ((0, 2),), seen=VERSION + 1))
        argv = "torchrun --nnodes=2 --node-rank 0 --master-addr=train-w-0-2.train train.py"
        assert await one.guard.noted("argv-2") == argv
        assert await one.guard.noted("epoch-2") == "0 2 train-w-0-2.train 0 0 2"


async def _said(guard: Guarded, event: str) -> dict[str, Any]:
    """Return the guard's next line with this event."""
    assert guard.child.stderr is not None
    while True:
        line: dict[str, Any] = json.loads(await guard.child.stderr.readline())
        if line["event"] == event:
            return line
