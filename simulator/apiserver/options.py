"""The settings of an embedded API server, each with the real server's value as its default where there is one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
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
        bookmark_interval_s: how often a watch that allows bookmarks gets one.
        priority_levels: priority and fairness; none means that nothing is ever rejected.
        log_source: answers `pods/log`.
        gc_delay_s: pause between a cause and the garbage collector's work, at each generation: a JobSet's Pods go
            two pauses after it. The real one deletes 20 objects a second: the last of 5,000 Pods go after minutes.
        serves_gangs: the feature gate GenericWorkload and the API scheduling.k8s.io/v1beta1; both are off in 1.37.
    """

    interceptor: Interceptor | None = None
    watch_cache_lag_s: Callable[[str], float] | None = None
    bookmark_interval_s: float = 60.0
    priority_levels: tuple[PriorityLevel, ...] = ()
    log_source: LogSource | None = None
    gc_delay_s: float = 0.0
    serves_gangs: bool = False
