"""
Serve /metrics: rendered at most once a second for all clients, in slices between which the loop does its work.

A thousand JobSets are 16,000 series and a tenth of a second of CPU; ten times as many take ten times as long. Rendered
in one go they would pause the reconciling loop; in a thread the ledgers would change meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Final

from inplace.common.kube.clock import Clock
from inplace.controller.serving.pages import Answer, Page

KEPT_S: Final = 1.0  # an exposition is served this long; the shortest interval at which anybody scrapes
SLICE_S: Final = 0.005  # of rendering, then a turn of the loop; restarts wait that much longer per turn
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Scrapes:
    """The newest exposition.

    Rendering is a task of its own: a client that leaves, or loses its seat, does not make it begin anew.

    Args:
        pieces: yields it anew, in pieces that take well under a millisecond each.
    """

    def __init__(self, pieces: Callable[[], Iterator[str]], clock: Clock) -> None:
        self._pieces = pieces
        self._clock = clock
        self._wanted = asyncio.Event()
        self._rendered = asyncio.Event()  # of the rendering to come
        self._text = b""
        self._until_s = float("-inf")

    def pages(self) -> Mapping[str, Page]:
        """Return the page."""
        return {"/metrics": self._metrics}

    async def run(self) -> None:
        """Render at each request, until cancelled."""
        while True:
            await self._wanted.wait()
            self._text = await self._render()
            self._until_s = self._clock.monotonic_s() + KEPT_S
            self._wanted.clear()
            rendered, self._rendered = self._rendered, asyncio.Event()
            rendered.set()

    async def _metrics(self) -> Answer:
        if self._clock.monotonic_s() >= self._until_s:
            self._wanted.set()
            await self._rendered.wait()
        return Answer(HTTPStatus.OK, self._text, METRICS)

    async def _render(self) -> bytes:
        now_s, parts = self._clock.monotonic_s, list[bytes]()
        ends_s = now_s() + SLICE_S
        for piece in self._pieces():
            parts.append(piece.encode())
            if now_s() >= ends_s:
                await self._clock.sleep(0)
                ends_s = now_s() + SLICE_S
        return b"".join(parts)
