"""Wait for a component to become useful, and say why when it does not."""

import asyncio
import ssl
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from testbed.api_client import ApiClient, UnexpectedStatus
from testbed.component import POLL_S, Component

READY_TIMEOUT_S = 90.0
"""From exec to ready takes 3 s on two idle cores; the rest is for a machine busy with other tests."""

PROBE_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
"""For one probe. A server that accepts the connection but hangs is asked again until READY_TIMEOUT_S."""


async def wait_until_healthy(component: Component, url: str, ca: Path, needs: Sequence[Component] = ()) -> None:
    """Return when `component` answers 200 at `url`.

    Raises:
        ControlPlaneError: `component` or one that it `needs` exited, or READY_TIMEOUT_S is over.
    """
    tls = ssl.create_default_context(cafile=str(ca))
    deadline = time.monotonic() + READY_TIMEOUT_S
    seen = "no answer"
    async with aiohttp.ClientSession(timeout=PROBE_TIMEOUT) as session:
        while time.monotonic() < deadline:
            for each in (*needs, component):  # What it needs comes first: there is the cause, not the symptom.
                each.check_alive()
            try:
                async with session.get(url, ssl=tls) as answer:
                    if answer.ok:
                        return
                    seen = f"{answer.status} {await answer.text()}"
            except (aiohttp.ClientError, TimeoutError) as error:
                seen = repr(error)
            await asyncio.sleep(POLL_S)
    raise component.failure(f"expected {url} to say ok within {READY_TIMEOUT_S:.0f} s, last saw {seen}")


async def wait_until_found(component: Component, api: ApiClient, path: str) -> None:
    """Return when the API server has an object, or serves a kind, that a component makes.

    Raises:
        ControlPlaneError: the component exited, or has not made it in READY_TIMEOUT_S.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        component.check_alive()
        try:
            await api.get(path)
        except UnexpectedStatus as error:
            if error.status not in (404, 429):  # 429: the storage of a new kind starts
                raise
        else:
            return
        await asyncio.sleep(POLL_S)
    raise component.failure(f"expected {path} within {READY_TIMEOUT_S:.0f} s, saw none")
