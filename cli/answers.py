"""
Check the form of an API server's answers: which parts of an object are mappings, lists, texts and numbers.

An object comes from somebody else: another version, a proxy, a definition without a schema. See cli/forms.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from inplace.cli.forms import METADATA, form
from inplace.common.jobset.form import in_words
from inplace.common.kube.answers import object_of
from inplace.common.kube.client import KubeClient
from inplace.common.kube.http.request import GarbledError
from inplace.common.kube.resources import KubeObject, Resource

_CONDITION: Final = {"type?": str, "status?": str, "reason?": str, "message?": str, "lastTransitionTime?": str}
_STORED: Final = {
    "metadata": {
        **METADATA,
        "name": str,
        "uid": str,
        "namespace?": str,
        "creationTimestamp?": str,
        "ownerReferences?": [{}],
    }
}
_STRATEGIES: Final = {"properties?": {"restartStrategy?": {"enum?": [str]}}}
_SCHEMA: Final = {"properties?": {"spec?": {"properties?": {"failurePolicy?": _STRATEGIES}}}}
_SELECTOR: Final = {"matchLabels?": {}, "matchExpressions?": [{"operator?": str}]}
_WEBHOOKS: Final = {
    "webhooks?": [
        {
            "name?": str,
            "objectSelector?": _SELECTOR,
            "namespaceSelector?": _SELECTOR,
            "rules?": [{"apiGroups?": [str], "operations?": [str], "resources?": [str]}],
        }
    ]
}
_SHAPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "JobSet": {"spec?": {}, "status?": {}},
    "Node": {
        "spec?": {},
        "status?": {"conditions?": [_CONDITION], "nodeInfo?": {"kubeletVersion?": str}, "declaredFeatures?": [str]},
    },
    "CustomResourceDefinition": {
        "spec": {
            "versions": [
                {
                    "name": str,
                    "served?": bool,
                    "schema?": {"openAPIV3Schema?": _SCHEMA},
                    "additionalPrinterColumns?": [{}],
                }
            ]
        }
    },
    "ValidatingAdmissionPolicyBinding": {"spec": {}},
    "Lease": {"spec?": {}},
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "Deployment": {"spec": {"template": {"spec": {"containers": [{"name": str, "args?": [str]}]}}}},
    "Workload": {
        "spec?": {},
        "status?": {"conditions?": [_CONDITION], "admissionChecks?": [{"name?": str, "state?": str, "message?": str}]},
    },
}
_NAMES: Final = form({"items": [{"metadata": {"name": str}}]})
_LIST: Final = form({"items": [Any], "metadata?": {"continue?": str}})


class CheckedClient(KubeClient):
    """A client whose reads return objects of the form of their kind.

    A read raises GarbledError of one that has another.
    """

    async def get(self, resource: Resource, namespace: str | None, name: str) -> KubeObject:
        """Read one object."""
        found = await super().get(resource, namespace, name)
        _check(found, _form_of(resource.kind), f"a {resource.kind}")
        return found

    async def list(
        self, resource: Resource, namespace: str | None = None, *, query: dict[str, str] | None = None
    ) -> KubeObject:
        """Read a collection."""
        found = await super().list(resource, namespace, query=query)
        _check(found, _LIST, f"a list of {resource.plural}")
        for one in found["items"]:
            _check(one, _form_of(resource.kind), f"a {resource.kind} in the list of {resource.plural}")
        return found


@cache
def _form_of(kind: str) -> Any:
    return form({**_STORED, **_SHAPES.get(kind, {})})


def names_in(body: bytes) -> list[str]:
    """Return the names of a list's objects.

    Raises:
        GarbledError: it is no list.
    """
    found = object_of(body)
    _check(found, _NAMES, "a list of objects")
    return [one["metadata"]["name"] for one in found["items"]]


def _check(obj: object, form: type, expected: str) -> None:
    try:
        msgspec.convert(obj, form)
        msgspec.msgpack.encode(obj)  # the quickest way to look at all numbers: it takes what Go's int64 and uint64 take
    except msgspec.ValidationError as error:
        raise GarbledError(f"expected {expected}, saw another form: {in_words(error)}") from error
    except OverflowError as error:
        raise GarbledError(f"expected {expected}, saw a whole number of more than 64 bits in it") from error
