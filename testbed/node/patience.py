"""Wait until something becomes true, and report the last state if it does not."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

POLL_S: Final = 0.02


async def until(
    holds: Callable[[], Any | Awaitable[Any]], what: str, *, timeout_s: float, also: Callable[[], object] = str
) -> None:
    """
    Return when `holds()` (plain or async) is true.

    Raises:
        AssertionError: it is not within `timeout_s`; the message ends with what `also()` returns.
    """
    until_s = time.monotonic() + timeout_s
    while True:
        answer = holds()
        if await answer if asyncio.iscoroutine(answer) else answer:
            return
        if time.monotonic() > until_s:
            raise AssertionError(f"expected within {timeout_s:g} s: {what}; saw {also()}")
        await asyncio.sleep(POLL_S)
