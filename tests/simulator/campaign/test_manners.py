"""The judge of manners finds each broken rule about requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from inplace.common.kube.http.request import Request
from inplace.common.wire.names import status_of_epochs
from inplace.simulator.apiserver.store import Event
from inplace.simulator.campaign.disturbance import refusal
from inplace.simulator.campaign.judge import Judge
from inplace.simulator.campaign.manners import L5, L6, S9, SAME_MAX, Manners
from inplace.simulator.campaign.process import Process, ProcessClock
from inplace.simulator.campaign.trace import Trace
from inplace.simulator.cluster import virtual_time

PATCH = Request("PATCH", "/api/v1/namespaces/default/pods/pod-0?fieldManager=agent", {})
LIST = Request("GET", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?fieldSelector=x", {})
LEASE = Request("PUT", "/apis/coordination.k8s.io/v1/namespaces/inplace-system/leases/inplace-controller", {})
AGENT, LEADER = "agent/pod-0#1", "controller-0#1"


class Bench:
    """A judge of manners, and programs that send requests."""

    def __init__(self, *, leased: bool = False) -> None:
        self.judge = Judge(Trace())
        self.holder = LEADER
        self.manners = Manners(self.judge, ProcessClock(0.0), lambda: self.holder, leased=leased)

    async def ask(self, by: str, *requests: Request, pause_s: float = 0.0) -> None:
        """Let a process send requests, each after a pause."""

        async def program() -> None:
            for request in requests:
                await asyncio.sleep(pause_s)
                self.manners.sent(request)

        await Process(by).start(program())

    async def refuse(self, by: str, after_s: int, request: Request = PATCH) -> None:
        """Let the server answer a process with Retry-After."""

        async def program() -> None:
            self.manners.refused(request, refusal(429, "TooManyRequests", retry_after_s=after_s))

        await Process(by).start(program())

    async def touch_lease(self) -> None:
        """Let a person write the Lease by hand."""
        self.judge.observe("leases", Event(1, "MODIFIED", ("ns", "lease"), {"metadata": {"name": "lease"}}, None))


def rule_of(scene: Callable[[Bench], Coroutine[Any, Any, None]], *, leased: bool = False) -> str | None:
    """Play a scene under virtual time; return the rule that it broke."""
    bench = Bench(leased=leased)
    virtual_time.run(scene(bench))
    return bench.judge.violation.rule if bench.judge.violation is not None else None


def test_the_judge_is_told_which_epoch_is_on_its_way() -> None:
    """A controller's write of a status names S; an agent's write of its Pod, and an older S, change nothing."""
    bench = Bench()
    jobset = {"metadata": {"name": "train", "uid": "uid"}, "spec": {}}
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/train/status?fieldManager=inplace-controller"
    writes = [Request("PATCH", path, {}, json.dumps({"status": status_of_epochs(s, 0)}).encode()) for s in (3, 2)]

    async def main() -> None:
        bench.judge.observe("jobsets", Event(1, "ADDED", ("default", "train"), jobset, None))
        await bench.ask(LEADER, *writes)
        await bench.ask(AGENT, PATCH)

    virtual_time.run(main())
    assert bench.judge.histories["uid"].sending == 3


def test_the_judge_is_told_how_much_a_controller_knew() -> None:
    """The newest revision that its list and its watch of Pods brought; an older server's list takes it back."""
    heard: list[int] = []

    class Noted(Judge):
        def note_synced_sent(self, jobset: str, synced: int, heard_of: int) -> None:
            heard.append(heard_of)

    pods, status = "/api/v1/namespaces/default/pods", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/x/jobsets/x/status"
    write = Request("PATCH", status, {}, json.dumps({"status": status_of_epochs(1, 0)}).encode())
    manners = Manners(Noted(Trace()), ProcessClock(0.0), lambda: LEADER, leased=False)

    async def program() -> None:
        for path, revisions in ((pods, (7, 5)), (f"{pods}?watch=1", (12,)), ("/api/v1/jobs", (90,)), (pods, (9,))):
            body = b"".join(b'{"metadata":{"resourceVersion":"%d"}}' % revision for revision in revisions)
            manners.arrived(Request("GET", path, {}), body)
            manners.sent(write)

    async def main() -> None:
        await Process(LEADER).start(program())

    virtual_time.run(main())
    assert heard == [7, 12, 12, 9]


async def play(
    bench: Bench,
    by: str,
    request: Request = PATCH,
    *,
    times: int = 1,
    pause_s: float = 0.0,
    told: str = "",
    is_tampered: bool = False,
) -> None:
    """Let a process ask; before that a person may have written the Lease, and a process been told to wait 2 s."""
    if is_tampered:
        await bench.touch_lease()
    if told:
        await bench.refuse(told, 2, request)
    await bench.ask(by, *[request] * times, pause_s=pause_s)


OTHER = "controller-1#1"
MANNERS: dict[str, tuple[Callable[[Bench], Coroutine[Any, Any, None]], str | None]] = {
    "the leader writes": (partial(play, by=LEADER), None),
    "another one writes": (partial(play, by=OTHER), S9),
    "another one reads": (partial(play, by=OTHER, request=Request("GET", PATCH.path, {})), None),
    "another one writes after tampering": (partial(play, by=OTHER, is_tampered=True), None),
    "another one writes long after tampering": (partial(play, by=OTHER, is_tampered=True, pause_s=60.0), S9),
    "a candidate asks for the Lease": (partial(play, by=OTHER, request=LEASE), None),
    "an agent asks often": (partial(play, by=AGENT, times=SAME_MAX + 1, pause_s=0.01), L5),
    "an agent asks calmly": (partial(play, by=AGENT, times=SAME_MAX + 1, pause_s=0.1), None),
    "an agent comes too soon": (partial(play, by=AGENT, told=AGENT, pause_s=1.0), L6),
    "an agent comes in time": (partial(play, by=AGENT, told=AGENT, pause_s=2.0), None),
    "another process of its Pod comes": (partial(play, by="agent/pod-0#2", told=AGENT), None),
    "a controller comes too soon": (partial(play, by=LEADER, told=LEADER, pause_s=1.0), None),
}


@pytest.mark.parametrize(("scene", "rule"), MANNERS.values(), ids=MANNERS)
def test_manners(scene: Callable[[Bench], Coroutine[Any, Any, None]], rule: str | None) -> None:
    """Exactly a deposed leader's write, a request without a pause and one before Retry-After are violations."""
    assert rule_of(scene) == rule


@pytest.mark.parametrize(("request_", "leased", "rule"), [(LIST, False, L6), (LIST, True, None), (PATCH, True, L6)])
def test_two_readers_of_one_agent_wait_each_for_itself(request_: Request, *, leased: bool, rule: str | None) -> None:
    """With a lease an agent reads for it and for its watch: a read before the other's Retry-After breaks nothing."""
    scene = partial(play, by=AGENT, request=request_, told=AGENT, pause_s=1.0)
    assert rule_of(scene, leased=leased) == rule
