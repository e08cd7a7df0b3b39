"""
Find what the controller's installation lacks, with the command that adds it.

A missing CRD or right would also show as a watch that is denied again and again, one at a time and with an unclear
message. A missing admission policy would never show. So the controller checks all of it at its start, and again until
nothing is missing. The check blocks nothing: work begins meanwhile, and what cannot be checked counts as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, retry_if_not_result, wait_fixed

from inplace.common.injection.rights import ROLE
from inplace.common.jobset.goodput import FIELD as GOODPUT
from inplace.common.jobset.restart_history import FIELD as RESTART_HISTORY
from inplace.common.jobset.scopes import CRD_CURE
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Log
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, WORKLOADS, KubeObject, Resource
from inplace.common.wire import names as wire
from inplace.controller.api.access_review import is_allowed
from inplace.controller.config import ControllerConfig

AGAIN_S: Final = 60.0  # a person is repairing the installation; thirty requests a minute until it is whole
CRD: Final = f"jobsets.{wire.API_GROUP}"
NEEDED: Final = {
    f"{wire.API_GROUP}/jobsets": ("get", "list", "watch", "delete"),
    f"{wire.API_GROUP}/jobsets/status": ("patch",),
    f"{wire.API_GROUP}/jobsets/finalizers": ("update",),
    "batch/jobs": ("get", "list", "watch", "create", "patch", "delete"),
    "batch/jobs/status": ("patch",),
    "/pods": ("list", "watch", "patch"),
    "/nodes": ("get", "list", "watch"),
    "/services": ("list", "watch", "create", "patch"),
    "/persistentvolumeclaims": ("list", "watch", "create"),
    "events.k8s.io/events": ("create", "patch"),
}
"""Verbs by group/resource: the ClusterRole of deploy/rbac, less what is asked for here; a test compares the two."""

FOR_AGENTS: Final = {
    "rbac.authorization.k8s.io/roles": ("create",),
    "rbac.authorization.k8s.io/rolebindings": ("create",),
    "authorization.k8s.io/localsubjectaccessreviews": ("create",),
}
"""What a controller that adds agents does beside that; without it, agents need rights that somebody gave by hand."""

FOR_BINDING: Final = {"rbac.authorization.k8s.io/clusterroles": ("bind",)}
"""And this to their role alone: the server lets us give agents their rights only where we may bind it."""

FOR_REFUSALS: Final = {"/events": ("list",)}
"""And this; without it, no Event of the JobSet says that its Pods are refused."""

FOR_OPT_IN: Final = {"/namespaces": ("list", "watch")}
"""What a controller does beside that under --agent-opt-in: it knows no namespace that asks for agents before."""

FOR_TAINTS: Final = {"/nodes": ("patch",), f"{WORKLOADS.group}/{WORKLOADS.plural}": ("list",)}
"""And under --taint-bad-nodes; without it, bad nodes are not tainted."""

FOR_LEASE: Final = {f"{LEASES.group}/{LEASES.plural}": ("create", "get", "update")}
POLICIES: Final = {
    "jobsets.jobset.x-k8s.io": "JobSets are not checked for what their CRD cannot check",
    "immutable.jobset.x-k8s.io": "the templates of a JobSet that runs may change, and Jobs created later differ",
    "agents.inplace.dev": "an agent may change any Pod of its namespace",
    "agents-otherwise.inplace.dev": "RBAC alone keeps an agent from doing more to a Pod than patch it",
    "controller.inplace.dev": "who steals the controller's token may change any Pod",
    "controller-rights.inplace.dev": "who steals the controller's token may bind its rights to any account",
}
"""Bindings of policies, and what is the case without them."""

OUR_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "spec": frozenset({"activeDeadlineSeconds", "scheduling"}),
    "status": frozenset(
        {
            wire.SYNCED_EPOCH,
            wire.DEPRECATED_EPOCH,
            wire.EXEMPT_EPOCHS,
            wire.LAST_EXEMPT_EPOCH,
            wire.RESTART_SCOPE_FIELD,
            wire.SCOPED_EPOCHS,
            wire.LAST_GROUP_RESTART,
            wire.LAST_RESTART_REQUEST,
            wire.SAVING,
            wire.MEMBERS_FIELD,
            wire.NOTICES,
            wire.NODE_FAILURES,
            wire.ESCALATION_USES,
            wire.CRASH_LOOP,
            wire.RECREATIONS,
            wire.EXECUTION_ATTEMPTS,
            wire.START_TIME,
            GOODPUT,
            RESTART_HISTORY,
        }
    ),
}
"""All fields of our CRD that upstream's v0.12 lacks, a test compares them: what is written there would be lost."""

POLICIES_CURE: Final = "kubectl apply --server-side -k deploy/admission"
AGENTS_CURE: Final = (
    "kubectl apply --server-side -k deploy/rbac, or give each account its rights by hand (docs/permissions.md)"
)
TAINTS_CURE: Final = "kubectl apply --server-side -k deploy/overlays/taints"
RIGHTS_CURE: Final = (
    "kubectl apply --server-side -k deploy/rbac, and let the controller run as ServiceAccount inplace-controller"
)
_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
_WHO: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is missing.

    Args:
        seen: what was expected and what was found.
        cure: what to do about it.
        is_fatal: nothing works without it.
    """

    seen: str
    cure: str
    is_fatal: bool = True

    def __str__(self) -> str:
        return f"{self.seen}; {self.cure}"


class Preflight:
    """Looks at the cluster until nothing is missing.

    Args:
        client: not fenced by leadership; a question is a POST.
        config: says what the controller does, and where.
    """

    def __init__(self, client: KubeClient, config: ControllerConfig, *, clock: Clock, log: Log) -> None:
        self._client = client
        self._config = config
        self._clock = clock
        self._log = log
        self._problems: tuple[Problem, ...] = ()

    @property
    def why_not_ready(self) -> str | None:
        """Return what is missing and fatal, one to a line."""
        return "\n".join(str(problem) for problem in self._problems if problem.is_fatal) or None

    async def run(self) -> None:
        """Look, say what is missing when that changes, and look again until nothing is."""
        looks = AsyncRetrying(
            retry=retry_if_not_result(bool) | retry_if_exception_type((ApiError, TransportError)),
            wait=wait_fixed(AGAIN_S),
            before_sleep=self._note_look,
            sleep=self._clock.sleep,
        )
        await looks(self._look)

    def _note_look(self, state: RetryCallState) -> None:
        """Log a look at a server that is away; every other task reports that, too."""
        if state.outcome is not None and state.outcome.failed:
            self._log.info("installation_not_looked_at", message=str(state.outcome.exception()))

    async def _look(self) -> bool:
        """Look once; return whether nothing is missing."""
        self._tell([*await self._look_at_crd(), *await self._look_at_rights(), *await self._look_at_policies()])
        return not self._problems

    def _tell(self, found: list[Problem]) -> None:
        for problem in found:
            if problem not in self._problems:
                said = {"message": problem.seen, "cure": problem.cure}
                if problem.is_fatal:
                    self._log.error("installation_incomplete", **said)
                else:
                    self._log.warning("installation_incomplete", **said)
        if not found:
            self._log.info("installation_complete")
        self._problems = tuple(found)

    async def _look_at_crd(self) -> list[Problem]:
        """Find out whether JobSets are served, and with our fields."""
        crd = await self._read(CUSTOM_RESOURCE_DEFINITIONS, CRD)
        if crd is None:
            return [Problem(f"expected the CustomResourceDefinition {CRD}, found none", CRD_CURE)]
        absent = _absent_fields(crd) if crd else []
        if not absent:
            return []
        seen = (
            f"expected the CustomResourceDefinition {CRD} to have our fields, found one without {', '.join(absent)}: "
            "what is written there is lost"
        )
        return [Problem(seen, CRD_CURE, is_fatal=False)]

    async def _look_at_rights(self) -> list[Problem]:
        """Find out what the API server would refuse us."""
        config, namespace = self._config, self._config.namespace
        needed = NEEDED | (FOR_OPT_IN if config.watches_namespaces else {})
        if namespace:
            del needed["/nodes"]  # a Role cannot grant it: no exclusive placement, and nobody leaves a cordoned node
        asked = _asked(needed, namespace)
        if config.leader_elect:
            asked += _asked(FOR_LEASE, config.lease_namespace, "inplace-controller")
        problems = await self._denied(asked, RIGHTS_CURE)
        if config.job_settings.agent is not None:
            asked = _asked(FOR_AGENTS, namespace) + _asked(FOR_BINDING, namespace, ROLE)
            problems += await self._denied(asked, AGENTS_CURE, is_fatal=False)
            problems += await self._denied(_asked(FOR_REFUSALS, namespace), RIGHTS_CURE, is_fatal=False)
        if config.taint_limits is not None:
            problems += await self._denied(_asked(FOR_TAINTS, None), TAINTS_CURE, is_fatal=False)
        return problems

    async def _denied(self, asked: Sequence[Mapping[str, str]], cure: str, *, is_fatal: bool = True) -> list[Problem]:
        """Return a problem with this cure where the API server denies something; nothing where it does not."""
        denied = []
        for attributes in asked:
            try:
                allowed = await is_allowed(self._client, attributes)
            except NotFound:
                return []  # not a server that has RBAC
            if not allowed:
                denied.append(_words(attributes))
        if not denied:
            return []
        who = await self._who()
        seen = f"expected {who} to be allowed to {', '.join(denied)}; the API server says no"
        return [Problem(seen, cure, is_fatal=is_fatal)]

    async def _look_at_policies(self) -> list[Problem]:
        """Find out whether what guards JobSets and Pods is installed."""
        problems = []
        for name, consequence in POLICIES.items():
            if await self._read(_BINDINGS, name) is None:
                seen = f"expected the {_BINDINGS.kind} {name}, found none: {consequence}"
                problems.append(Problem(seen, POLICIES_CURE, is_fatal=False))
        return problems

    async def _who(self) -> str:
        """Return our user's name."""
        try:
            answer = await self._client.create(_WHO, None, {"apiVersion": _WHO.api_version, "kind": _WHO.kind})
        except ApiError:
            return "the controller"
        return str(answer["status"]["userInfo"]["username"])

    async def _read(self, resource: Resource, name: str) -> KubeObject | None:
        """Read an object; None when there is none, {} when it is not for us to know."""
        try:
            return await self._client.get(resource, None, name)
        except NotFound:
            return None
        except ApiError as error:
            if error.code in (401, 403):
                return {}
            raise


def _absent_fields(crd: KubeObject) -> list[str]:
    """Return which of our fields the version that we speak lacks, those of the spec with their path."""
    version = wire.API_VERSION.partition("/")[2]
    schemas = [each.get("schema") or {} for each in crd["spec"]["versions"] if each["name"] == version] or [{}]
    parts = (schemas[0].get("openAPIV3Schema") or {}).get("properties") or {}
    absent = {
        part: fields - set((parts.get(part) or {}).get("properties") or {}) for part, fields in OUR_FIELDS.items()
    }
    return [*sorted(absent["status"]), *sorted(f"spec.{name}" for name in absent["spec"])]


def _asked(rights: Mapping[str, Sequence[str]], namespace: str | None, name: str = "") -> list[dict[str, str]]:
    """Return what a SelfSubjectAccessReview asks, for each verb; what is created has no name yet."""
    asked = []
    for what, verbs in rights.items():
        group, resource, *sub = what.split("/")
        one = {"group": group, "resource": resource, "subresource": "".join(sub), "namespace": namespace or ""}
        asked += [one | {"verb": verb, "name": "" if verb == "create" else name} for verb in verbs]
    return asked


def _words(attributes: Mapping[str, str]) -> str:
    """Return `verb resource`, and where."""
    resource = "/".join(filter(None, (attributes["resource"], attributes["subresource"])))
    where = f" in namespace {attributes['namespace']}" if attributes["namespace"] else ""
    return f"{attributes['verb']} {resource}{where}"
