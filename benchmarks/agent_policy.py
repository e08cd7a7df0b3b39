"""
Measure the API server's CPU for one announcement, with the agents' admission policy and without.

    python -m benchmarks.agent_policy [--patches 500] [--rounds 5] [--json]

One Pod, one agent with a bound token, one announcement after the other, each an epoch higher, on a real kube-apiserver.
Rounds with and without the policy alternate; the median of a kind is printed. CPU is the server's process, user and
system, so a busy machine changes little. It includes TLS, authentication, RBAC and the write to etcd's client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from statistics import median
from typing import Final

from inplace.agent.config import AgentConfig
from inplace.agent.jobset_requests import announcement_request
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from tests.cluster.agent_scene import LABELLING, Scene, agent_scene
from tests.cluster.test_admission_real import ADMISSION, install_policies, until
from tests.deploy.admission import policies
from tests.deploy.agent_attempts import OWN, POLICY

WARMUP: Final = 50  # announcements before the first round: caches, connections, compiled expressions
BINDING: Final = f"{ADMISSION}/validatingadmissionpolicybindings/{POLICY}"


async def set_policy(scene: Scene, installed: bool) -> None:
    """Bind the policy or not, and return when the server acts on it."""
    if installed:
        await install_policies(
            scene.admin, [each for each in policies("agents.yaml") if each["kind"].endswith("Binding")]
        )
    else:
        await scene.admin.delete(BINDING)

    async def acts() -> bool:
        return (POLICY in (await scene.answer(LABELLING)).message) == installed

    await until(acts)


async def announce(scene: Scene, epochs: range) -> float:
    """Announce each epoch once; return the server's CPU seconds."""
    config = AgentConfig(scene.namespace, OWN, "train", pod_uid=scene.uid)
    before_s = scene.plane.apiserver_cpu_seconds()
    for epoch in epochs:
        request = announcement_request(config, epoch)
        path, kind = request.path, request.headers["content-type"]
        await scene.clients["own"].text("PATCH", path, body=json.loads(request.body), content_type=kind)
    return scene.plane.apiserver_cpu_seconds() - before_s


async def measure(patches: int, rounds: int) -> dict[str, float]:
    """Return milliseconds of CPU for one announcement, by whether the policy is bound."""
    async with ControlPlane(find_binaries()) as plane, agent_scene(plane) as scene:
        epoch = 10
        await announce(scene, range(epoch, epoch := epoch + WARMUP))
        seen: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * rounds):
            installed = number % 2 == 0
            if number:
                await set_policy(scene, installed)
            cpu_s = await announce(scene, range(epoch, epoch := epoch + patches))
            seen[installed].append(1000 * cpu_s / patches)
    with_ms, without_ms = median(seen[True]), median(seen[False])
    return {"with_policy_ms": with_ms, "without_policy_ms": without_ms, "policy_ms": with_ms - without_ms}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patches", type=int, default=500, help="announcements in a round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(options.patches, options.rounds))
    if options.json:
        print(json.dumps(found))
        return
    print(
        "CPU of kube-apiserver for one announcement: {without_policy_ms:.2f} ms without the policy, "
        "{with_policy_ms:.2f} ms with it, {policy_ms:+.2f} ms".format(**found)
    )


if __name__ == "__main__":
    main()
