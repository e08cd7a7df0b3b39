"""What is compared counts restarts in the ranks' lines; its manifests are the demo's, its places end one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
import yaml

from benchmarks import recovery
from benchmarks.systems import PLACE, PODS, STANDBY, SYSTEMS, Group, _for_measuring
from inplace.cli.demo.manifest import read_demo_manifest
from inplace.common.wire.mode import Mode
from inplace.simulator.cluster import reaper
from testbed.frameworks.manifests import MODES

FIRST = "rank=0 world=4 epoch=1 goes on from step 0\nstep=1 loss=0.3 epoch=1 rank=0\nstep=2 loss=0.2 epoch=1 rank=0\n"
SECOND = "Connection closed by peer\nrank=0 world=4 epoch=2 goes on from step 0\nstep=1 loss=0.3 epoch=2 rank=0\n"


@pytest.mark.asyncio
async def test_steps_count_from_the_last_resume_on(tmp_path: Path) -> None:
    """A rank that resumed twice counts twice, and its steps before the second time do not count."""
    log = tmp_path / "0.log"
    group = Group("", "", lambda: [[log], [tmp_path / "not there"]])
    log.write_text(FIRST)
    await group.reach(1, 2)
    assert (group.resumed, group.steps) == (1, 2)
    log.write_text(FIRST + SECOND)
    await group.reach(2, 1)
    assert (group.resumed, group.steps) == (2, 1)


@pytest.mark.asyncio
async def test_steps_of_a_container_that_was_restarted_do_not_count(tmp_path: Path) -> None:
    """The log of a rank's container before does not count among the steps after its last resume."""
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    group = Group("", "", lambda: [logs])
    for log, text in zip(logs, (FIRST, SECOND), strict=True):
        log.write_text(text)
    await group.reach(2, 1)
    assert (group.resumed, group.steps) == (2, 1)


@pytest.mark.asyncio
async def test_a_standby_that_became_a_rank_is_held_no_more(tmp_path: Path) -> None:
    """A spare's counts from the beginning, a member's from its last resume on."""
    member, spare = tmp_path / "0.log", tmp_path / "1.log"
    group = Group("", "", lambda: [[member], [spare]])
    ready = "standby_ready pid=7 rss_mb=1.5\n"
    member.write_text(ready + FIRST)
    spare.write_text(ready)
    await group.reach(1, 0, standbys=1)
    assert (group.held, group.standbys_mb) == (1, [1.5, 1.5])
    member.write_text(ready + FIRST + ready)
    await group.reach(1, 0, standbys=2)
    assert group.held == 2


@pytest.mark.asyncio
async def test_what_a_deleted_pod_printed_does_not_count(tmp_path: Path) -> None:
    """Only the other ranks' lines count, also while its folder is still there."""
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    group = Group("", "", lambda: [[log] for log in logs], deleted=logs[:1])
    for log, text in zip(logs, (FIRST, SECOND), strict=True):
        log.write_text(text)
    await group.reach(1, 1)
    assert (group.resumed, group.steps) == (1, 1)


def test_a_place_ends_with_all_that_it_started(tmp_path: Path) -> None:
    """The launcher and its child get SIGKILL, and those of another place do not."""
    logs, marker = [tmp_path / "0.log", tmp_path / "1.log"], uuid4().hex
    group = Group("", f"MARKER={marker}", lambda: [[log] for log in logs])
    started = []
    for log in logs:
        env = {"MARKER": marker, PLACE: str(log), "PATH": os.environ["PATH"]}
        started.append(subprocess.Popen(["sh", "-c", "sleep 60 & wait"], env=env))
    for log, text in zip(logs, ("", FIRST), strict=True):  # only the second place has a rank
        log.write_text(text)
    try:
        while len(reaper.marked(group.marker)) < 4:
            time.sleep(0.01)
        assert group.kill_place(Random(1)) == logs[1]
        assert started[1].wait(10) == -signal.SIGKILL
        while len(reaper.marked(group.marker)) > 2:
            time.sleep(0.01)
        assert started[0].poll() is None
    finally:
        reaper.kill(reaper.marked(group.marker))
        for process in started:
            process.wait(10)


@pytest.mark.parametrize(("option", "seen"), [("--systems", "torchrum"), ("--faults", "kil")])
def test_a_name_that_is_unknown_is_refused(
    option: str, seen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is measured, and the error names what there is."""
    monkeypatch.setattr("sys.argv", ["recovery", option, seen])
    with pytest.raises(SystemExit):
        recovery.main()
    assert f"{option}: expected names out of" in (told := capsys.readouterr().err)
    assert f"saw {seen}" in told


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("example", ["torch", "torchrun"])
def test_the_measured_manifest_has_one_rank_in_each_pod(tmp_path: Path, example: str, mode: Mode) -> None:
    """Four Pods, one rank in each, and the port that was asked for."""
    file = tmp_path / "manifest.yaml"
    file.write_text(_for_measuring(example, mode, 12345))
    manifest = read_demo_manifest(file, PODS, 1, mode)
    text = file.read_text()
    assert manifest.pods == PODS
    assert "12345" in text
    assert "29500" not in text
    assert "--nproc-per-node=2" not in text


def test_options_go_to_the_agent(tmp_path: Path) -> None:
    """They stand before the worker's own command."""
    jobset = list(yaml.safe_load_all(_for_measuring("torch", Mode.SUPERVISOR, 1, STANDBY)))[-1]
    (worker,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert worker["command"][:3] == ["inplace-agent", "run", "--standby"]


@pytest.mark.parametrize("framework", sorted(SYSTEMS))
def test_every_way_has_a_name_of_its_own(framework: str) -> None:
    """The first one is the baseline, and each standby is beside the same without one."""
    names = [system.key for system in SYSTEMS[framework]]
    assert len(set(names)) == len(names)
    assert {name.removesuffix("_standby") for name in names} <= {*names, "spare"}
