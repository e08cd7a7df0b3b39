"""Agent and guard as real processes: ranks say what they saved, the agent announces it, the next run learns a step."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from inplace.common.protocol.members import Members
from inplace.common.protocol.resume import Resume
from tests.agent.process import COMMAND, environment, process
from tests.agent.scripted_server import ScriptedServer, Views, jobset
from tests.agent.supervisor_rig import RUN, supervised, until
from tests.agent.test_members import OF_SLOT, VERSION, Answers, Pod, group, pod

pytestmark = pytest.mark.asyncio

RESUMED = "import inplace\nnote('resume-' + os.environ['INPLACE_EPOCH'], str(inplace.resume_step()))\n"
SAVES = RESUMED + "inplace.saved(100)\ninplace.saved(110)\ninplace.saved(50, shared=True)\nnote('saved')\n"
LATER = "if int(os.environ['INPLACE_EPOCH']) > 1:\n    "


def run_of(one: Pod, epoch: int, resume: Resume | None = None, *, over: int = 0) -> None:
    """Show that an epoch runs with three members."""
    one.show(epoch, over or epoch - 1, Members(epoch, 3, seen=VERSION + epoch - 1, resume=resume))


async def test_what_ranks_saved_is_announced_and_where_the_group_goes_on_is_told(tmp_path: Path) -> None:
    """The first run looks itself; the second one goes on from the step, and a manifest's own value never counts."""
    async with pod(tmp_path, SAVES + RUN) as one:
        assert await one.announced(1) == ("1", "v1,epoch=1,ran=0")
        run_of(one, 1)
        assert await one.guard.noted("resume-1") == "None"
        await one.guard.noted("saved")
        one.show(1, 1, None)
        assert await one.announced(2) == ("2", "v1,epoch=2,ran=1,local=110.100,shared=50")
        run_of(one, 2, Resume(110, local=True))
        assert await one.guard.noted("resume-2") == "110"
        assert (await one.logged("barrier_lifted"))["epoch"] == 1
        assert (await one.logged("barrier_lifted"))["resume_step"] == 110


async def test_a_step_from_which_two_runs_failed_is_unfit(tmp_path: Path) -> None:
    """So the group falls back, and does not loop."""
    async with pod(tmp_path, RESUMED + LATER + "sys.exit(3)\n" + SAVES.removeprefix(RESUMED) + RUN) as one:
        await one.announced(1)
        run_of(one, 1)
        await one.guard.noted("saved")
        one.show(1, 1, None)
        assert (await one.announced(2))[1].endswith(",local=110.100,shared=50")
        run_of(one, 2, Resume(110, local=True))
        assert await one.announced(3) == ("3", "v1,epoch=3,ran=2,local=110.100,shared=50")
        one.show(2, 2, None)
        run_of(one, 3, Resume(110, local=True))
        assert (await one.logged("step_unfit"))["step"] == 110
        assert await one.announced(4) == ("4", "v1,epoch=4,ran=3,local=100,shared=50,unfit=110")
        one.show(3, 3, None)
        run_of(one, 4, Resume(100, local=True))
        assert await one.guard.noted("resume-4") == "100"


async def test_the_head_start_of_a_new_process_tells_it_once(tmp_path: Path) -> None:
    """In depth `containers` each announcement is another process's head start."""
    async with pod(tmp_path, SAVES + RUN, depth="containers") as one:
        await one.announced(1)
        run_of(one, 1)
        await one.guard.noted("saved")
        one.show(1, 1, None)
        assert await one.agent.wait() == 88
        env = OF_SLOT | {"EPOCH_FILE": str(tmp_path / "epoch"), "LINK_FILE": str(tmp_path / "link")}
        async with process(environment(tmp_path, one.server, **env), *COMMAND) as agent:
            assert await one.announced(2) == ("2", "v1,epoch=2,ran=1,local=110.100,shared=50")
            assert agent.stderr is not None
            while b"announcement_accepted" not in await agent.stderr.readline():
                pass
            assert len(one.server.requests("PATCH")) == 2  # the head start's was the agent's


async def test_an_agent_in_the_workers_container_does_the_same(tmp_path: Path) -> None:
    """`inplace-agent run`; an outer environment's step is another run's."""
    views = Views()
    server = ScriptedServer(lists=[jobset(scopes=group())], watches=[(views.follow,)], answer=Answers())
    folder = {"EPOCH_FILE": str(tmp_path / "epoch"), "INPLACE_RESUME_STEP": "7"}
    async with supervised(tmp_path, SAVES + RUN, server=server, **OF_SLOT, **folder) as one:
        assert await one.announced() == 1
        views.show(0, 0, scopes=group(1, 0, Members(1, 3, seen=VERSION)))
        assert await one.noted("resume-1") == ["None"]
        await one.noted("saved")
        views.show(0, 0, scopes=group(1, 1))
        assert await one.announced() == 2
        assert one.server.annotations[1]["inplace.dev/ran"].endswith(",local=110.100,shared=50")
        views.show(0, 0, scopes=group(2, 1, Members(2, 3, seen=VERSION + 1, resume=Resume(50, local=False))))
        assert await one.noted("resume-2") == ["50"]


async def test_a_standby_learns_the_step_at_its_release(tmp_path: Path) -> None:
    """It was started when nobody knew it."""
    worker = "import inplace\ninplace.ready()\n" + SAVES + "for step in range(3): inplace.progress(step)\n" + RUN
    async with pod(tmp_path, worker, "--standby") as one:
        await one.announced(1)
        run_of(one, 1)
        await one.guard.noted("saved")
        await asyncio.sleep(1.0)
        one.show(1, 1, None)
        assert (await one.announced(2))[1].endswith(",local=110.100,shared=50")
        run_of(one, 2, Resume(110, local=True))
        assert await one.guard.noted("resume-2") == "110"


async def test_a_pod_whose_ranks_told_nothing_keeps_no_file(tmp_path: Path) -> None:
    """Its announcement is as it was."""
    async with pod(tmp_path, RESUMED + RUN) as one:
        await one.announced(1)
        run_of(one, 1)
        await one.guard.noted("resume-1")
        one.show(1, 1, None)
        assert await one.announced(2) == ("2", "v1,epoch=2,ran=1")
        await until(lambda: (tmp_path / "epoch").read_text() == "2", "the epoch")
        assert not (tmp_path / "epoch.saved").exists()


async def test_a_run_in_vain_is_counted_before_the_containers_start_anew(tmp_path: Path) -> None:
    """In depth `containers` the agent ends with the worker, and the next one goes on counting."""
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / ".pod.saved").write_text("v1 1 110.100 50\n")
    (tmp_path / "epoch").write_text("1")
    async with pod(tmp_path, RESUMED + "sys.exit(3)\n", depth="containers") as one:
        assert (await one.announced(1))[1] == "v1,epoch=2,ran=0,local=110.100,shared=50"
        one.show(2, 1, Members(2, 3, seen=VERSION, resume=Resume(110, local=True)))
        assert (await one.guard.finished())[0] == 3
        assert await one.agent.wait() != 0
        assert (tmp_path / "epoch.saved").read_text() == "v1 2 110.100 50 - 110 1"
