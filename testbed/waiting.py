"""Wait for a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from inplace.common.kube.errors import NotFound

PATIENCE_S = 30.0  # what takes milliseconds here takes seconds beside other tests; longer means that it hangs
POLL_S = 0.02


async def eventually(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Wait until a look returns what is wanted; a look at what is not there yet finds the API server's NotFound.

    Raises:
        AssertionError: it does not in `PATIENCE_S` seconds; the last look is in the message.
    """
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            seen = await look()
        except NotFound as error:
            seen = error
        if seen == wanted:
            return
        if time.monotonic() > until_s:
            raise AssertionError(f"expected {wanted!r}, still saw {seen!r} after {PATIENCE_S:g} s")
        await asyncio.sleep(POLL_S)
