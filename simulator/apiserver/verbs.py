"""Which verbs a resource offers."""

from __future__ import annotations

from inplace.simulator.apiserver import status
from inplace.simulator.apiserver.kinds import Kind
from inplace.simulator.apiserver.route import Route

_COLLECTION_VERBS = frozenset(("list", "watch", "create", "deletecollection"))
_OBJECT_VERBS = frozenset(("get", "update", "patch", "delete"))
SUBRESOURCE_VERBS = {
    "log": "get",
    "binding": "create",
    "eviction": "create",
    "token": "create",
    "finalize": "update",
}


def check_verb(kind: Kind, route: Route) -> None:
    """Raise 404 or 405 for a verb that the resource does not offer."""
    if route.subresource:
        wanted = SUBRESOURCE_VERBS.get(route.subresource) if route.subresource in kind.extra_subresources else None
        if wanted is None and not (route.subresource == "status" and kind.has_status):
            raise status.page_not_found()
        allowed = frozenset((wanted,)) if wanted else frozenset(("get", "update", "patch"))
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
