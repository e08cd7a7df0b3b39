"""Wait for a cluster or a process: tell the last look if what is awaited does not come; kill what does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from inplace.common.kube.errors import NotFound

PATIENCE_S = 60.0  # what takes milliseconds here takes seconds beside other tests; longer means that it hangs
POLL_S = 0.02


async def until(
    look: Callable[[], Any], what: str, *, timeout_s: float = PATIENCE_S, also: Callable[[], Any] = str
) -> Any:
    """Return the first true answer of a look.

    Args:
        look: plain or async.
        what: is awaited.
        timeout_s: of the running loop's time, which may be virtual.
        also: plain or async; what it returns ends the message.

    Raises:
        AssertionError: no true answer came in time.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + timeout_s
    while not (seen := await _answer(look)):
        if loop.time() > until_s:
            raise AssertionError(f"expected within {timeout_s:g} s: {what}; saw {seen!r} {await _answer(also)}")
        await asyncio.sleep(POLL_S)
    return seen


async def eventually(look: Callable[[], Any], wanted: Any) -> None:
    """Wait until a look returns what is wanted; a look at what is not there yet finds the API server's NotFound.

    Raises:
        AssertionError: it does not in time; the last look is in the message.
    """
    seen: Any = None

    async def is_wanted() -> bool:
        nonlocal seen
        try:
            seen = await _answer(look)
        except NotFound as error:
            seen = error
        return bool(seen == wanted)

    await until(is_wanted, repr(wanted), also=lambda: repr(seen))


async def until_ended(process: asyncio.subprocess.Process, within_s: float) -> None:
    """Return when a process that was told to end has ended; kill one that takes longer."""
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _answer(ask: Callable[[], Any]) -> Any:
    answer = ask()
    return await answer if isawaitable(answer) else answer
