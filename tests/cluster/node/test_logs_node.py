"""`inplace logs` of real containers: kubelet keeps, cuts and loses logs as it does for every user."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections import Counter
from typing import Any

import pytest

from inplace.common.kube.errors import BadRequest
from inplace.common.kube.resources import PODS, ROLE_BINDINGS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.container_log import PIECE_BYTES_MAX
from testbed.kube_client import create
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.waiting import until
from tests.cli.command import REPOSITORY, command, run

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZE = 3
LONG = 40_000  # bytes of a line, which the runtime cuts into pieces of 16 KiB
SAYS = (  # the long line comes late: kubelet makes two of it where a line of a supervisor stands between its pieces
    "import os, time; print('says', os.environ['INPLACE_EPOCH'], flush=True); time.sleep(1); "
    f"print('x' * {LONG}, flush=True); os.execv('/usr/bin/python3', ['/usr/bin/python3', '-IS', '/worker.pyc'])"
)


READS = [
    {"apiGroups": [wire.API_GROUP], "resources": ["jobsets"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
]
BINDING: KubeObject = {
    "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": "Role", "name": "reads"},
    "subjects": [{"apiGroup": ROLE_BINDINGS.group, "kind": "User", "name": "nobody"}],
}


def talk(jobset: KubeObject) -> None:
    """Let each worker print its epoch, and a long line."""
    (worker,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    before = worker["command"][: worker["command"].index("--") + 1]
    worker["command"] = [*before, "/usr/bin/python3", "-IS", "-c", SAYS]
    worker.pop("args", None)


def words(group: Group, *options: str) -> list[str]:
    """Return the command line."""
    where = ("--kubeconfig", str(group.cluster.plane.kubeconfig), "-n", group.namespace)
    return ["logs", "train", *where, *options]


async def logs(group: Group, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return await asyncio.to_thread(run, *words(group, *options))


def first_failure(group: Group) -> dict[str, Any]:
    """Return what the status says of the first failure."""
    last = (group.history.jobset().get("status") or {}).get(wire.LAST_GROUP_RESTART) or {}
    found: dict[str, Any] = last.get("firstFailure") or {}
    return found


@pytest.mark.parametrize("mode", ["containers", "process", "supervisor"])
async def test_the_last_words_of_a_killed_worker(cluster: Cluster, mode: str) -> None:
    """They are shown where its container stayed, and where kubelet started it anew."""
    async with running_group(cluster, mode, pods=SIZE, change=talk) as group:
        await group.until_runs(1)
        follow = command(*words(group, "-f", "--since", "1h"))
        following = await asyncio.create_subprocess_exec(*follow, cwd=REPOSITORY, stdout=subprocess.PIPE)
        await asyncio.sleep(8)  # it has begun
        victim = group.pods()[1]["metadata"]["name"]
        await group.kill(1, "worker")
        await group.until_runs(2)
        await until(lambda: first_failure(group), "the first failure in the status", timeout_s=SETTLED_S_MAX)
        await asyncio.sleep(5)
        failed, first, second = [await logs(group, *options) for options in ((), ("--epoch", "1"), ("--epoch", "2"))]
        following.terminate()
        followed = (await following.communicate())[0].decode()
    says = Counter(re.findall(r"  (says \d)$", followed, re.MULTILINE))
    assert says == {"says 1": SIZE, "says 2": SIZE}, "what is followed is there once, whatever kubelet removes"
    assert followed.count(" bytes left out]") == 2 * SIZE
    assert victim in failed.stdout.splitlines()[0]
    assert second.stdout.count("  says 2\n") == SIZE
    assert "says 1" not in second.stdout
    assert "says 2" not in failed.stdout + first.stdout
    assert failed.stderr == ""
    assert f"rank 1 {victim}  says 1\n" in failed.stdout
    assert first.stdout.count("  says 1\n") == SIZE, "where kubelet removed the containers, their agents tell it"


async def test_kubelet_answers_as_the_simulator_does(cluster: Cluster) -> None:
    """Stamps of nine digits, a time without its fraction, a tail that counts pieces, bytes, no previous container."""
    async with running_group(cluster, "process", pods=1, change=talk) as group:
        await group.until_runs(1)
        name = group.pods()[0]["metadata"]["name"]
        path = PODS.path(group.namespace, name, subresource="log")

        async def answer(query: str) -> str:
            raw = await cluster.client.raw("GET", f"{path}?container=worker&{query}", expects_json=False)
            return raw.body.decode()

        await until(lambda: " stdout F x" in group.printed("worker"), "its last piece", timeout_s=SETTLED_S_MAX)
        stamped = (await answer("timestamps=true")).splitlines()
        stamps = [line.partition(" ")[0] for line in stamped]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", stamp) for stamp in stamps), stamps
        assert [len(line.partition(" ")[2]) for line in stamped][-1] == LONG
        assert len(await answer("limitBytes=12")) == 12
        late = f"{stamps[-1][:19]}.999999999Z"
        assert (await answer(f"timestamps=true&sinceTime={late}")).splitlines()[-1] == stamped[-1]
        assert len(await answer("tailLines=1")) == LONG % PIECE_BYTES_MAX + 1
        with pytest.raises(BadRequest) as refused:
            await answer("previous=true")
        assert refused.value.message == f'previous terminated container "worker" in pod "{name}" not found'


async def test_a_kubelet_that_is_down_and_rights_that_are_missing(cluster: Cluster) -> None:
    """The command says what is missing, and ends within its bound."""
    async with running_group(cluster, "process", pods=SIZE, change=talk) as group:
        await group.until_runs(1)
        nobody = group.cluster.plane.client_kubeconfig("nobody", "nobodies")
        head = {"apiVersion": ROLE_BINDINGS.api_version, "metadata": {"name": "reads", "namespace": group.namespace}}
        role, binding = head | {"kind": "Role", "rules": READS}, head | {"kind": "RoleBinding"} | BINDING
        await create(cluster.client, [role, binding])
        denied = await logs(group, "--kubeconfig", str(nobody))
        await cluster.nodes[0].stop_kubelet(kill=True)
        try:
            down = await logs(group)
        finally:
            await cluster.nodes[0].start_kubelet()
    assert (denied.returncode, down.returncode) == (4, 1)
    assert "ask for the right `get` on `pods/log`" in denied.stderr
    assert "inplace logs: not read: " in down.stderr
