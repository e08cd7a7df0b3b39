"""The command line on a real kube-apiserver: its requests, and the causes that it names."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from inplace.cli.connection import Target, connected
from inplace.cli.group.read import METADATA, read_group, read_pods
from inplace.cli.group.state import group_state
from inplace.cli.refusal import CliExit
from inplace.cli.status.timeline import restart_timeline
from inplace.cli.status.watch import watch_status
from inplace.common.wire import names as wire
from testbed.control_plane import ControlPlane
from testbed.group import Group, running_controller, running_group
from testbed.kube_client import install_crd, kube_client
from testbed.waiting import until

REPOSITORY = Path(__file__).parents[2]
SAID_S_MAX = 30.0
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def inplace(
    plane: ControlPlane, namespace: str, *arguments: str, kubeconfig: Path | None = None
) -> tuple[int, str, str]:
    """Run the command as a user does; return exit code, stdout, stderr."""
    file = str(kubeconfig or plane.kubeconfig)
    command = [sys.executable, "-m", "inplace.cli", *arguments, "--kubeconfig", file, "-n", namespace]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


async def test_a_restart_as_the_commands_tell_it(
    full_control_plane: ControlPlane, full_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status`, its watch, restart, explain and timeline show the same restart."""
    plane, namespace = full_control_plane, full_namespace
    async with running_controller(plane, namespace), running_group(plane, namespace) as group:
        await group.trains(1)
        target = Target(kubeconfig=str(plane.kubeconfig), namespace=namespace)
        async with connected(target) as there:
            whole = group_state(*await read_group(there, "train"))
            large = replace(there, whole_max=1)
            _, rows = await read_group(large, "train")
            metadata = (await read_pods(there, "train", METADATA)).pods
            watching = asyncio.create_task(watch_status(large, "train", "json"))
            await _said(capsys, 0)  # in the Table a Pod without a node counts as not announced
            code, out, err = await inplace(plane, namespace, "restart", "train", "--wait", "--timeout", "30")
            assert code == CliExit.DONE, err
            assert "every Pod is at epoch 2" in out
            await _said(capsys, 2)
            watching.cancel()
        assert (whole.arrived, whole.expected, dict(whole.scopes[0].epochs)) == (3, 3, {1: 3})
        assert {pod.slot for pod in rows} == {pod.slot for pod in metadata}  # in the Table slots come from Pods' names
        assert None not in {pod.slot for pod in rows}
        assert [pod.epoch for pod in metadata] == [1, 1, 1]
        code, out, err = await inplace(plane, namespace, "explain", "train", "-o", "json")
        assert code == CliExit.DONE, err
        told = json.loads(out)
        assert any("asked for by hand" in moment["text"] for moment in told["happened"])
        assert told["unread"] == []

        async with connected(target) as there:
            pods = (await read_pods(there, "train")).pods
            state = group_state(await group.jobset(), pods)
        timeline = restart_timeline(pods, state.last, now_s=0.0, rows_max=10)
        assert timeline is not None
        assert timeline.epoch == 2
        announced = [pod.metadata.managed_fields for pod in pods]
        assert all(any(one.manager == wire.FIELD_MANAGER_AGENT for one in found or ()) for found in announced)


async def _said(capsys: pytest.CaptureFixture[str], epoch: int) -> None:
    """Wait until the watch has printed that all three Pods are at an epoch."""

    def is_said() -> bool:
        lines = capsys.readouterr().out.splitlines()
        return any(json.loads(line)["scopes"][0]["podsByEpoch"] == {str(epoch): 3} for line in lines)

    await until(is_said, f"three Pods at epoch {epoch}", timeout_s=SAID_S_MAX)


async def test_an_unschedulable_group_is_named(full_control_plane: ControlPlane, full_namespace: str) -> None:
    """Without a node every way of reading shows the real scheduler's message for every Pod."""
    plane, namespace = full_control_plane, full_namespace
    async with kube_client(plane.kubeconfig) as client:
        await install_crd(client)
        async with running_controller(plane, namespace):
            group = Group(plane, namespace, client, upstream_env=False)
            await group.apply(pods=2, restarts_max=1, divided=False)

            async def causes() -> dict[str, str]:
                code, out, err = await inplace(plane, namespace, "explain", "train", "-o", "json")
                assert code == CliExit.DONE, err
                return {cause["kind"]: cause["text"] for cause in json.loads(out)["causes"]}

            async def named() -> bool:
                return "2 Pods: Pending: unschedulable: no nodes available" in (await causes()).get("Unschedulable", "")

            await group.until(named, "the scheduler's words")
            code, out, err = await inplace(plane, namespace, "status", "train")
            assert code == CliExit.DONE, err
            assert "Starting" in out
            assert "no nodes available to schedule pods" in out


async def test_reaching_max_restarts_is_named(full_control_plane: ControlPlane, full_namespace: str) -> None:
    """When no restart is allowed and a worker fails, explain names maxRestarts."""
    plane, namespace = full_control_plane, full_namespace
    async with running_controller(plane, namespace), running_group(plane, namespace, restarts_max=0) as group:
        await group.trains(1)
        next(iter(group.pods.values())).kill()

        async def failed() -> bool:
            return bool(((await group.jobset()).get("status") or {}).get("terminalState"))

        await group.until(failed, "the JobSet to fail")
        code, out, err = await inplace(plane, namespace, "explain", "train")
        assert code == CliExit.DONE, err
        assert "maxRestarts is 0, and one more" in out


async def test_what_is_not_there_and_what_is_not_allowed(full_control_plane: ControlPlane, full_namespace: str) -> None:
    """Missing objects and rights give the real server's message and the exit codes of docs/cli.md."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace):
        code, _, err = await inplace(plane, namespace, "status", "trian")
        assert (code, "did you mean train?" in err) == (CliExit.NOT_FOUND, True), err
        code, _, err = await inplace(plane, "default", "explain", "train")
        assert (code, namespace in err) == (CliExit.NOT_FOUND, True), err
        agent = await plane.service_account_kubeconfig(namespace, "inplace-agent")
        code, _, err = await inplace(plane, namespace, "status", "train", kubeconfig=agent)
        assert code == CliExit.NOT_ALLOWED, err
        assert 'cannot list resource "pods"' in err
