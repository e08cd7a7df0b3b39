"""Requests that are refused until a person acts are sent once a pass, and again after a second, not after 5 ms."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import Request, Response, TransportError
from inplace.controller.act.execute import PARALLEL_MAX
from inplace.controller.act.refusals import ActionsFailedError
from tests.common.kube.answers import refusal
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

MANY = 2 * PARALLEL_MAX
FIT = 20
FORBIDDEN, INVALID = refusal(403, "Forbidden"), refusal(422, "Invalid")
UNAUTHORIZED = refusal(401, "Unauthorized")


class Refusing:
    """Refuses creations of Jobs and records the time of each.

    Args:
        refuses: returns whether to refuse the creation of this Job (its JSON), the n-th request.
    """

    def __init__(self, rig: Rig, refuses: Callable[[bytes, int], Response | None]) -> None:
        self.refuses = refuses
        self.asked_s: list[float] = []
        self._rig = rig
        self._began_s = rig.clock.monotonic_s()
        rig.fault = self._answer
        rig.latency_s = lambda _: 0.005

    def asked(self, until_s: float) -> int:
        """Return how many creations were requested up to this time."""
        return sum(at_s - self._began_s <= until_s for at_s in self.asked_s)

    def _answer(self, request: Request) -> Response | None:
        if request.method != "POST" or not request.path.partition("?")[0].endswith("/jobs"):
            return None
        self.asked_s.append(self._rig.clock.monotonic_s())
        return self.refuses(request.body or b"", len(self.asked_s))


def errors() -> list[object]:
    """Return all living exception objects; other tests keep some in constants."""
    return [thing for thing in gc.get_objects() if isinstance(thing, ApiError | ActionsFailedError)]


def many(replicas: int = MANY) -> Any:
    """Return a JobSet of more Jobs than the controller creates at once."""
    return jobset(jobs=[replicated_job(replicas=replicas, pods=1)], strategy=None)


@pytest.mark.parametrize(
    ("answer", "replicas"), [(FORBIDDEN, MANY), (INVALID, MANY), pytest.param(FORBIDDEN, 1000, marks=pytest.mark.slow)]
)
async def test_jobs_that_are_refused_cost_one_request_a_pass(rig: Rig, answer: Response, replicas: int) -> None:
    """One refusal ends the creations of Jobs in the pass; the next request comes after 1, 2, 4, ... 60 s."""
    refusing = Refusing(rig, lambda *_: answer)
    await rig.submit(many(replicas))
    await rig.settle(130.0)
    assert refusing.asked(0.9) == 1
    assert refusing.asked(2.0) == 2
    assert refusing.asked(130.0) == 8  # after 0, 1, 3, 7, 15, 31, 63 and 123 s
    assert await rig.events("JobCreationFailed")


async def test_a_refused_job_is_freed_at_once(rig: Rig) -> None:
    """An error does not hold its Job in memory until a garbage collection: 20 Jobs of 1 MB once took 0.5 GB."""
    refusing = Refusing(rig, lambda *_: INVALID)
    await rig.settle()
    gc.collect()
    gc.disable()
    before = errors()
    try:
        await rig.submit(many(3))
        await rig.settle(130.0)
        kept = [error for error in errors() if not any(error is other for other in before)]
    finally:
        gc.enable()
    assert refusing.asked(130.0) >= 8
    assert kept == []


async def test_a_server_that_is_unreachable_is_asked_once_a_pass(rig: Rig) -> None:
    """While the server is unreachable each pass requests one Job, not all missing ones."""

    def refuse(_: bytes, asked: int) -> Response | None:
        if asked <= FIT:
            return None
        raise TransportError("connection refused", sent=False)

    refusing = Refusing(rig, refuse)
    await rig.submit(many())
    await rig.settle(1.0)
    assert refusing.asked(0.05) <= FIT + PARALLEL_MAX + 5
    assert refusing.asked(1.0) - refusing.asked(0.05) <= 5


async def test_a_server_that_knows_no_token_of_ours_is_asked_once_a_pass(rig: Rig) -> None:
    """A 401 is the answer to every request, so each pass sends one: a thousand missing Jobs once sent a thousand."""
    refusing = Refusing(rig, lambda *_: UNAUTHORIZED)
    crew = await rig.submit(many())
    await rig.settle(1.0)
    assert 2 <= refusing.asked(1.0) <= 10
    refusing.refuses = lambda *_: None
    await rig.settle(5.0)
    assert len(await crew.jobs()) == MANY


async def test_events_in_between_ask_for_nothing(rig: Rig) -> None:
    """Events that wake a waiting JobSet do not repeat a refused request sooner."""
    refusing = Refusing(rig, lambda *_: FORBIDDEN)
    await rig.submit(many())
    for number in range(100):
        await rig.edit({"metadata": {"labels": {"edited": str(number)}}}, 0.02)
    assert refusing.asked(2.9) == 2


async def test_a_quota_that_fills_half_way_refuses_no_more_than_what_is_under_way(rig: Rig) -> None:
    """When a quota fills, only the writes in flight at the first refusal are refused, then one a pass."""
    refusing = Refusing(rig, lambda _, asked: FORBIDDEN if asked > FIT else None)
    crew = await rig.submit(many())
    await rig.settle(2.0)
    assert len(await crew.jobs()) == FIT
    assert refusing.asked(0.9) <= FIT + PARALLEL_MAX
    assert refusing.asked(3.0) <= FIT + PARALLEL_MAX + 2


async def test_a_right_that_is_granted_is_used_at_the_next_try(rig: Rig) -> None:
    """At the first try after the right is granted everything is created, without an extra request."""
    refusing = Refusing(rig, lambda *_: FORBIDDEN)
    crew = await rig.submit(many())
    await rig.settle(3.5)
    refusing.refuses = lambda *_: None
    await rig.settle(5.0)
    assert len(await crew.jobs()) == MANY
    assert len(refusing.asked_s) == MANY + 3  # after 0, 1 and 3 s


async def test_an_edited_spec_is_tried_at_once(rig: Rig) -> None:
    """An edited spec is tried at once, without the pause of its last version."""
    refusing = Refusing(rig, lambda *_: INVALID)
    await rig.submit(many())
    await rig.settle(40.0)  # the next try is due after 63 s
    before = len(refusing.asked_s)
    await rig.edit({"spec": {"ttlSecondsAfterFinished": 5}}, 0.5)
    assert len(refusing.asked_s) == before + 1


async def test_an_invalid_job_holds_back_its_own_replicated_job_alone(rig: Rig) -> None:
    """A refused template stops only its own replicatedJob's Jobs."""
    jobs = [replicated_job("bad", replicas=5, pods=1), replicated_job("good", replicas=5, pods=1)]
    Refusing(rig, lambda job, _: INVALID if b'"train-bad-' in job else None)
    crew = await rig.submit(jobset(jobs=jobs, strategy=None))
    await rig.settle(0.5)
    assert set(await crew.jobs()) == {f"train-good-{number}" for number in range(5)}


async def test_a_status_that_may_not_be_written_is_tried_again_after_a_second(rig: Rig) -> None:
    """Without the right to write the status the controller sends one request a second, not eight."""
    asked: list[str] = []

    def fault(request: Request) -> Response | None:
        if request.path.partition("?")[0].endswith("/status"):
            asked.append(request.path)
            return FORBIDDEN
        return None

    rig.fault = fault
    await rig.submit(jobset())
    await rig.settle(0.5)
    assert len(asked) == 2  # within 1.5 s
