"""The replacements of asyncio's TaskGroup and timeout below Python 3.11 behave like the originals for the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from inplace.common.bare import py310

pytestmark = pytest.mark.asyncio

groups = pytest.mark.parametrize("group", [asyncio.TaskGroup, py310.TaskGroup])
timeouts = pytest.mark.parametrize("timeout", [asyncio.timeout, py310.Timeout])


class ChildError(Exception):
    """What a child raises."""


async def raises() -> None:
    """Raise ChildError after other tasks had a turn."""
    await asyncio.sleep(0)
    raise ChildError


async def error_of(block: Coroutine[Any, Any, None]) -> BaseException | None:
    """Return a block's exception, taken out of its exception group if there is one."""
    try:
        await block
    except ChildError as error:
        return error
    except ExceptionGroup as error:
        return error.exceptions[0]
    return None


@groups
async def test_a_group_waits_for_its_children(group: Any) -> None:
    """The block ends when all children have ended, also those that children started."""
    async with group() as tasks:

        async def parent() -> int:
            grandchildren.append(tasks.create_task(asyncio.sleep(0, 2)))
            return 1

        grandchildren: list[asyncio.Task[int]] = []
        child = tasks.create_task(parent(), name="child")
    assert (child.result(), grandchildren[0].result(), child.get_name()) == (1, 2, "child")


@groups
@pytest.mark.parametrize("leaving", [True, False], ids=["the block has ended", "the block waits"])
async def test_a_child_s_error_ends_all(group: Any, leaving: bool) -> None:
    """A child's error cancels the block and the other children and is raised; the task is not left cancelled."""
    others: list[asyncio.Task[Any]] = []

    async def block() -> None:
        async with group() as tasks:
            others.append(tasks.create_task(asyncio.Event().wait()))
            tasks.create_task(raises())
            if not leaving:
                await asyncio.Event().wait()

    assert isinstance(await error_of(block()), ChildError)
    assert others[0].cancelled()
    await asyncio.sleep(0)


@groups
@pytest.mark.parametrize("leaving", [True, False], ids=["the block has ended", "the block waits"])
async def test_a_cancellation_reaches_the_children(group: Any, leaving: bool) -> None:
    """A cancellation of the group's task cancels its children and is raised."""
    children: list[asyncio.Task[Any]] = []

    async def block() -> None:
        async with group() as tasks:
            children.append(tasks.create_task(asyncio.Event().wait()))
            if not leaving:
                await asyncio.Event().wait()

    running = asyncio.create_task(block())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert children[0].cancelled()


@groups
async def test_the_block_s_own_error_ends_the_children(group: Any) -> None:
    """An error in the block cancels the children and is raised after they ended."""
    children: list[asyncio.Task[Any]] = []

    async def block() -> None:
        async with group() as tasks:
            children.append(tasks.create_task(asyncio.Event().wait()))
            raise ChildError

    assert isinstance(await error_of(block()), ChildError)
    assert children[0].cancelled()


@groups
async def test_a_cancelled_child_is_no_error(group: Any) -> None:
    """When a child is cancelled by hand, the others and the block go on."""
    async with group() as tasks:
        child = tasks.create_task(asyncio.Event().wait())
        other = tasks.create_task(asyncio.sleep(0, "done"))
        child.cancel()
    assert child.cancelled()
    assert other.result() == "done"


@timeouts
async def test_a_deadline_is_a_timeout_error(timeout: Any) -> None:
    """A block that takes too long is cancelled and raises TimeoutError."""
    with pytest.raises(TimeoutError):
        async with timeout(0.01):
            await asyncio.Event().wait()
    await asyncio.sleep(0)


@timeouts
async def test_what_is_in_time_is_let_alone(timeout: Any) -> None:
    """A block within its bound is not cancelled; None is no bound; other errors and cancellations are raised."""
    for bound in (0.01, None):
        async with timeout(bound):
            await asyncio.sleep(0)
    await asyncio.sleep(0.02)
    with pytest.raises(ChildError):
        async with timeout(10):
            raise ChildError

    async def block() -> None:
        async with timeout(10):
            await asyncio.Event().wait()

    running = asyncio.create_task(block())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_install_leaves_what_is_there() -> None:
    """`install` keeps asyncio's own names where it has them."""
    before = asyncio.TaskGroup, asyncio.timeout
    py310.install()
    assert (asyncio.TaskGroup, asyncio.timeout) == before
