"""Run jobs beside a block of code, and end them with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from anyio import create_task_group


@asynccontextmanager
async def beside(*jobs: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run jobs until the block ends; the block's own exception leaves as it is.

    Raises:
        ExceptionGroup: a job failed, which ends the block.
    """
    failure = None
    async with create_task_group() as group:
        for job in jobs:
            group.start_soon(job)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a task group would wrap it
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
