"""
Settings for all tests: their results must not depend on the machine.

The profile sets the number of a property's examples: `make test` draws few, `make test-sim` many, both the same each
time. `make soak` draws others each time and prints how to reproduce a failure.
"""

from __future__ import annotations

import gc
import inspect
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest
from hypothesis import settings

from inplace.simulator.cluster.virtual_time import run

# No deadline per example: other programs use the machine too.
settings.register_profile("quick", deadline=None, derandomize=True, database=None, max_examples=25)
settings.register_profile("thorough", deadline=None, derandomize=True, database=None, max_examples=200)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=10_000)
settings.load_profile("quick")

# A shell that starts the tests in the background makes them and their processes ignore SIGINT and SIGQUIT.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# What the collection makes stays until the end: garbage collection need not look at it, neither now nor at each test.
gc.disable()


def pytest_collection_finish() -> None:
    """Leave all that there is out of garbage collection: it then takes 4 % of a test under virtual time, not 8 %."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the coroutine of a test with the mark `virtual_time` under simulated time."""
    function = pyfuncitem.obj
    if pyfuncitem.get_closest_marker("virtual_time") is None or not inspect.iscoroutinefunction(function):
        return None
    run(_play(function, {name: pyfuncitem.funcargs[name] for name in inspect.signature(function).parameters}))
    return True


async def _play(function: Callable[..., Awaitable[None]], arguments: Mapping[str, Any]) -> None:
    """Call a test inside those of its fixtures that are asynchronous context managers."""
    async with AsyncExitStack() as stack:
        entered = {
            name: await stack.enter_async_context(value) if isinstance(value, AbstractAsyncContextManager) else value
            for name, value in arguments.items()
        }
        await function(**entered)
