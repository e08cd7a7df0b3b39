from __future__ import annotations

import asyncio
import time
from random import Random

import pytest
from anyio import create_task_group
from hypothesis import given, settings
from hypothesis import strategies as st

from inplace.simulator.cluster import virtual_time


def test_a_ten_minute_sleep_takes_milliseconds() -> None:
    """Virtual seconds cost no real ones, and the loop's clock shows them exactly."""

    async def main() -> float:
        await asyncio.sleep(600)
        return asyncio.get_running_loop().time()

    before_s = time.monotonic()
    assert virtual_time.run(main()) == 600
    assert time.monotonic() - before_s < 1


def test_timeouts_fire_at_their_virtual_time() -> None:
    """asyncio.timeout and wait_for work under virtual time."""

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert virtual_time.run(main()) == 30


async def _trace(seed: int, tasks: int) -> list[tuple[float, int]]:
    """Let tasks sleep and wake at random and log who ran when."""
    rng = Random(seed)
    log: list[tuple[float, int]] = []

    async def worker(name: int) -> None:
        for _ in range(3):
            await asyncio.sleep(rng.choice([0, 0, 1, 2.5]))
            log.append((asyncio.get_running_loop().time(), name))

    async with asyncio.TaskGroup() as group:
        for name in range(tasks):
            group.create_task(worker(name))
    return log


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), tasks=st.integers(1, 20), shuffle=st.none() | st.integers(0, 9))
def test_the_same_seed_gives_the_same_order(seed: int, tasks: int, shuffle: int | None) -> None:
    """Two runs of one program with one seed run the same callbacks in the same order."""
    first = virtual_time.run(_trace(seed, tasks), shuffle_seed=shuffle)
    assert first == virtual_time.run(_trace(seed, tasks), shuffle_seed=shuffle)


def test_a_shuffle_seed_tries_another_order() -> None:
    """Some shuffle seed changes the order of what is ready at the same time."""
    natural = virtual_time.run(_trace(1, 10))
    assert any(virtual_time.run(_trace(1, 10), shuffle_seed=seed) != natural for seed in range(5))


def test_cancelled_siblings_run_in_creation_order() -> None:
    """A failing task group cancels its members in one order, whatever their addresses are."""

    async def main() -> list[int]:
        order: list[int] = []

        async def wait(name: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                order.append(name)

        async def fail() -> None:
            await asyncio.sleep(1)
            raise ValueError

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                for name in range(50):
                    group.create_task(wait(name))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await together()
        return order

    assert virtual_time.run(main()) == list(range(50))


def test_a_deadlock_names_the_waiting_tasks() -> None:
    """A program that can never continue raises at once and says who waits and where."""

    async def starve(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        task = asyncio.create_task(starve(asyncio.Event()), name="hungry")
        await task

    with pytest.raises(virtual_time.DeadlockError, match=r"hungry: .*starve.*test_virtual_time\.py:\d+"):
        virtual_time.run(main())


def test_cancelled_scopes_of_anyio_end_in_creation_order() -> None:
    """A scope's children are a set, whose order would be that of addresses."""
    order: list[int] = []

    async def wait(name: int) -> None:
        try:
            async with create_task_group() as group:
                group.start_soon(asyncio.Event().wait)
                await asyncio.Event().wait()
        finally:
            order.append(name)

    async def main() -> None:
        async with create_task_group() as group:
            for name in range(50):
                group.start_soon(wait, name)
            await asyncio.sleep(1)
            group.cancel_scope.cancel()

    virtual_time.run(main())
    assert order == list(range(50))


def test_threads_are_refused() -> None:
    """run_in_executor raises instead of waiting in real time."""

    async def main() -> None:
        await asyncio.to_thread(time.sleep, 1)

    with pytest.raises(RuntimeError, match="virtual time runs no threads"):
        virtual_time.run(main())
