"""
Answer `pods/log`: check the request as the API server does, and the container as kubelet does.

Source: k8s.io/kubernetes pkg/registry/core/pod/rest/log.go and strategy.go (LogLocation), pkg/apis/core/validation
(ValidatePodLogOptions), pkg/kubelet/kubelet_pods.go (validateContainerLogStatus).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from inplace.common.kube.http.request import Response
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import status
from inplace.simulator.apiserver.options import LogRequest, LogSource
from inplace.simulator.apiserver.reads import StreamingResponse
from inplace.simulator.apiserver.route import Route, is_true

_LISTS: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_PULL: Final = {"ErrImagePull": "image can't be pulled", "ImagePullBackOff": "trying and failing to pull image"}
_INT64: Final = range(-(2**63), 2**63)
_ONE_SINCE: Final = "at most one of `sinceTime` or `sinceSeconds` may be specified"


def follow_log(pod: KubeObject, route: Route, source: LogSource | None) -> Response | StreamingResponse:
    """Stream a container's log from the source that the cluster simulator plugged in."""
    wanted = _request_of(pod, route)
    if not pod["spec"].get("nodeName"):
        return Response(204, {}, b"")  # no kubelet yet, so no log yet
    if source is None:
        raise status.StatusError(500, "InternalError", "this server has no source of logs: no kubelet is attached")
    if problem := _problem(pod, wanted.container, previous=wanted.previous):
        raise status.bad_request(problem)
    return StreamingResponse(200, {"content-type": "text/plain"}, lambda: source(pod, wanted))


def _request_of(pod: KubeObject, route: Route) -> LogRequest:
    query = route.query
    tail, since_s, limit = (_integer(query.get(name)) for name in ("tailLines", "sinceSeconds", "limitBytes"))
    since_ns = _time_ns(query.get("sinceTime"))
    causes = []
    if tail is not None and tail < 0:
        causes.append(status.bad_value("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        causes.append(status.bad_value("limitBytes", limit, "must be greater than 0"))
    if since_s is not None and since_ns is not None:
        causes.append(status.StatusCause("[]", f"Forbidden: {_ONE_SINCE}", "FieldValueForbidden"))
    elif since_s is not None and since_s < 1:
        causes.append(status.bad_value("sinceSeconds", since_s, "must be greater than 0"))
    if causes:
        raise status.invalid("PodLogOptions", "", pod["metadata"]["name"], causes)
    return LogRequest(
        _container(pod, query.get("container", "")),
        follow=is_true(query.get("follow")),
        previous=is_true(query.get("previous")),
        tail_lines=tail,
        since_ns=since_ns,
        since_seconds=since_s,
        limit_bytes=limit,
        timestamps=is_true(query.get("timestamps")),
    )


def _integer(text: str | None) -> int | None:
    if not text:
        return None
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise status.bad_request(f"strconv.ParseInt: parsing {status.show(text)}: invalid syntax")
    if len(digits) > 19 or int(text) not in _INT64:
        raise status.bad_request(f"strconv.ParseInt: parsing {status.show(text)}: value out of range")
    return int(text)


def _time_ns(text: str | None) -> int | None:
    """Read sinceTime; the API server hands it to kubelet in whole seconds."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        layout = "2006-01-02T15:04:05Z07:00"
        message = f"parsing time {status.show(text)} as {status.show(layout)}: cannot parse it"
        raise status.bad_request(message)
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() // 1) * 1_000_000_000


def _container(pod: KubeObject, name: str) -> str:
    """Return the container that is meant, or refuse."""
    spec, pod_name = pod["spec"], pod["metadata"]["name"]
    regular, inits, ephemeral = (
        [one["name"] for one in spec.get(field) or ()]
        for field in ("containers", "initContainers", "ephemeralContainers")
    )
    if not name and len(regular) > 1:
        names = " ".join((*inits, *regular))
        raise status.bad_request(f"a container name must be specified for pod {pod_name}, choose one of: [{names}]")
    name = name or regular[0]
    if name not in (*regular, *inits, *ephemeral):
        raise status.bad_request(f"container {name} is not valid for pod {pod_name}")
    return name


def _problem(pod: KubeObject, container: str, *, previous: bool) -> str:
    """Return why kubelet has no such log; "" if it has one."""
    who = f'container "{container}" in pod "{pod["metadata"]["name"]}"'
    found: dict[str, Any] | None = next(
        (one for field in _LISTS for one in (pod.get("status") or {}).get(field) or () if one["name"] == container),
        None,
    )
    if found is None:
        return f"{who} is not available"
    state, last = found.get("state") or {}, (found.get("lastState") or {}).get("terminated") or {}
    if previous:
        return "" if last.get("containerID") else f"previous terminated {who} not found"
    if "running" in state:
        return ""
    if "terminated" in state or last:
        kept = (state.get("terminated") or {}).get("containerID") or last.get("containerID")
        return "" if kept else f"{who} is terminated"
    reason = (state.get("waiting") or {}).get("reason", "")
    return (
        f"{who} is waiting to start: {_PULL.get(reason, reason)}"
        if reason
        else f"{who} is waiting to start - no logs yet"
    )
