"""
Judge the pace of requests, at each request in the moment in which it is sent.

A controller that lost the Lease does not write. No program repeats a request without a pause. An agent that gets
Retry-After does not send before that time, because there are thousands of agents. (A controller is not held to
Retry-After: another event may wake its key earlier. An agent with a lease reads the JobSet in two loops, for its watch
and for the lease, by the same request; each waits for itself, so these reads are not judged.)
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Callable

from inplace.common.kube.clock import Clock
from inplace.common.kube.http.request import Request, Response
from inplace.common.wire import names as wire
from inplace.simulator.campaign.disturbance import is_lease, is_write
from inplace.simulator.campaign.judge import Judge
from inplace.simulator.campaign.process import current_process
from inplace.simulator.cluster.timeline import own_status

S9 = "S9 a controller wrote while another one held the Lease"
L5 = "L5 a process repeated one request without a pause"
L6 = "L6 an agent came back before the time that Retry-After says"

SAME_MAX = 20  # of one request by one process within a second: a backoff of 5 ms that doubles comes to eight
WINDOW_S = 1.0
EPSILON_S = 1e-6  # rounding of added waits

_REVISION = re.compile(rb'"resourceVersion":"(\d+)"')
RequestKey = tuple[str, str, str]  # process, method, path without its query


class Manners:
    """Sees every request of an agent's or a controller's process.

    Args:
        lease_holder: returns the stored holder of the controllers' Lease.
        leased: agents keep leases.
    """

    def __init__(self, judge: Judge, clock: Clock, lease_holder: Callable[[], str], *, leased: bool) -> None:
        self._judge = judge
        self._clock = clock
        self._lease_holder = lease_holder
        self._leased = leased
        self._sent_s: dict[RequestKey, deque[float]] = defaultdict(lambda: deque(maxlen=SAME_MAX))
        self._not_before_s: dict[RequestKey, float] = {}
        self._heard: dict[str, int] = {}  # the newest revision of Pods that a controller's process got

    def sent(self, request: Request) -> None:
        """Judge a request."""
        if (what := _key(request)) is None:
            return
        who, method, path = what
        now_s = self._clock.monotonic_s()
        if who.startswith("controller-") and is_write(request):
            self._judge_leader(who, f"{method} {path}")
        if who.startswith("controller-") and method == "GET" and path.endswith("/pods"):
            self._judge.note_pods_listed()
        if who.startswith("controller-") and method == "PATCH" and "/jobsets/" in path and path.endswith("/status"):
            self._note_status(who, path.split("/")[-2], request.body)
        before_s = self._sent_s[what]
        if len(before_s) == SAME_MAX and now_s - before_s[0] < WINDOW_S:
            self._judge.breaks(L5, f"{who}: {method} {path}, {SAME_MAX + 1} times within {now_s - before_s[0]:.3f} s")
        before_s.append(now_s)
        if now_s < (due_s := self._not_before_s.get(what, 0.0)):
            self._judge.breaks(L6, f"{who}: {method} {path}, {due_s - now_s:.3f} s too soon")

    def refused(self, request: Request, answer: Response) -> None:
        """Note the Retry-After of an answer to an agent."""
        after_s = answer.headers.get("retry-after")
        if self._leased and request.method == "GET" and "watch=" not in request.path:
            return
        if after_s is not None and (what := _key(request)) is not None and what[0].startswith("agent/"):
            self._not_before_s[what] = self._clock.monotonic_s() + float(after_s) - EPSILON_S

    def arrived(self, request: Request, body: bytes) -> None:
        """Note how much a controller knows of Pods, from a list or a piece of a watch."""
        if (what := _key(request)) is None or not what[0].startswith("controller-") or not what[2].endswith("/pods"):
            return
        who, method, _ = what
        known = self._heard.get(who, 0) if method == "WATCH" else 0
        self._heard[who] = max((known, *map(int, _REVISION.findall(body))))

    def _note_status(self, who: str, jobset: str, body: bytes) -> None:
        """Note the S of a status that a controller sends, and how much it knows."""
        synced, _ = wire.epochs_as_written(own_status(json.loads(body)))
        self._judge.note_synced_sent(jobset, synced, self._heard.get(who, 0))

    def _judge_leader(self, who: str, wrote: str) -> None:
        """Report a write of a controller that does not lead; excused for a while after a person edited the Lease."""
        holder = self._lease_holder()
        if holder.startswith("controller-") and holder != who and not self._judge.is_lease_tampered():
            self._judge.breaks(S9, f"{who}: {wrote}, while {holder} leads")


def _key(request: Request) -> RequestKey | None:
    """Return a request's key; None for requests that are not judged: of no process, for the Lease, for Events."""
    process = current_process()
    path = request.path.partition("?")[0]
    if process is None or is_lease(request) or path.endswith("/events"):
        return None
    return process.name, "WATCH" if "watch=" in request.path else request.method, path
