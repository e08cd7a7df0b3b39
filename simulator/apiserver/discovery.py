"""
List the served kinds: /version, /api, /apis (plain and aggregated) and enough OpenAPI v3 for kubectl.

The OpenAPI documents say which operations take `fieldValidation`: kubectl reads that before it leaves validation to
the server. They hold no schemas of built-in kinds.
Source: KEP-3352 (aggregated discovery), KEP-2896 (OpenAPI v3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inplace.simulator.apiserver import status
from inplace.simulator.apiserver.kinds import Kind, Registry
from inplace.simulator.apiserver.route import Route
from inplace.simulator.apiserver.subresources import REVIEWS, is_local

VERSION = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2+inplace-simulator",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "CPython",
    "platform": "simulator",
}

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_REVIEW_VERBS = ["create"]
_SUBRESOURCES: dict[str, tuple[str, str, list[str]]] = {
    "status": ("", "", ["get", "patch", "update"]),
    "binding": ("", "Binding", ["create"]),
    "eviction": ("policy/v1", "Eviction", ["create"]),
    "log": ("", "", ["get"]),
    "finalize": ("", "", ["update"]),
    "token": ("authentication.k8s.io/v1", "TokenRequest", ["create"]),
}
"""The apiVersion and the kind of each, where they are not its object's, and its verbs."""

_COLLECTION_VERBS = frozenset(("list", "watch", "create", "deletecollection"))
_OBJECT_VERBS = frozenset(("get", "update", "patch", "delete"))

GroupVersion = tuple[str, str]


class Discovery:
    """Answers for the kinds in a registry, plus those resources that exist only as requests (reviews)."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def versions(self) -> dict[GroupVersion, list[Kind]]:
        """Return the kinds of each group and version."""
        found: dict[GroupVersion, list[Kind]] = {}
        for kind in self._registry.all():
            found.setdefault((kind.resource.group, kind.resource.version), []).append(kind)
        for group_version in REVIEWS:
            found.setdefault(group_version, [])
        return found

    def answer(self, parts: list[str], accept: str) -> dict[str, Any] | None:
        """Return the document at a path, None when there is none."""
        match parts:
            case ["version"]:
                return VERSION
            case ["api"]:
                return self._aggregated(core=True) if _wants_aggregated(accept) else _API_VERSIONS
            case ["apis"]:
                return self._aggregated(core=False) if _wants_aggregated(accept) else self._group_list()
            case ["api", version]:
                return self._resource_list("", version)
            case ["apis", group]:
                return self._group(group)
            case ["apis", group, version]:
                return self._resource_list(group, version)
            case ["openapi", "v3"]:
                return self._openapi_index()
            case ["openapi", "v3", "api", version]:
                return self._openapi("", version)
            case ["openapi", "v3", "apis", group, version]:
                return self._openapi(group, version)
            case ["openapi", "v2"]:
                return {"swagger": "2.0", "info": {"title": "inplace-simulator", "version": "v1"}, "paths": {}}
        return None

    def _groups(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for group, version in self.versions():
            if group:
                groups.setdefault(group, []).append(version)
        return groups

    def _group_document(self, group: str, versions: list[str]) -> dict[str, Any]:
        listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
        return {"name": group, "versions": listed, "preferredVersion": listed[0]}

    def _group(self, group: str) -> dict[str, Any] | None:
        versions = self._groups().get(group)
        if versions is None:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1"} | self._group_document(group, versions)

    def _group_list(self) -> dict[str, Any]:
        groups = [self._group_document(group, versions) for group, versions in self._groups().items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _resources(self, group: str, version: str) -> list[dict[str, Any]] | None:
        """Return the resources of a group's version in their aggregated form; None where there is no such version."""
        kinds = self.versions().get((group, version))
        if kinds is None:
            return None
        reviews = REVIEWS.get((group, version), {}).items()
        return [*map(_resource, kinds), *(_review(group, version, plural, review) for plural, review in reviews)]

    def _resource_list(self, group: str, version: str) -> dict[str, Any] | None:
        resources = self._resources(group, version)
        if resources is None:
            return None
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": [entry for resource in resources for entry in _plain(resource)],
        }

    def _aggregated(self, *, core: bool) -> dict[str, Any]:
        groups: dict[str, list[dict[str, Any]]] = {}
        for group, version in self.versions():
            if core == (not group):
                resources = self._resources(group, version)
                shown = {"version": version, "resources": resources, "freshness": "Current"}
                groups.setdefault(group, []).append(shown)
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": [
                {"metadata": {"name": group} if group else {}, "versions": versions}
                for group, versions in groups.items()
            ],
        }

    def _openapi_index(self) -> dict[str, Any]:
        paths = [f"apis/{group}/{version}" if group else f"api/{version}" for group, version in self.versions()]
        generation = self._registry.generation
        return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={generation}"} for path in paths}}

    def _openapi(self, group: str, version: str) -> dict[str, Any] | None:
        kinds = self.versions().get((group, version))
        if kinds is None:
            return None
        paths: dict[str, Any] = {}
        schemas: dict[str, Any] = {}
        for kind in kinds:
            identity = {"group": group, "version": version, "kind": kind.resource.kind}
            path = kind.resource.path("{namespace}" if kind.resource.namespaced else None, "{name}")
            path = path.replace("%7B", "{").replace("%7D", "}")
            parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _WRITE_PARAMETERS]
            operation = {"x-kubernetes-group-version-kind": identity, "parameters": parameters, "responses": {}}
            paths[path] = {"patch": operation | {"x-kubernetes-action": "patch"}}
            paths[path.removesuffix("/{name}")] = {"post": operation | {"x-kubernetes-action": "post"}}
            declared = dict(kind.schema.raw) if kind.schema is not None else {"type": "object"}
            schemas[f"{group or 'core'}.{version}.{kind.resource.kind}"] = declared | {
                "x-kubernetes-group-version-kind": [identity]
            }
        return {
            "openapi": "3.0.0",
            "info": {"title": "inplace-simulator", "version": "v1"},
            "paths": paths,
            "components": {"schemas": schemas},
        }


_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation", "force")
_API_VERSIONS = {
    "kind": "APIVersions",
    "versions": ["v1"],
    "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
}


def _wants_aggregated(accept: str) -> bool:
    return "as=APIGroupDiscoveryList" in accept and "v=v2" in accept


def _subresources(kind: Kind) -> tuple[str, ...]:
    return (*(("status",) if kind.has_status else ()), *kind.extra_subresources)


def _resource(kind: Kind) -> dict[str, Any]:
    """Return a kind in its aggregated form."""
    resource = kind.resource
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": kind.singular or resource.kind.lower(),
        "verbs": _VERBS,
        **{key: value for key, value in names.items() if value},
    }
    if subresources := _subresources(kind):
        entry["subresources"] = [_subresource(kind, name) for name in subresources]
    return entry


def _subresource(kind: Kind, name: str) -> dict[str, Any]:
    api_version, other_kind, verbs = _SUBRESOURCES[name]
    group, _, version = api_version.rpartition("/")
    response = {
        "group": group or kind.resource.group,
        "version": version or kind.resource.version,
        "kind": other_kind or kind.resource.kind,
    }
    return {"subresource": name, "responseKind": response, "verbs": verbs}


def _review(group: str, version: str, plural: str, review: str) -> dict[str, Any]:
    return {
        "resource": plural,
        "responseKind": {"group": group, "version": version, "kind": review},
        "scope": "Namespaced" if is_local(plural) else "Cluster",
        "singularResource": review.lower(),
        "verbs": _REVIEW_VERBS,
    }


def _plain(resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list of resources that an aggregated one stands for: itself, and its subresources."""
    own = resource["responseKind"]
    is_namespaced = resource["scope"] == "Namespaced"
    yield {
        "name": resource["resource"],
        "singularName": "" if resource["verbs"] is _REVIEW_VERBS else resource["singularResource"],
        "namespaced": is_namespaced,
        "kind": own["kind"],
        "verbs": resource["verbs"],
    } | {key: resource[key] for key in ("shortNames", "categories") if key in resource}
    for one in resource.get("subresources", ()):
        response = one["responseKind"]
        yield {
            "name": f"{resource['resource']}/{one['subresource']}",
            "singularName": "",
            "namespaced": is_namespaced,
            "kind": response["kind"],
            "verbs": one["verbs"],
        } | {key: response[key] for key in ("group", "version") if response["group"] != own["group"]}


def check_verb(kind: Kind, route: Route) -> None:
    """Raise 404 or 405 for a verb that the resource does not offer."""
    if route.subresource:
        if route.subresource not in _subresources(kind):
            raise status.page_not_found()
        allowed = frozenset(_SUBRESOURCES[route.subresource][2])
    else:
        allowed = _OBJECT_VERBS if route.name else _COLLECTION_VERBS
    if kind.custom and not route.subresource:
        # The real handler of custom resources decides these cases differently.
        if route.verb == "create" and route.name:
            return
        if route.verb == "update" and not route.name:
            raise status.bad_request("name must be provided")
    if route.verb not in allowed:
        raise status.method_not_allowed()
    everywhere = kind.resource.namespaced and not route.namespace
    if everywhere and route.verb in ("create", "deletecollection", *_OBJECT_VERBS):
        raise status.page_not_found() if kind.custom else status.method_not_allowed()
