"""The settings of an embedded API server, each with the real server's value as its default where there is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import KubeObject

if TYPE_CHECKING:
    from inplace.simulator.apiserver.apf import PriorityLevel

Interceptor = Callable[[Request, str], Awaitable[Response | None]]
"""Gets every request BEFORE the server; if it returns a Response, the server does not see the request. For faults."""


@dataclass(frozen=True, slots=True)
class LogRequest:
    """One request to `pods/log`.

    Args:
        since_ns: lines before it are left out, Unix time; at most one of this and `since_seconds`.
        limit_bytes: so many bytes of the answer, wherever that cuts it.
        timestamps: write its time before each line.
    """

    container: str
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    since_ns: int | None = None
    since_seconds: int | None = None
    limit_bytes: int | None = None
    timestamps: bool = False


LogSource = Callable[[KubeObject, LogRequest], AsyncIterator[bytes]]
"""Yields the log of a container; the cluster simulator provides it, because it owns the containers."""


@dataclass(frozen=True, slots=True)
class ApiServerOptions:
    """How the server behaves.

    Args:
        interceptor: gets each request first and may answer it.
        watch_cache_lag_s: seconds by which the watch cache of a resource (its plural) trails the store; None is 0.
            A lag needs `ApiServer.run()`.
        history_events_max: events kept per resource; older resourceVersions get 410. The real window is at least
            75 seconds or 100 events.
        watch_buffer_max: events a watcher may be behind before it is cut off. The real server cuts it off after
            some tens of events and 100 ms; its client then sees a clean end.
        bookmark_interval_s: how often a watch that allows bookmarks gets one.
        watch_timeout_s: the range from which a watch without timeoutSeconds draws its life.
        priority_levels: priority and fairness; none means that nothing is ever rejected.
        tokens: bearer token -> user name, beside the form `user:<name>`.
        require_token: answer 401 to a request without a known token (over HTTP).
        log_source: answers `pods/log`.
        gc_delay_s: pause between a cause and the garbage collector's work, at each generation: a JobSet's Pods go
            two pauses after it. The real one deletes 20 objects a second: the last of 5,000 Pods go after minutes.
    """

    interceptor: Interceptor | None = None
    watch_cache_lag_s: Callable[[str], float] | None = None
    history_events_max: int = 20_000
    watch_buffer_max: int = 1_000
    bookmark_interval_s: float = 60.0
    watch_timeout_s: tuple[float, float] = (1800.0, 3600.0)
    priority_levels: tuple[PriorityLevel, ...] = ()
    tokens: Mapping[str, str] = field(default_factory=dict)
    require_token: bool = False
    log_source: LogSource | None = None
    gc_delay_s: float = 0.0
