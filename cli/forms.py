"""
Check the form of a manifest's objects: which of their parts are mappings, lists, texts and numbers.

Each is checked ONCE, where it comes in, and what reads it afterwards checks no type again. A JobSet's form is the
controller's: common/jobset/form.py. `cli/answers.py` does the same for the answers of an API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from inplace.cli.lint.stored import stored
from inplace.cli.manifests.trainer import is_runtime, is_train_job, jobset_in
from inplace.common.jobset.form import check_form, in_words
from inplace.common.jobset.pod_form import MetadataForm, Text, Words
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

_Texts = list[str] | None


class FormError(Exception):
    """An object has another form than its kind; the message says where, what was expected and what was seen."""


class _Any(msgspec.Struct):
    pass


class _Meta(MetadataForm, rename="camel"):
    name: Text = None
    namespace: Text = None
    generate_name: Text = None


class _Object(msgspec.Struct):
    metadata: _Meta | None = None


class _Rule(msgspec.Struct, rename="camel"):
    api_groups: _Texts = None
    resources: _Texts = None
    resource_names: _Texts = None
    verbs: _Texts = None


class _Role(_Object):
    rules: list[_Rule] | None = None


class _Reference(msgspec.Struct):
    kind: Text = None
    name: Text = None


class _Binding(_Object, rename="camel"):
    role_ref: _Reference | None = None
    subjects: list[_Any] | None = None


class _Trainer(msgspec.Struct, rename="camel"):
    command: _Texts = None
    args: _Texts = None
    env: list[_Reference] | None = None
    resources_per_node: _Any | None = None


class _JobSetTemplate(msgspec.Struct):
    metadata: _Meta | None = None
    spec: _Any | None = None


class _PatchSpec(msgspec.Struct):
    template: _JobSetTemplate | None = None


class _Patch(msgspec.Struct, rename="camel"):
    training_runtime_spec: _PatchSpec | None = None


class _TrainJobSpec(msgspec.Struct, rename="camel"):
    runtime_ref: _Reference | None = None
    trainer: _Trainer | None = None
    annotations: Words = None
    runtime_patches: list[_Patch] | None = None


class _TrainJob(_Object, kw_only=True):
    spec: _TrainJobSpec


class _Policy(msgspec.Struct, rename="camel"):
    num_nodes: int | None = None
    mpi: _Any | None = None


class _RuntimeSpec(msgspec.Struct, rename="camel"):
    template: _JobSetTemplate
    ml_policy: _Policy | None = None


class _Runtime(_Object, kw_only=True):
    spec: _RuntimeSpec


_RIGHTS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("Role", "ClusterRole"), _Role),
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), _Binding),
}


def check_manifest(obj: KubeObject) -> None:
    """Check an object of a file; its kind and its version are texts.

    Raises:
        FormError: it has another form than its kind.
    """
    if is_runtime(obj):
        _check(obj, _Runtime)
        _check_jobset(jobset_in(obj), "spec.template.")
    elif is_train_job(obj):
        _check(obj, _TrainJob)
        for place, patch in enumerate(obj["spec"].get("runtimePatches") or ()):
            template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
            _check_jobset(template, f"spec.runtimePatches[{place}].trainingRuntimeSpec.template.")
    else:
        _check(obj, _RIGHTS.get(obj["kind"], _Object))
        if (obj["kind"], obj["apiVersion"]) == (wire.KIND, wire.API_VERSION):
            _check_jobset(obj)


def _check_jobset(jobset: KubeObject, where: str = "") -> None:
    """Check a JobSet, or a part of a thing that becomes one; `where` is the path to it."""
    try:
        check_form(stored(jobset))
    except msgspec.ValidationError as error:
        raise FormError(f"{where}{in_words(error)}") from error


def _check(obj: object, form: type) -> None:
    try:
        msgspec.convert(obj, form)
    except msgspec.ValidationError as error:
        raise FormError(in_words(error)) from error
