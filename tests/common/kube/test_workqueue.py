"""The queue loses no key, processes no key twice at once, and starves none, under any interleaving."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from itertools import accumulate, pairwise
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.clock import LoopClock
from inplace.common.kube.workqueue import (
    BACKOFF_BASE_S,
    BACKOFF_CAP_S,
    PAUSE_S_MAX,
    URGENT_RUN_MAX,
    QueueMetrics,
    ShutDownError,
    WorkQueue,
)
from inplace.simulator.cluster.virtual_time import run
from tests.common.kube.turns import Turns

pytestmark = pytest.mark.virtual_time

K = TypeVar("K", bound=Hashable)

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "later", "limited", "wait"]), st.integers(0, 3), st.floats(0.0, 2.0)), max_size=40
)


class Recorded(QueueMetrics):
    """What the queue reported."""

    def __init__(self) -> None:
        self.waiting = 0
        self.counts: Counter[str] = Counter()
        self.waits: list[float] = []
        self.works: list[float] = []

    def depth(self, keys: int) -> None:
        """Keep the newest."""
        self.waiting = keys

    def adds(self) -> None:
        """Count a key."""
        self.counts["adds"] += 1

    def retries(self) -> None:
        """Count a key that came back."""
        self.counts["retries"] += 1

    def queue_duration(self, seconds: float) -> None:
        """Note a wait."""
        self.waits.append(seconds)

    def work_duration(self, seconds: float) -> None:
        """Note a pass."""
        self.works.append(seconds)


def queue_of(
    clock: LoopClock,
    *,
    metrics: QueueMetrics | None = None,
    namespace_of: Callable[[K], Hashable] | None = None,
    is_urgent: Callable[[K], bool] = lambda _: False,
) -> WorkQueue[K]:
    """Return a queue; each key is a namespace's only one and nothing is urgent, unless a test says so."""
    metrics = metrics or Recorded()
    return WorkQueue(clock, metrics=metrics, namespace_of=namespace_of or (lambda key: key), is_urgent=is_urgent)


def namespaced(is_urgent: Callable[[tuple[str, int]], bool] = lambda _: False) -> WorkQueue[tuple[str, int]]:
    """Return a queue of keys that begin with their namespace."""
    return queue_of(LoopClock(), namespace_of=lambda key: key[0], is_urgent=is_urgent)


async def work_until_idle(queue: WorkQueue[K], process: Callable[[K], Awaitable[None]], *, workers: int) -> None:
    """Run workers until all keys are done."""
    async with asyncio.TaskGroup() as group:
        working = group.create_task(queue.work(process, workers=workers))
        await asyncio.sleep(200.0)
        queue.shut_down()
        await working


@given(OPERATIONS, st.integers(1, 3), st.floats(0.0, 1.5))
def test_every_added_key_is_processed_after_it_was_added_and_never_twice_at_once(
    operations: list[tuple[str, int, float]], workers: int, work_s: float
) -> None:
    """Every added key is processed AFTER its addition, by one worker at a time, within the bound."""

    async def scenario() -> None:
        clock = LoopClock()
        queue: WorkQueue[int] = queue_of(clock)
        busy: set[int] = set()
        finished: dict[int, float] = {}
        asked: dict[int, float] = {}
        most_at_once = 0

        async def process(key: int) -> None:
            nonlocal most_at_once
            assert key not in busy
            busy.add(key)
            most_at_once = max(most_at_once, len(busy))
            started_s = clock.monotonic_s()
            await clock.sleep(work_s)
            busy.discard(key)
            finished[key] = started_s

        async def drive() -> None:
            for operation, key, delay_s in operations:
                match operation:
                    case "add":
                        queue.add(key)
                        asked[key] = clock.monotonic_s()
                    case "later":
                        queue.add_after(key, delay_s)
                        asked[key] = clock.monotonic_s()
                    case "limited":
                        queue.add_rate_limited(key)
                        asked[key] = clock.monotonic_s()
                    case _:
                        await clock.sleep(delay_s)

        async with asyncio.TaskGroup() as group:
            group.create_task(work_until_idle(queue, process, workers=workers))
            await drive()
        assert set(finished) == set(asked)
        assert all(finished[key] >= asked[key] for key in asked)
        assert most_at_once <= workers

    run(scenario())


async def test_keys_come_out_in_order_and_a_waiting_key_only_once() -> None:
    """A waiting key that is added again keeps its place and comes out once."""
    queue: WorkQueue[str] = queue_of(LoopClock())
    for key in "abacab":
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]
    assert len(queue) == 0


async def test_a_key_added_while_it_is_processed_is_processed_again() -> None:
    """A key that is added during its pass is processed again AFTER that pass."""
    queue: WorkQueue[str] = queue_of(LoopClock())
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"


async def test_backoff_doubles_per_key_up_to_its_cap_and_is_forgotten_after_success() -> None:
    """5, 10, 20 ms and so on for one key; the others are not slowed."""
    clock = LoopClock()
    queue: WorkQueue[str] = queue_of(clock)
    seen: dict[str, list[float]] = {"bad": [], "good": []}
    failures = 16  # the last two wait for the cap

    async def process(key: str) -> None:
        seen[key].append(clock.monotonic_s())
        if key == "bad" and len(seen[key]) <= failures:
            queue.add_rate_limited(key)

    queue.add("bad")
    queue.add("good")
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.work(process, workers=1))
        await clock.sleep(400.0)
        queue.forget("bad")
        queue.add_rate_limited("bad")
        await clock.sleep(1.0)
        queue.shut_down()
    waits_s = [min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2**number) for number in range(failures)]
    assert waits_s[-2:] == [BACKOFF_CAP_S] * 2
    assert seen["bad"] == pytest.approx([*accumulate(waits_s, initial=0.0), 400.0 + BACKOFF_BASE_S])
    assert seen["good"] == [0.0]


async def test_no_event_cuts_the_pause_after_a_failure_short() -> None:
    """A hundred events a second while a key fails: ten tries a second; after a success it is at once."""
    clock = LoopClock()
    queue: WorkQueue[str] = queue_of(clock)
    seen: list[float] = []

    async def process(key: str) -> None:
        seen.append(clock.monotonic_s())
        if clock.monotonic_s() < 10.0:
            await clock.sleep(0.015)  # an event comes meanwhile
            queue.add_rate_limited(key)
        else:
            queue.forget(key)

    async with asyncio.TaskGroup() as group:
        group.create_task(queue.work(process, workers=2))
        for _ in range(1000):
            queue.add("bad")
            await clock.sleep(0.01)
        await clock.sleep(1.0)
        assert queue.processing() == {}
        tries = len(seen)
        queue.add("bad")
        await clock.sleep(0.001)
        queue.shut_down()
    assert tries < 10.0 / PAUSE_S_MAX + 10
    assert all(after - before >= PAUSE_S_MAX for before, after in pairwise(seen[8:tries]))
    assert len(seen) == tries + 1


async def test_an_event_does_not_wait_for_a_long_backoff() -> None:
    """It may be a worker's death: what waits a minute for a right is looked at within a tenth of a second."""
    clock = LoopClock()
    queue: WorkQueue[str] = queue_of(clock)
    seen: list[float] = []
    for _ in range(20):
        queue.add_rate_limited("a", 30.0)

    async def process(key: str) -> None:
        seen.append(clock.monotonic_s())

    async with asyncio.TaskGroup() as group:
        group.create_task(queue.work(process, workers=1))
        queue.add("a")
        await clock.sleep(1.0)
        queue.shut_down()
    assert seen == pytest.approx([PAUSE_S_MAX])


async def test_a_floor_is_waited_for_beside_the_backoff() -> None:
    """A server's Retry-After is added to the backoff."""
    clock = LoopClock()
    queue: WorkQueue[str] = queue_of(clock)
    queue.add_rate_limited("a", 5.0)

    async def process(key: str) -> None:
        assert clock.monotonic_s() == pytest.approx(5.0 + BACKOFF_BASE_S)
        queue.shut_down()

    await queue.work(process, workers=1)


async def test_an_earlier_delay_wins() -> None:
    """Of two delays for one key the shorter one counts, and the longer one does not fire again."""
    clock = LoopClock()
    queue: WorkQueue[str] = queue_of(clock)
    seen: list[float] = []

    async def process(key: str) -> None:
        seen.append(clock.monotonic_s())

    async with asyncio.TaskGroup() as group:
        group.create_task(queue.work(process, workers=1))
        queue.add_after("a", 10.0)
        queue.add_after("a", 1.0)
        queue.add_after("a", 5.0)
        await clock.sleep(20.0)
        queue.shut_down()
    assert seen == [1.0]


async def test_shutting_down_lets_work_finish_and_takes_no_more() -> None:
    """After shutdown `work` starts no key, and returns when the keys in work have finished."""
    clock = LoopClock()
    queue: WorkQueue[str] = queue_of(clock)
    finished: list[str] = []

    async def process(key: str) -> None:
        await clock.sleep(5.0)
        finished.append(key)

    for key in ("a", "b"):
        queue.add(key)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(queue.work(process, workers=1))
        await clock.sleep(1.0)
        queue.shut_down()
        queue.add("c")
        await working
    assert finished == ["a"]
    assert clock.monotonic_s() == 5.0
    with pytest.raises(ShutDownError):
        await queue.get()


async def test_metrics_hear_everything() -> None:
    """Adds, depth, waiting and working times, and retries are reported."""
    clock = LoopClock()
    metrics = Recorded()
    queue: WorkQueue[str] = queue_of(clock, metrics=metrics)

    async def process(key: str) -> None:
        assert queue.processing() == {key: 0.0}
        await clock.sleep(2.0)
        if not metrics.works:
            queue.add_rate_limited(key)

    queue.add("a")
    await work_until_idle(queue, process, workers=1)
    assert metrics.counts == {"adds": 2, "retries": 1}
    assert metrics.waits == [0.0, 0.0]
    assert metrics.works == [2.0, 2.0]


async def test_urgent_keys_go_first_also_when_they_become_urgent_while_they_wait() -> None:
    """The lane is decided at each add; a key is in one lane only, and comes out once."""
    urgent = {"u"}
    queue: WorkQueue[str] = queue_of(LoopClock(), is_urgent=lambda key: key in urgent)
    for key in "abcu":
        queue.add(key)
    urgent.add("b")
    queue.add("b")
    assert len(queue) == 4
    assert [await queue.get() for _ in range(4)] == ["u", "b", "a", "c"]
    assert len(queue) == 0
    urgent.add("a")
    queue.add("a")  # while it is being processed
    queue.add("d")
    queue.done("a")
    assert [await queue.get() for _ in range(2)] == ["a", "d"]


async def test_others_run_between_two_keys() -> None:
    """The loop has a turn between two keys, also when their passes never wait."""
    queue: WorkQueue[int] = queue_of(LoopClock())
    turns, worked_in = Turns(), list[int]()

    async def process(_: int) -> None:
        worked_in.append(turns.number)

    for key in range(100):
        queue.add(key)
    turns.count()
    await work_until_idle(queue, process, workers=1)
    assert len(set(worked_in)) == 100


async def test_an_endless_stream_of_urgent_keys_starves_nobody() -> None:
    """Of every URGENT_RUN_MAX + 1 keys one is ordinary, and ordinary keys keep their order."""
    queue: WorkQueue[int] = queue_of(LoopClock(), is_urgent=lambda key: key >= 0)
    for key in (-1, -2, -3):
        queue.add(key)
    next_urgent = 0
    seen: list[int] = []
    while sum(key < 0 for key in seen) < 3:
        queue.add(next_urgent)
        next_urgent += 1
        seen.append(await queue.get())
        queue.done(seen[-1])
    ordinary_at = [position for position, key in enumerate(seen) if key < 0]
    assert [seen[position] for position in ordinary_at] == [-1, -2, -3]
    assert ordinary_at == [number * (URGENT_RUN_MAX + 1) - 1 for number in (1, 2, 3)]


async def test_a_reserved_worker_takes_urgent_keys_while_all_others_are_busy() -> None:
    """A reserved worker takes no ordinary key, so an urgent one is processed at once while all others are busy."""
    clock = LoopClock()
    queue: WorkQueue[int] = queue_of(clock, is_urgent=lambda key: key < 0)
    finished: dict[int, float] = {}

    async def process(key: int) -> None:
        await clock.sleep(0.5 if key < 0 else 100.0)
        finished[key] = clock.monotonic_s()

    for key in range(10):
        queue.add(key)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(queue.work(process, workers=2, reserved=1))
        await clock.sleep(10.0)
        assert set(queue.processing()) == {0, 1}
        queue.add(-1)
        await clock.sleep(5.0)
        assert finished == {-1: 10.5}
        queue.shut_down()
        await working


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60), st.sets(st.integers(0, 5)))
def test_lanes_lose_and_double_nothing(steps: list[tuple[bool, int]], urgent_first: set[int]) -> None:
    """With any adds and takes, and keys that change lanes, the queue holds the same keys as a set."""

    async def scenario() -> None:
        urgent = set(urgent_first)
        queue: WorkQueue[int] = queue_of(LoopClock(), is_urgent=urgent.__contains__)
        model: set[int] = set()
        for is_add, key in steps:
            if is_add:
                queue.add(key)
                model.add(key)
            elif model:
                taken = await queue.get()
                model.remove(taken)
                queue.done(taken)
            urgent.symmetric_difference_update({key})
            assert len(queue) == len(model)
        assert {await queue.get() for _ in range(len(model))} == model

    run(scenario())


@pytest.mark.attack
@given(
    st.lists(st.tuples(st.sampled_from(["add", "free", "end"]), st.integers(0, 4), st.integers(0, 9)), max_size=120),
    st.integers(1, 4),
    st.integers(0, 1),
)
def test_a_key_waits_for_a_worker_or_for_a_key_of_its_own_namespace(
    steps: list[tuple[str, int, int]], workers: int, reserved: int
) -> None:
    """The bounds hold; while a key waits, all workers are busy, or its namespace has as many keys in work.

    The reserved worker, and one key more of each namespace, are for urgent keys.
    """

    async def scenario() -> None:
        queue = namespaced(is_urgent=lambda key: key[1] < 3)
        waiting: set[tuple[str, int]] = set()
        in_work: set[tuple[str, int]] = set()
        freed: set[tuple[str, int]] = set()

        def bound(key: tuple[str, int]) -> int:
            return workers + (reserved if key[1] < 3 else 0)

        def held(key: tuple[str, int]) -> int:
            return sum(namespace == key[0] for namespace, _ in in_work)

        async def process(key: tuple[str, int]) -> None:
            assert len(in_work - freed) < bound(key)
            assert held(key) < bound(key)
            waiting.discard(key)
            in_work.add(key)
            while key in in_work:  # noqa: ASYNC110 - steps and time go together here
                await asyncio.sleep(1.0)

        async with asyncio.TaskGroup() as group:
            working = group.create_task(queue.work(process, workers=workers, reserved=reserved))
            for what, namespace, name in steps:
                if what == "add":
                    queue.add((str(namespace), name))
                    waiting.add((str(namespace), name))
                elif in_work:
                    key = sorted(in_work)[name % len(in_work)]
                    assert queue.free_worker(key) == (key not in freed)
                    freed.add(key)
                    if what == "end":
                        in_work.discard(key)
                        freed.discard(key)
                await asyncio.sleep(3.0)
                for key in waiting - in_work:
                    assert len(in_work - freed) >= bound(key) or held(key) >= bound(key)
            for _ in range(len(steps)):
                in_work.clear()
                freed.clear()
                await asyncio.sleep(3.0)
            assert not waiting
            queue.shut_down()
            await working

    run(scenario())


@pytest.mark.attack
@pytest.mark.parametrize("floods", [1, 20])
async def test_passes_that_only_write_hold_up_no_other_namespace(floods: int) -> None:
    """While the passes of namespaces of a thousand keys each write for ever, a key of another one begins at once."""
    queue = namespaced()
    begun: list[tuple[str, int]] = []

    async def process(key: tuple[str, int]) -> None:
        begun.append(key)
        queue.free_worker(key)
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        working = group.create_task(queue.work(process, workers=4, reserved=1))
        for number in range(1_000):
            for namespace in range(floods):
                queue.add((str(namespace), number))
        await asyncio.sleep(10.0)
        assert len(begun) == 4 * floods
        queue.add(("new", 0))
        await asyncio.sleep(0.001)
        assert begun[-1] == ("new", 0)
        working.cancel()


@pytest.mark.attack
async def test_namespaces_have_turns_in_both_lanes() -> None:
    """Of 20 namespaces with a thousand keys each, all urgent, one pass each goes before a key of another one.

    An ordinary key of yet another one has its turn as well.
    """
    queue = namespaced(is_urgent=lambda key: key[0] != "other")
    begun: list[tuple[str, int]] = []

    async def process(key: tuple[str, int]) -> None:
        begun.append(key)
        await asyncio.sleep(1.0)

    async with asyncio.TaskGroup() as group:
        working = group.create_task(queue.work(process, workers=4, reserved=1))
        for number in range(1_000):
            for namespace in range(20):
                queue.add((str(namespace), number))
        await asyncio.sleep(10.5)
        queue.add(("new", 0))
        queue.add(("other", 0))
        before = len(begun)
        await asyncio.sleep(6.0)
        assert ("new", 0) in begun[before : before + 22]
        assert ("other", 0) in begun[before : before + URGENT_RUN_MAX + 2]
        queue.shut_down()
        await working
