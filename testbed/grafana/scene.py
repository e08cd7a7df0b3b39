"""
A demo with failures that a real Prometheus scrapes, to try the dashboards on.

The embedded cluster with the real controller and real agents: JobSet train loses workers and a Pod, hangs once, is
restarted by hand, and finds a node bad; JobSet wide waits for a Pod that fits nowhere. Beside it, on request, a real
kube-apiserver with deploy/apf and a small herd that lists, patches and watches, for the panels about the API server.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grafana.build import RULES
from grafana.herd import PRIORITY, SERVER
from inplace import examples
from inplace.cli.demo.manifest import read_demo_manifest
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.runtime import measure_pauses
from inplace.controller.serving.pages import PageServer
from inplace.simulator.cluster.cluster import Cluster
from testbed.grafana.api_server import herd
from testbed.grafana.prometheus import Prometheus, prometheus
from testbed.ports import LOOPBACK, free_ports

PODS_OF_TRAIN: Final = 4
SCRAPE_S: Final = 1  # Prometheus reads durations with a unit
STEP_S_MAX: Final = 120.0  # a start or a restart of four Pods takes some seconds; the machine may be busy
TRAINS_S: Final = 6.0  # between failures, so that a rate has samples on both sides
AGENT_PORT: Final = 8080
ESCALATION: Final = "InPlace=8"  # room for every failure of the scene, so that each uses it
BAD_NODES: Final = "2"  # the second failure of the first Pod's worker
STALL_AFTER_S: Final = 10.0  # longer than a step on a busy machine
TRAIN: Final = Path(examples.__file__).parent / "train.yaml"


@dataclass(frozen=True, slots=True)
class Played:
    """A scene that was played.

    Args:
        start_s, end_s: Unix time of its begin and end.
        holds: reasons for an empty panel that hold here; a panel that is empty for another reason is a fault.
        jobset: the chosen JobSet at the top of a board.
    """

    prometheus: Prometheus
    start_s: float
    end_s: float
    holds: frozenset[str] = frozenset()
    jobset: str = ".*"

    @property
    def range_s(self) -> int:
        """Return the scene's duration in seconds."""
        return int(self.end_s - self.start_s) + 1


@asynccontextmanager
async def scene(program: str, say: Callable[[str], None], *, with_api_server: bool) -> AsyncIterator[Played]:
    """Play the scene; its programs run until the block ends.

    Args:
        program: Prometheus.
        say: called with a line for each step.
        with_api_server: beside a real kube-apiserver, which is built when it is not cached.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inplace-prometheus-")))
        cluster = await stack.enter_async_context(
            Cluster(nodes=3, pods_per_node=PODS_OF_TRAIN, runtime="process", controller="coroutine")
        )
        jobs = [
            {"job_name": "inplace-controller", "static_configs": [{"targets": [await _expose(cluster, stack)]}]},
            {"job_name": "inplace-agents", "file_sd_configs": [{"files": [str(folder / "agents.json")]}]},
        ]
        if with_api_server:
            say("a real kube-apiserver with deploy/apf")
            jobs.append(await stack.enter_async_context(herd()))
        shutil.copy(RULES, folder)
        config = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
            "rule_files": [str(folder / RULES.name)],
            "scrape_configs": jobs,
        }
        running = await stack.enter_async_context(prometheus(program, folder, config))
        start_s = time.time()
        await _play(cluster, folder / "agents.json", say)
        holds = () if with_api_server else (SERVER, PRIORITY)
        yield Played(running, start_s, time.time(), frozenset(holds))


async def _expose(cluster: Cluster, stack: AsyncExitStack) -> str:
    """Serve the metrics of the cluster's controller; return where."""
    controller = cluster.controller
    assert controller is not None
    (port,) = free_ports(1)
    scrapes = controller.scrapes
    server = PageServer(LOOPBACK, port, scrapes.pages(), cluster.clock)
    pauses = measure_pauses(cluster.clock, controller.metrics.loop_pause_seconds.observe)
    for work in (server.run(), scrapes.run(), pauses):
        stack.callback(asyncio.create_task(work).cancel)
    return f"{LOOPBACK}:{port}"


async def _play(cluster: Cluster, agents: Path, say: Callable[[str], None]) -> None:
    manifest = read_demo_manifest(TRAIN, PODS_OF_TRAIN, len(FAILURES), None, STALL_AFTER_S)
    train = manifest.jobset
    train["metadata"]["annotations"] |= {wire.ESCALATION: ESCALATION, wire.NODES: BAD_NODES}
    await cluster.apply(manifest.documents)
    say(f"JobSet train starts with {PODS_OF_TRAIN} Pods")
    await _trains(cluster, 1)
    await cluster.apply([_wide(train)])
    say("JobSet wide waits for a Pod that fits nowhere")
    _write_targets(cluster, agents)
    for epoch, (what, fail) in enumerate(FAILURES, 2):
        await asyncio.sleep(TRAINS_S)
        say(what)
        await fail(cluster)
        await _trains(cluster, epoch)
        _write_targets(cluster, agents)
    await asyncio.sleep(TRAINS_S)


async def _trains(cluster: Cluster, epoch: int) -> None:
    def holds() -> bool:
        return bool((cluster.jobset("train").get("status") or {}).get("syncedEpoch", 0) >= epoch)

    try:
        await cluster.until(holds, timeout_s=STEP_S_MAX)
    except TimeoutError:
        status = cluster.jobset("train").get("status")
        raise RuntimeError(f"expected train at epoch {epoch} within {STEP_S_MAX:g} s, saw {status}") from None


def _train_pods(cluster: Cluster) -> list[str]:
    names = sorted(pod["metadata"]["name"] for pod in cluster.pods())
    return [name for name in names if name.startswith("train-")]


async def _kill_first(cluster: Cluster) -> None:
    cluster.kill_worker("default", _train_pods(cluster)[0], supervised=True)


async def _stop_last(cluster: Cluster) -> None:
    pod = _train_pods(cluster)[-1]
    cluster.kill_worker("default", pod, signal_number=signal.SIGSTOP, supervised=True)


async def _delete_pod(cluster: Cluster) -> None:
    await cluster.client().delete(PODS, "default", _train_pods(cluster)[1])


async def _ask(cluster: Cluster) -> None:
    patch = {"metadata": {"annotations": {wire.RESTART_REQUESTED: "by-hand"}}}
    await cluster.client().patch(JOBSETS, "default", "train", patch)


FAILURES: Final = (
    ("the worker of the first Pod is killed", _kill_first),
    ("the worker of the last Pod is stopped, and hangs", _stop_last),
    ("a Pod is deleted", _delete_pod),
    ("somebody asks for a restart", _ask),
    ("the worker of the first Pod is killed once more: its node is bad", _kill_first),
)


def _wide(train: KubeObject) -> KubeObject:
    """Return the JobSet again, with a replicatedJob that no node can take."""
    wide = deepcopy(train)
    wide["metadata"]["name"] = "wide"
    spec = wide["spec"]
    spec.pop("coordinator", None)
    fits = spec["replicatedJobs"][0]
    fits["template"]["spec"] |= {"parallelism": 1, "completions": 1}
    nowhere = deepcopy(fits) | {"name": "special"}
    nowhere["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"accelerator": "none-here"}
    spec["replicatedJobs"].append(nowhere)
    return wide


def _write_targets(cluster: Cluster, path: Path) -> None:
    """Tell Prometheus where the agents are, as a PodMonitor does."""
    addresses = [pod.get("status", {}).get("podIP") for pod in cluster.pods()]
    targets = [f"{address}:{AGENT_PORT}" for address in addresses if address]
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps([{"targets": targets}]))
    fresh.replace(path)  # Prometheus never reads half a file
