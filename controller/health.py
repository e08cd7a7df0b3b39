"""
Serve /healthz and /readyz.

Healthy means that the event loop answers. An unreachable API server does not make the controller unhealthy: a restart
would not help and would lose the caches. Ready means leading with full caches, or standing by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

from inplace.controller.serving.pages import Answer, Page


def probes(is_ready: Callable[[], str | None]) -> Mapping[str, Page]:
    """Return the pages that kubelet asks for; `is_ready` says None when ready, else why not."""

    async def healthz() -> Answer:
        return Answer(HTTPStatus.OK, b"ok")

    async def readyz() -> Answer:
        why_not = is_ready()
        if why_not is None:
            return Answer(HTTPStatus.OK, b"ok")
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, why_not.encode())

    return {"/healthz": healthz, "/readyz": readyz}
