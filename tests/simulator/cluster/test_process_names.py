"""The process runtime has no DNS: the coordinator's address stands for its name in the arguments of a command."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.common.wire import names as wire
from inplace.simulator.cluster.pod_spec import parse_pod
from inplace.simulator.cluster.process_runtime import ProcessRuntime
from inplace.simulator.cluster.runtime import ContainerRun, Sandbox

TIMEOUT_S = 20.0


def pod(index: int) -> dict[str, Any]:
    """Return Pod `index` of a JobSet whose coordinator is Pod 0."""
    meta = {"name": f"g-w-0-{index}-x", "namespace": "default", "uid": f"{index}" * 8}
    meta |= {"annotations": {wire.COORDINATOR: "g-w-0-0.g"}}  # type: ignore[dict-item]
    spec = {"hostname": f"g-w-0-{index}", "subdomain": "g", "containers": [{"name": "worker", "image": "none"}]}
    return {"metadata": meta, "spec": spec}


async def said(runtime: ProcessRuntime, which: dict[str, Any], sandbox: Sandbox, *command: str) -> str:
    """Run a command in a Pod's container; return what it printed."""
    (worker,) = parse_pod(which).containers
    process = await runtime.start(ContainerRun(which, sandbox, worker, command, sandbox.base_env, 0))
    async with LoopClock().timeout(TIMEOUT_S):
        await process.wait()
    log = runtime.open_log(sandbox.uid, "worker")
    assert log is not None
    with closing(log):
        return b"".join(piece.text for piece in log.pieces()).decode()


@pytest.mark.asyncio
async def test_an_argument_has_the_coordinators_address_before_and_after_its_pod_is_there(tmp_path: Path) -> None:
    """Pod 1 starts first and learns the address that Pod 0 then has; Pod 0 has it again after it was replaced."""
    runtime = ProcessRuntime(tmp_path, clock=LoopClock(), credentials=lambda _: ("", ""), tell=lambda _: None)
    try:
        other = await runtime.create_sandbox(pod(1))
        told = await said(runtime, pod(1), other, "echo", "--master-addr=g-w-0-0.g", "g-w-0-1.g")
        first = await runtime.create_sandbox(pod(0))
        assert told == f"--master-addr={first.pod_ip} g-w-0-1.g\n"
        assert first.pod_ip != other.pod_ip
        await runtime.remove_sandbox(first)
        assert (await runtime.create_sandbox(pod(0))).pod_ip == first.pod_ip
    finally:
        await runtime.close()


@pytest.mark.asyncio
async def test_an_argument_has_the_address_of_a_coordinator_that_was_there_before(tmp_path: Path) -> None:
    """A name is first seen when its Pod already has an address: arguments get that one."""
    runtime = ProcessRuntime(tmp_path, clock=LoopClock(), credentials=lambda _: ("", ""), tell=lambda _: None)
    try:
        first = await runtime.create_sandbox(pod(0))
        assert await said(runtime, pod(0), first, "echo", "g-w-0-0.g") == f"{first.pod_ip}\n"
    finally:
        await runtime.close()
