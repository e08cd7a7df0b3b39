"""
Everything that was tried against an agent's permissions, as data.

Each attempt is one request of an attacker who has the token of a Pod and wants more than that Pod's epoch. Its target
is POD below. tests/cluster/agent_scene.py sends the attempts; docs/stolen-token.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inplace.common.kube.client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from inplace.common.wire import names as wire

ACCOUNT: Final = "inplace-agent"
OWN, OTHER, STRANGER, GONE = "train-w-0-0-own", "train-w-0-1-other", "web-stranger", "train-w-0-2-gone"
WEB: Final = "web-of-its-account"  # which no Job owns
POLICY: Final = "agents.inplace.dev"
OTHERWISE: Final = "agents-otherwise.inplace.dev"
TRACKING: Final = "batch.kubernetes.io/job-tracking"
BEFORE: Final = {wire.EPOCH: "5", wire.ATTEMPT: "4", wire.PHASES: "v1,view=41", wire.JOBSET_NAME: "train"}
"""The annotations of every Pod of the scene."""

PODS: Final = "/api/v1/namespaces/{namespace}/pods"
IT: Final = f"{PODS}/{OWN}"
_OTHER_METADATA: Final = "saw a change of other metadata"
_OTHER_ANNOTATIONS: Final = "may change only the annotations"
_SPEC: Final = "saw a change of spec"
_DEATH: Final = "inplace.dev/worker-failed: expected"
_NOT_A_PATCH: Final = "may patch its own Pod and nothing else"
_NOT_ITS_POD: Final = "token is bound to"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request that must be refused.

    Args:
        claim: what the attempt tries, as text.
        body: None sends none.
        path: with {namespace}, {foreign} (a namespace where the account has no rights) and {account} (the agent's).
        token: a key of the scene's clients.
        words: the policy's message when RBAC allows everything; "" when RBAC alone, or the token, prevents the attempt.
    """

    claim: str
    body: Mapping[str, Any] | Sequence[Any] | None
    words: str
    method: str = "PATCH"
    path: str = IT
    content_type: str = MERGE_PATCH
    query: Mapping[str, str] | None = None
    token: str = "own"


def announced(**values: str | None) -> dict[str, Any]:
    """Return a patch of our annotations."""
    keys = {"epoch": wire.EPOCH, "attempt": wire.ATTEMPT, "phases": wire.PHASES, "failed": wire.WORKER_FAILED}
    return {"metadata": {"annotations": {keys[name]: value for name, value in values.items()}}}


def _metadata(key: str, value: Any) -> dict[str, Any]:
    return {"metadata": {key: value}}


def _apply(**fields: Any) -> dict[str, Any]:
    """Return a server-side apply of `fields`."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": OWN}} | fields


def _sub(name: str) -> str:
    return f"{IT}/{name}"


FORCED: Final = {"fieldManager": "in-place-restart-agent", "force": "true"}
_POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "mine"},
    "spec": {"serviceAccountName": ACCOUNT, "containers": [{"name": "c", "image": "i"}]},
}
_CONTAINER: Final = {"name": "worker", "image": "evil"}
_TOLERATION: Final = {"operator": "Exists"}

METADATA: Final = (
    Attempt("add a label (merge patch)", _metadata("labels", {"a": "b"}), _OTHER_METADATA),
    Attempt(
        "change the JobSet it belongs to (strategic merge patch)",
        _metadata("labels", {wire.JOBSET_NAME: "another"}),
        _OTHER_METADATA,
        content_type=STRATEGIC_MERGE_PATCH,
    ),
    Attempt(
        "remove a label (JSON patch)",
        [{"op": "remove", "path": "/metadata/labels/app"}],
        _OTHER_METADATA,
        content_type=JSON_PATCH,
    ),
    Attempt("remove all labels", _metadata("labels", None), _OTHER_METADATA),
    Attempt("add a finalizer", _metadata("finalizers", [TRACKING, "a.b/c"]), _OTHER_METADATA),
    Attempt(
        "remove the Job controller's finalizer",
        {"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}},
        _OTHER_METADATA,
        content_type=STRATEGIC_MERGE_PATCH,
    ),
    Attempt("leave its Job (ownerReferences)", _metadata("ownerReferences", None), _OTHER_METADATA),
    Attempt(
        "let another object own it",
        [{"op": "replace", "path": "/metadata/ownerReferences/0/uid", "value": "00000000-0000-0000-0000-000000000000"}],
        _OTHER_METADATA,
        content_type=JSON_PATCH,
    ),
    Attempt("add another annotation", _metadata("annotations", {"a": "b"}), _OTHER_ANNOTATIONS),
    Attempt("change another annotation", _metadata("annotations", {wire.JOBSET_NAME: "another"}), _OTHER_ANNOTATIONS),
    Attempt("remove another annotation", _metadata("annotations", {wire.JOBSET_NAME: None}), _OTHER_ANNOTATIONS),
    Attempt("remove all annotations", _metadata("annotations", None), _OTHER_ANNOTATIONS),
    Attempt("wipe who owns which field", _metadata("managedFields", [{}]), _OTHER_METADATA),
    Attempt(
        "hide a label beside a proper announcement",
        {"metadata": announced(epoch="6", attempt="5")["metadata"] | {"labels": {"a": "b"}}},
        _OTHER_METADATA,
        content_type=STRATEGIC_MERGE_PATCH,
    ),
)

EPOCHS: Final = (
    Attempt("remove its epoch", announced(epoch=None), _OTHER_ANNOTATIONS),
    Attempt(
        "remove its attempt (JSON patch)",
        [{"op": "remove", "path": "/metadata/annotations/jobset.sigs.k8s.io~1in-place-restart-attempt"}],
        _OTHER_ANNOTATIONS,
        content_type=JSON_PATCH,
    ),
    Attempt("lower its epoch", announced(epoch="4", attempt="3"), "from 5 to 2147483647, because an epoch only grows"),
    Attempt("lower its attempt only", announced(attempt="3"), "from 4 to 2147483646, because an attempt only grows"),
    Attempt("write a word as its epoch", announced(epoch="many"), 'saw "many"'),
    Attempt("write nothing as its epoch", announced(epoch=""), 'saw ""'),
    Attempt("write a negative epoch", announced(epoch="-1"), 'saw "-1"'),
    Attempt("write an epoch with a leading zero", announced(epoch="06"), 'saw "06"'),
    Attempt("write an epoch with an exponent", announced(epoch="6e3"), 'saw "6e3"'),
    Attempt("write an epoch and a line of something else", announced(epoch="6\nx"), "an int32 of at least 1"),
    Attempt("write an epoch beyond int32", announced(epoch="2147483648"), 'saw "2147483648"'),
    Attempt("write an epoch beyond int64", announced(epoch="99999999999999999999"), 'saw "99999999999999999999"'),
    Attempt("write an attempt whose epoch is beyond int32", announced(attempt="2147483647"), 'saw "2147483647"'),
    Attempt("use the phases for a message", announced(phases="v1,hello world"), "expected v1,name=milliseconds"),
    Attempt("use the phases as storage", announced(phases="v1" + ",view=1" * 17), "expected v1,name=milliseconds"),
    Attempt("tell of a death in another epoch", announced(failed="v1,epoch=9,at=1790000000123"), _DEATH),
    Attempt("tell of a death in a future epoch", announced(failed="v1,epoch=2147483647,at=1790000000123"), _DEATH),
    Attempt("use a death for a message", announced(failed="v1,epoch=5,code=1,at=1790000000123 hello"), _DEATH),
    Attempt("tell of a hang in another epoch", announced(failed="v1,epoch=9,stalled=9,at=1790000000123"), _DEATH),
    Attempt("die and hang at once", announced(failed="v1,epoch=5,code=1,stalled=9,at=1790000000123"), _DEATH),
    Attempt("use a step for a message", announced(failed="v1,epoch=5,stalled=9,step=hello,at=1790000000123"), _DEATH),
)

SPEC_AND_STATUS: Final = (
    Attempt("change an image", {"spec": {"containers": [_CONTAINER]}}, _SPEC, content_type=STRATEGIC_MERGE_PATCH),
    Attempt("end itself (activeDeadlineSeconds)", {"spec": {"activeDeadlineSeconds": 1}}, _SPEC),
    Attempt(
        "tolerate every node",
        [{"op": "add", "path": "/spec/tolerations/-", "value": _TOLERATION}],
        _SPEC,
        content_type=JSON_PATCH,
    ),
    Attempt("lift its scheduling gate", {"spec": {"schedulingGates": []}}, _SPEC),
    Attempt("choose its node", {"spec": {"nodeSelector": {"a": "b"}}}, _SPEC),
    Attempt(
        "apply a label (server-side apply)",
        _apply(metadata={"name": OWN, "labels": {"a": "b"}}),
        _OTHER_METADATA,
        content_type=APPLY_PATCH,
        query=FORCED,
    ),
    Attempt(
        "apply an image by force",
        _apply(spec={"containers": [_CONTAINER]}),
        _SPEC,
        content_type=APPLY_PATCH,
        query=FORCED,
    ),
    Attempt("report a phase (pods/status)", {"status": {"phase": "Succeeded"}}, "", path=_sub("status")),
    Attempt("annotate by way of pods/status", announced(epoch="6", attempt="5"), "", path=_sub("status")),
    Attempt(
        "add an ephemeral container",
        {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}},
        _NOT_A_PATCH,
        path=_sub("ephemeralcontainers"),
        content_type=STRATEGIC_MERGE_PATCH,
    ),
    Attempt(
        "resize itself",
        {"spec": {"containers": [{"name": "worker", "resources": {"requests": {"cpu": "9"}}}]}},
        _NOT_A_PATCH,
        path=_sub("resize"),
        content_type=STRATEGIC_MERGE_PATCH,
    ),
)

OTHER_VERBS: Final = (
    Attempt("delete its Pod", None, _NOT_A_PATCH, method="DELETE"),
    Attempt("delete all Pods", None, _NOT_A_PATCH, method="DELETE", path=PODS),
    Attempt("create a Pod", _POD, _NOT_A_PATCH, method="POST", path=PODS),
    Attempt(
        "create a Pod by applying it", _POD, _NOT_A_PATCH, path=f"{PODS}/mine", content_type=APPLY_PATCH, query=FORCED
    ),
    Attempt(
        "evict it",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": OWN}},
        _NOT_A_PATCH,
        method="POST",
        path=_sub("eviction"),
    ),
    Attempt(
        "bind it to a node",
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": OWN}, "target": {"kind": "Node", "name": "n"}},
        _NOT_A_PATCH,
        method="POST",
        path=_sub("binding"),
    ),
    Attempt(
        "bind it the old way",
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": OWN}, "target": {"kind": "Node", "name": "n"}},
        _NOT_A_PATCH,
        method="POST",
        path="/api/v1/namespaces/{namespace}/bindings",
    ),
    Attempt("run a command in it", None, _NOT_A_PATCH, "POST", _sub("exec"), query={"command": "id", "stdout": "true"}),
    Attempt("attach to it", None, _NOT_A_PATCH, method="POST", path=_sub("attach"), query={"stdout": "true"}),
    Attempt("forward its ports", None, _NOT_A_PATCH, method="POST", path=_sub("portforward")),
    Attempt("reach it through the API server", None, _NOT_A_PATCH, method="GET", path=_sub("proxy")),
)

_ANNOUNCEMENT: Final = announced(epoch="6", attempt="5")

IDENTITIES: Final = (
    Attempt("announce for another Pod of its account", _ANNOUNCEMENT, _NOT_ITS_POD, path=f"{PODS}/{OTHER}"),
    Attempt("announce for another account's Pod", _ANNOUNCEMENT, _NOT_ITS_POD, path=f"{PODS}/{STRANGER}"),
    Attempt(
        "announce for a Pod of its name in another namespace",
        _ANNOUNCEMENT,
        _NOT_ITS_POD,
        path=f"/api/v1/namespaces/{{foreign}}/pods/{OWN}",
    ),
    Attempt("announce with a token that is bound to no Pod", _ANNOUNCEMENT, "saw one of no Pod", token="unbound"),
    Attempt("announce with a token that is bound to a Secret", _ANNOUNCEMENT, "saw one of no Pod", token="secret"),
    Attempt("announce for it with another Pod's token", _ANNOUNCEMENT, _NOT_ITS_POD, token="other"),
    Attempt(
        "announce for its own Pod, which is in no JobSet",
        _ANNOUNCEMENT,
        "only a Pod that a JobSet's Job owns",
        path=f"{PODS}/{WEB}",
        token="web",
    ),
    Attempt("announce with the token of a Pod that is gone", _ANNOUNCEMENT, "", token="gone"),
    Attempt(
        "announce with another Pod's uid in the patch",
        {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"} | _ANNOUNCEMENT["metadata"]},
        "",
    ),
)

_JOBSETS: Final = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
_JOBSET: Final = f"{_JOBSETS}/train"
_ACCOUNTS: Final = "/api/v1/namespaces/{namespace}/serviceaccounts"
_TOKEN: Final = {"spec": {"audiences": [], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": OTHER}}}

BEYOND_PODS: Final = (
    Attempt("replace its Pod (PUT)", _POD, "", method="PUT"),
    Attempt("read Pods", None, "", method="GET", path=PODS),
    Attempt("read Secrets", None, "", method="GET", path="/api/v1/namespaces/{namespace}/secrets"),
    Attempt("list the JobSets of its namespace", None, "", method="GET", path=_JOBSETS),
    Attempt("read another JobSet of its namespace", None, "", method="GET", path=f"{_JOBSETS}/other"),
    Attempt(
        "watch another JobSet of its namespace",
        None,
        "",
        method="GET",
        path=_JOBSETS,
        query={"watch": "true", "fieldSelector": "metadata.name=other", "timeoutSeconds": "1"},
    ),
    Attempt(
        "read the JobSets of all namespaces", None, "", method="GET", path="/apis/jobset.x-k8s.io/v1alpha2/jobsets"
    ),
    Attempt("switch its JobSet's restarts off", _metadata("annotations", {wire.DISABLE: ""}), "", path=_JOBSET),
    Attempt("write its JobSet's epochs", {"status": {wire.SYNCED_EPOCH: 9}}, "", path=f"{_JOBSET}/status"),
    Attempt("ask for another Pod's token", _TOKEN, "", method="POST", path=f"{_ACCOUNTS}/{{account}}/token"),
    Attempt(
        "give itself more rights",
        {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
        "",
        path=f"/apis/rbac.authorization.k8s.io/v1/namespaces/{{namespace}}/roles/{ACCOUNT}:train:{ACCOUNT}",
    ),
    Attempt(
        "remove the policy",
        None,
        "",
        method="DELETE",
        path=f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{POLICY}",
    ),
)
"""Requests that the Role does not grant. The policy does not check them: an administrator granted such rights."""

ATTEMPTS: Final = (*METADATA, *EPOCHS, *SPEC_AND_STATUS, *OTHER_VERBS, *IDENTITIES, *BEYOND_PODS)
