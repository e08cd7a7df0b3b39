"""
List the served kinds: /version, /api, /apis (plain and aggregated) and enough OpenAPI v3 for kubectl.

The OpenAPI documents say which operations take `fieldValidation`: kubectl reads that before it leaves validation to
the server. They hold no schemas of built-in kinds.
Source: KEP-3352 (aggregated discovery), KEP-2896 (OpenAPI v3).
"""

from __future__ import annotations

from typing import Any

from inplace.simulator.apiserver.kinds import Kind, Registry
from inplace.simulator.apiserver.reviews import REVIEWS, is_local

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
_SUBRESOURCES: dict[str, tuple[str, str, list[str]]] = {
    "status": ("", "", ["get", "patch", "update"]),
    "binding": ("", "Binding", ["create"]),
    "eviction": ("policy/v1", "Eviction", ["create"]),
    "log": ("", "", ["get"]),
    "finalize": ("", "", ["update"]),
    "token": ("authentication.k8s.io/v1", "TokenRequest", ["create"]),
}

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
                return {
                    "swagger": "2.0",
                    "info": {"title": "inplace-simulator", "version": "v1"},
                    "paths": {},
                }
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

    def _resource_list(self, group: str, version: str) -> dict[str, Any] | None:
        kinds = self.versions().get((group, version))
        if kinds is None:
            return None
        resources: list[dict[str, Any]] = []
        for kind in kinds:
            entry = {
                "name": kind.plural,
                "singularName": _singular(kind),
                "namespaced": kind.resource.namespaced,
                "kind": kind.resource.kind,
                "verbs": _VERBS,
            }
            resources.append(entry | _other_names(kind))
            resources += [_plain_subresource(kind, name) for name in _subresources(kind)]
        for plural, review in REVIEWS.get((group, version), {}).items():
            resources.append(
                {
                    "name": plural,
                    "singularName": "",
                    "namespaced": is_local(plural),
                    "kind": review,
                    "verbs": ["create"],
                }
            )
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": resources,
        }

    def _aggregated(self, *, core: bool) -> dict[str, Any]:
        groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for (group, version), kinds in self.versions().items():
            if core == (not group):
                resources = [_aggregated_resource(kind) for kind in kinds]
                resources += [
                    _aggregated_review(group, version, plural, review)
                    for plural, review in REVIEWS.get((group, version), {}).items()
                ]
                groups.setdefault(group, {})[version] = resources
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": [
                {
                    "metadata": {"name": group} if group else {},
                    "versions": [
                        {"version": version, "resources": resources, "freshness": "Current"}
                        for version, resources in versions.items()
                    ],
                }
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
            operation = {
                "x-kubernetes-group-version-kind": identity,
                "parameters": parameters,
                "responses": {},
            }
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


def _singular(kind: Kind) -> str:
    return kind.singular or kind.resource.kind.lower()


def _other_names(kind: Kind) -> dict[str, Any]:
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {key: value for key, value in names.items() if value}


def _subresources(kind: Kind) -> tuple[str, ...]:
    return (*(("status",) if kind.has_status else ()), *kind.extra_subresources)


def _plain_subresource(kind: Kind, name: str) -> dict[str, Any]:
    api_version, other_kind, verbs = _SUBRESOURCES[name]
    entry = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.resource.namespaced,
        "kind": other_kind or kind.resource.kind,
        "verbs": verbs,
    }
    if api_version:
        group, _, version = api_version.rpartition("/")
        entry |= {"group": group, "version": version}
    return entry


def _aggregated_resource(kind: Kind) -> dict[str, Any]:
    resource = kind.resource
    identity = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": identity,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": _singular(kind),
        "verbs": _VERBS,
        **_other_names(kind),
    }
    names = _subresources(kind)
    if names:
        entry["subresources"] = [_aggregated_subresource(kind, name) for name in names]
    return entry


def _aggregated_subresource(kind: Kind, name: str) -> dict[str, Any]:
    api_version, other_kind, verbs = _SUBRESOURCES[name]
    group, _, version = api_version.rpartition("/")
    response = {
        "group": group or kind.resource.group,
        "version": version or kind.resource.version,
        "kind": other_kind or kind.resource.kind,
    }
    return {"subresource": name, "responseKind": response, "verbs": verbs}


def _aggregated_review(group: str, version: str, plural: str, review: str) -> dict[str, Any]:
    return {
        "resource": plural,
        "responseKind": {"group": group, "version": version, "kind": review},
        "scope": "Namespaced" if is_local(plural) else "Cluster",
        "singularResource": review.lower(),
        "verbs": ["create"],
    }
