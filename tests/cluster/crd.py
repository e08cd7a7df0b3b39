"""Install the CRD of deploy/crd on an API server, and wait until it is served."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import yaml

from common.kube.client import KubeClient
from common.kube.errors import AlreadyExists, NotFound, Throttled
from common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, JOBSETS

CRD = Path(__file__).parents[2] / "deploy" / "crd" / "jobsets.yaml"
SERVED_S_MAX = 30.0  # a real server takes about a second, more when the machine is busy
POLL_S = 0.1


async def install_crd(client: KubeClient) -> None:
    """Create the CRD, if it is not there, and return when JobSets can be listed."""
    with suppress(AlreadyExists):
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, None, yaml.safe_load(CRD.read_text()))
    async with asyncio.timeout(SERVED_S_MAX):
        while True:
            try:
                await client.list(JOBSETS)
                return
            except (NotFound, Throttled):  # 404 until it is established, 429 while its storage starts
                await asyncio.sleep(POLL_S)
