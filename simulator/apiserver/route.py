"""
Read verb, resource and name of a request from its method, path and query.

Source: k8s.io/apiserver/pkg/endpoints/request/requestinfo.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote

from inplace.common.kube.http.request import Request

_QUERIES_MAX = 1024  # distinct query strings remembered; each client repeats a few
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Route:
    """A resource request. `namespace` is "" for all namespaces and for cluster-scoped kinds."""

    verb: str
    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]

    @property
    def resource(self) -> str:
        """Return the resource with its subresource, as it is counted and authorised."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


@lru_cache(maxsize=_QUERIES_MAX)
def parse_query(query: str) -> Mapping[str, str]:
    """Return query parameters; the first of several values wins."""
    return MappingProxyType(dict(reversed(parse_qsl(query, keep_blank_values=True))))


def split_path(request: Request) -> tuple[list[str], Mapping[str, str]]:
    """Return the decoded path segments and the query."""
    path, _, query = request.path.partition("?")
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    return parts, parse_query(query)


def resource_route(method: str, parts: list[str], query: Mapping[str, str]) -> Route | None:
    """Return the route of a path below /api or /apis, or None when the path names no resource."""
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and (group or rest[2] not in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    plural = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    return Route(_verb(method, name, query), group, version, plural, namespace, name, subresource, query)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    verb = _VERBS.get(method, method.lower())
    if name:
        return verb
    if verb == "get":
        return "watch" if is_true(query.get("watch")) else "list"
    return "deletecollection" if verb == "delete" else verb


def is_true(value: str | None) -> bool:
    """Return whether a boolean query parameter is set; its presence alone is enough, as in Go."""
    return value is not None and value.lower() not in ("false", "0")


RequestKey = tuple[str, str, str]
"""Verb (get, list, watch, create, update, patch, delete, ...), resource with subresource, user-agent family."""


class RequestCounter(Counter[RequestKey]):
    """A Counter of requests by (verb, resource, user-agent family).

    Attributes:
        rejected: requests answered 429, also counted by their key.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rejected = 0

    def of(self, *, verb: str | None = None, resource: str | None = None, family: str | None = None) -> int:
        """Return the number of requests that match every given part."""
        return sum(
            count
            for (v, r, f), count in self.items()
            if verb in (None, v) and resource in (None, r) and family in (None, f)
        )


def family_of(user_agent: str) -> str:
    """Return a user agent's family: the part before its version."""
    return user_agent.partition("/")[0] or "unknown"
