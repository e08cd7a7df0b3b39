"""
Let an embedded API server judge a JobSet by our CRD and policies, for users without a cluster.

It is the simulator's server with deploy/crd and deploy/admission: types, names, references, misspelt fields, CEL. Of a
JobSet that it takes it also judges one Job of each replicatedJob, as the controller would make it: on a cluster, only
the JobSet's Events say that the API refuses its Jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from random import Random

from inplace.cli.lint.admission import refusals_of_jobs, refusals_of_jobset
from inplace.common.injection.finding import Finding
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.cluster.manifests import admission_policies, custom_resource_definitions


def judge(jobsets: Sequence[KubeObject]) -> list[list[Finding]]:
    """Return why our API would refuse each JobSet; nothing is stored anywhere."""
    return asyncio.run(_judge(jobsets))


async def _judge(jobsets: Iterable[KubeObject]) -> list[list[Finding]]:
    server = ApiServer(clock=LoopClock(), rng=Random(0))
    server.load([*custom_resource_definitions(), *admission_policies()])
    client = KubeClient(InMemoryTransport(server), user_agent="inplace-lint", field_manager="inplace-lint")
    found = []
    for jobset in jobsets:
        placed = jobset | {"metadata": (jobset.get("metadata") or {}) | {"namespace": "default"}}
        refused = await refusals_of_jobset(client, placed, "default")
        found.append(refused or [finding async for finding in refusals_of_jobs(client, placed)])
    return found
