"""
Check the form of an API server's answers: which parts of an object are mappings, lists, texts and numbers.

An object comes from somebody else: another version, a proxy, a definition without a schema. Each is checked ONCE, where
it comes in, and what reads it afterwards checks no type again. JobSets and Pods have forms of their own, which their
readers decode: common/jobset/form.py, cli/group/pod_facts.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from inplace.common.jobset.form import in_words
from inplace.common.jobset.pod_form import MetadataForm, Text
from inplace.common.kube.answers import decoded
from inplace.common.kube.client import KubeClient
from inplace.common.kube.http.request import GarbledError
from inplace.common.kube.resources import KubeObject, Resource

_Texts = list[str] | None


class _Any(msgspec.Struct):
    pass


class _StoredMeta(MetadataForm, kw_only=True, rename="camel"):
    name: str
    uid: str
    namespace: Text = None
    creation_timestamp: Text = None
    owner_references: list[_Any] | None = None


class _Stored(msgspec.Struct):
    metadata: _StoredMeta


class _ListMeta(msgspec.Struct):
    go_on: Text = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    items: list[Any]
    metadata: _ListMeta | None = None


class _Condition(msgspec.Struct, rename="camel"):
    type: Text = None
    status: Text = None
    reason: Text = None
    message: Text = None
    last_transition_time: Text = None


class _NodeInfo(msgspec.Struct, rename="camel"):
    kubelet_version: Text = None


class _NodeStatus(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    node_info: _NodeInfo | None = None
    declared_features: _Texts = None


class _Node(_Stored):
    spec: _Any | None = None
    status: _NodeStatus | None = None


class _Strategy(msgspec.Struct):
    enum: _Texts = None


class _PolicyProperties(msgspec.Struct, rename="camel"):
    restart_strategy: _Strategy | None = None


class _Policy(msgspec.Struct):
    properties: _PolicyProperties | None = None


class _SpecProperties(msgspec.Struct, rename="camel"):
    failure_policy: _Policy | None = None


class _Spec(msgspec.Struct):
    properties: _SpecProperties | None = None


class _Properties(msgspec.Struct):
    spec: _Spec | None = None


class _OpenApi(msgspec.Struct):
    properties: _Properties | None = None


class _Schema(msgspec.Struct):
    open_api: _OpenApi | None = msgspec.field(default=None, name="openAPIV3Schema")


class _Version(msgspec.Struct, rename="camel"):
    name: str
    served: bool = False
    schema: _Schema | None = None
    additional_printer_columns: list[_Any] | None = None


class _DefinitionSpec(msgspec.Struct):
    versions: list[_Version]


class _Definition(_Stored):
    spec: _DefinitionSpec


class _Specified(_Stored):
    """One whose spec is a mapping."""

    spec: _Any


class _Leased(_Stored):
    spec: _Any | None = None


class _Parts(_Stored):
    spec: _Any | None = None
    status: _Any | None = None


class _Term(msgspec.Struct):
    operator: Text = None


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: _Any | None = None
    match_expressions: list[_Term] | None = None


class _Rule(msgspec.Struct, rename="camel"):
    api_groups: _Texts = None
    operations: _Texts = None
    resources: _Texts = None


class _Webhook(msgspec.Struct, rename="camel"):
    name: Text = None
    object_selector: _Selector | None = None
    namespace_selector: _Selector | None = None
    rules: list[_Rule] | None = None


class _Webhooks(_Stored):
    webhooks: list[_Webhook] | None = None


class _Container(msgspec.Struct):
    name: str
    args: _Texts = None


class _PodSpec(msgspec.Struct):
    containers: list[_Container]


class _Template(msgspec.Struct):
    spec: _PodSpec


class _DeploymentSpec(msgspec.Struct):
    template: _Template


class _Deployment(_Stored):
    spec: _DeploymentSpec


class _Check(msgspec.Struct):
    name: Text = None
    state: Text = None
    message: Text = None


class _WorkloadStatus(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    admission_checks: list[_Check] | None = None


class _Workload(_Stored):
    spec: _Any | None = None
    status: _WorkloadStatus | None = None


_FORMS: Final[Mapping[str, type]] = {
    "JobSet": _Parts,
    "Node": _Node,
    "CustomResourceDefinition": _Definition,
    "ValidatingAdmissionPolicyBinding": _Specified,
    "Lease": _Leased,
    "ValidatingWebhookConfiguration": _Webhooks,
    "MutatingWebhookConfiguration": _Webhooks,
    "Deployment": _Deployment,
    "Workload": _Workload,
}


class _Name(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Name


class _Names(msgspec.Struct):
    items: list[_Named]


_NAMES: Final = msgspec.json.Decoder(_Names)


def names_in(body: bytes) -> list[str]:
    """Return the names of a list's objects.

    Raises:
        GarbledError: it is no list.
    """
    return [one.metadata.name for one in decoded(_NAMES.decode, body, "a list of objects").items]


class CheckedClient(KubeClient):
    """A client whose reads return objects of the form of their kind.

    A read raises GarbledError of one that has another.
    """

    async def get(self, resource: Resource, namespace: str | None, name: str) -> KubeObject:
        """Read one object."""
        found = await super().get(resource, namespace, name)
        _check(found, _FORMS.get(resource.kind, _Stored), f"a {resource.kind}")
        return found

    async def list(
        self, resource: Resource, namespace: str | None = None, *, query: dict[str, str] | None = None
    ) -> KubeObject:
        """Read a collection."""
        found = await super().list(resource, namespace, query=query)
        _check(found, _List, f"a list of {resource.plural}")
        for one in found["items"]:
            _check(one, _FORMS.get(resource.kind, _Stored), f"a {resource.kind} in the list of {resource.plural}")
        return found


def _check(obj: object, form: type, expected: str) -> None:
    try:
        msgspec.convert(obj, form)
        msgspec.msgpack.encode(obj)  # the quickest way to look at all numbers: it takes what Go's int64 and uint64 take
    except msgspec.ValidationError as error:
        raise GarbledError(f"expected {expected}, saw another form: {in_words(error)}") from error
    except OverflowError as error:
        raise GarbledError(f"expected {expected}, saw a whole number of more than 64 bits in it") from error
