"""
The agent that a user would write in an afternoon with kubernetes_asyncio; agent_start and herd compare ours with it.

It follows the pseudo code of KEP-467's design: read the JobSet, patch the Pod, watch the JobSet, exit or lift. It is
written in the obvious way and not made slow.
"""

from __future__ import annotations

import asyncio
import os
import sys

from kubernetes_asyncio import client, config, watch

GROUP, VERSION, PLURAL = "jobset.x-k8s.io", "v1alpha2", "jobsets"
EPOCH = "jobset.sigs.k8s.io/epoch"


async def run() -> int:
    """Announce this Pod's epoch, then wait for the JobSet; return the exit code."""
    namespace, jobset, pod = (os.environ[name] for name in ("NAMESPACE", "JOBSET_NAME", "POD_NAME"))
    await config.load_kube_config(os.environ["KUBECONFIG"])
    async with client.ApiClient() as api:
        return await follow(api, namespace, jobset, pod)


async def follow(api: client.ApiClient, namespace: str, jobset: str, pod: str) -> int:
    """Do what `run` says, over one client."""
    custom = client.CustomObjectsApi(api)
    parent = await custom.get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, jobset)
    epoch = parent.get("status", {}).get("syncedEpoch", 0) + 1
    patch = {"metadata": {"annotations": {EPOCH: str(epoch)}}}
    await client.CoreV1Api(api).patch_namespaced_pod(pod, namespace, patch)
    async with watch.Watch().stream(
        custom.list_namespaced_custom_object,
        GROUP,
        VERSION,
        namespace,
        PLURAL,
        field_selector=f"metadata.name={jobset}",
    ) as events:
        async for event in events:
            status = event["object"].get("status", {})
            if epoch <= status.get("deprecatedEpoch", 0):
                return 88
            if epoch == status.get("syncedEpoch", 0):
                print("barrier lifted", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(run()))
