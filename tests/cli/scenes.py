"""Groups in trouble on the simulated cluster, under virtual time, for the tests of the commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

from inplace.cli.connection import WHOLE_MAX, Connection
from inplace.cli.group.read import read_group
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.status.explain import read_facts
from inplace.cli.status.explanation import Explanation, explain
from inplace.common.kube.client import KubeClient
from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.cluster.cluster import Cluster, virtual_cluster
from tests.cli.injecting import example_of
from tests.common.kube.answers import refusal

SETTLED_S_MAX = 600.0  # virtual seconds; a lost node is given up after 340 s
Documents = list[KubeObject]


def documents(pods: int) -> Documents:
    """Return the example with `pods` Pods, in whose restarts kubelet takes part."""
    made = example_of(pods)
    jobset_of(made)["metadata"]["annotations"] = {wire.RESTART: wire.DEPTH_CONTAINERS}
    return made


def jobset_of(manifests: Documents) -> KubeObject:
    """Return the JobSet of the documents; the caller may change it."""
    return next(one for one in manifests if one["kind"] == "JobSet")


@asynccontextmanager
async def training(
    pods: int = 4, *, nodes: int | None = None, group: Documents | None = None, **changes: Any
) -> AsyncIterator[Cluster]:
    """Run a group, of other documents than the example's if given; `changes` are fields of its failure policy."""
    manifests = deepcopy(group or documents(pods))
    jobset_of(manifests)["spec"]["failurePolicy"] |= changes
    async with virtual_cluster(nodes=nodes or pods, pods_per_node=1) as cluster:
        await cluster.apply(manifests)
        await synced(cluster, 1, pods)
        yield cluster


def status(cluster: Cluster) -> dict[str, Any]:
    """Return the JobSet's status."""
    found: dict[str, Any] = cluster.jobset("train").get("status") or {}
    return found


def all_work(cluster: Cluster, pods: int) -> bool:
    """Return whether every worker is ready, and every sidecar: an agent is when its guard has started the worker."""
    kinds = ("containerStatuses", "initContainerStatuses")
    statuses = [
        [one for kind in kinds for one in pod.get("status", {}).get(kind) or ()] or [{}] for pod in cluster.pods()
    ]
    return sum(all(one.get("ready") for one in found) for found in statuses) == pods


async def until(cluster: Cluster, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, for a bounded time."""
    await cluster.until(holds, timeout_s=SETTLED_S_MAX)


async def synced(cluster: Cluster, epoch: int, pods: int = 4) -> None:
    """Wait until so many Pods work in an epoch."""
    await until(cluster, lambda: status(cluster).get("syncedEpoch") == epoch and all_work(cluster, pods))


def kill(cluster: Cluster) -> str:
    """Kill the worker of the first Pod; return the Pod's name."""
    name = str(cluster.pods()[0]["metadata"]["name"])
    cluster.kill_worker("default", name)
    return name


def crash(cluster: Cluster) -> str:
    """Kill the worker of the first Pod, and not its guard; return the Pod's name."""
    name = min(str(pod["metadata"]["name"]) for pod in cluster.pods())
    cluster.kill_worker("default", name, supervised=True)
    return name


def another(pods: int = 1, **metadata: Any) -> KubeObject:
    """Return the example's JobSet under the name `other`, which the caller may change."""
    made = deepcopy(jobset_of(documents(pods)))
    made["metadata"] |= {"name": "other"} | metadata
    return made


class Spy(InMemoryTransport):
    """A way to the cluster that notes the requests, and refuses those whose path has one of some words."""

    def __init__(self, server: ApiServer, *refused: str) -> None:
        super().__init__(server)
        self.asked: list[Request] = []
        self._refused = refused

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Answer, or refuse."""
        self.asked.append(request)
        if any(words in request.path for words in self._refused):
            return refusal(403, "Forbidden")
        return await super().request(request, timeout_s=timeout_s)

    def connection(self) -> Connection:
        """Return the commands' connection."""
        return Connection(KubeClient(self, user_agent="user", field_manager="user"), "default")


def connection(cluster: Cluster) -> Connection:
    """Return the commands' way to the cluster."""
    return Connection(cluster.client("user"), "default")


async def seen(cluster: Cluster, name: str = "train", *, whole_max: int = WHOLE_MAX) -> GroupState:
    """Return the view of `inplace status`; a group above `whole_max` Pods is large."""
    return group_state(*await read_group(replace(connection(cluster), whole_max=whole_max), name))


async def explained(cluster: Cluster, name: str = "train") -> Explanation:
    """Return the findings of `inplace explain`."""
    facts = await read_facts(connection(cluster), name)
    return explain(facts, now_s=cluster.clock.wall_s())
