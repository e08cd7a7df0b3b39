"""
Let the server judge: dry runs of the JobSet and of a Pod and a Job of each replicatedJob, and access reviews.

The dry run of a Pod shows facts that no version number shows: whether the server knows restartPolicyRules (a server
that does not either drops them silently or refuses them), the namespace's Pod Security level, and other admission.
Otherwise these errors would only appear in the Job's Events, after the JobSet was accepted. Without a cluster `judge`
asks the simulator's server, which has our CRD and policies: types, names, references, misspelt fields, CEL.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from inplace.cli.lint.pod import Right, is_object, rights_of, shown_rights
from inplace.cli.lint.stored import as_stored
from inplace.cli.manifests.documents import name_of
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Member, group_of, members
from inplace.common.injection.rights import commands
from inplace.common.kube.answers import object_of
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from inplace.common.kube.resources import JOBS, JOBSETS, NAMESPACES, PODS, SERVICE_ACCOUNTS, KubeObject, Resource
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.controller.api.access_review import as_account
from inplace.controller.plan.jobs import build_job
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.apiserver.decoding import misfit
from inplace.simulator.cluster.manifests import admission_policies, custom_resource_definitions

REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_DRY: Final = {"dryRun": "All", "fieldValidation": "Strict"}
UNKNOWN: Final = "an unknown field"
_UNKNOWN_FIELD: Final = re.compile(r'unknown field "([^"]+)"')
_WHOLE: Final = "<nil>"  # how the server names the path of a whole object
_DECODING: Final = "cannot be handled as a Job: "
_GATES: Final = "feature gates ContainerRestartRules and RestartAllContainersOnContainerExits"


async def ask_about_jobset(
    client: KubeClient, jobset: KubeObject, group: Sequence[Member], objects: Sequence[KubeObject]
) -> AsyncIterator[Finding]:
    """Yield what the server would refuse; nothing is stored.

    Args:
        client: of the cluster.
        jobset: with its namespace.
        group: its replicatedJobs that restart in place together; empty for another strategy.
        objects: all of the manifest, which may bring the namespace and the account along.
    """
    namespace = str(jobset["metadata"]["namespace"])
    if not await _exists(client, NAMESPACES, None, namespace):
        if not any(is_object(obj, "Namespace", namespace) for obj in objects):
            fix = f"kubectl create namespace {namespace}"
            yield Finding("namespace", "metadata.namespace", f"{namespace!r}, which is not there", "a namespace", fix)
        return  # no dry run is possible in it
    for finding in await refusals_of_jobset(client, jobset, namespace):
        yield finding
    for member in members(jobset):
        for finding in await _pods(client, member, jobset, namespace):
            yield finding
    for member in group or group_of(jobset):
        async for finding in _account(client, member, namespace, objects, in_place=bool(group)):
            yield finding


async def refusals_of_jobset(client: KubeClient, jobset: KubeObject, namespace: str) -> list[Finding]:
    """Return why the server would not take a JobSet."""
    try:
        await _create(client, JOBSETS, namespace, jobset)
    except (AlreadyExists, NotFound):
        return []  # it would be an update; or there is no definition, which is said elsewhere
    except ApiError as error:
        return list(_refusals("admission", name_of(jobset), "", error))
    return []


async def refusals_of_jobs(client: KubeClient, jobset: KubeObject) -> AsyncIterator[Finding]:
    """Yield why the server would not take the Jobs that the controller makes of a JobSet, one of each replicatedJob."""
    try:
        parsed = as_stored(jobset)
        jobs = [build_job(parsed, job, 0) for job in parsed.replicated_jobs]
    except RemoteProtocolError:
        return  # has a finding of its own
    for member, job in zip(members(jobset), jobs, strict=True):
        try:
            await _create(client, JOBS, str(jobset["metadata"]["namespace"]), job)
        except ApiError as error:
            for finding in _refusals("admission", member.job_path, "spec.", error):
                placed = _placed(finding, member, job)
                yield replace(placed, path=_by_name(member, placed.path))


def _placed(finding: Finding, member: Member, job: KubeObject) -> Finding:
    """Name the part that cannot be decoded: the server's refusal of it names no field."""
    found = misfit(job["spec"], "JobSpec", "spec") if finding.path == member.job_path else None
    if found is None:
        return finding
    path, value = found
    why = finding.found.rpartition(_DECODING)[2]
    return replace(finding, path=f"{member.job_path}{path.removeprefix('spec')}", found=f"{value!r}: {why}")


async def _pods(client: KubeClient, member: Member, jobset: KubeObject, namespace: str) -> list[Finding]:
    """Dry-run one Pod of a template, and one Job if the Pod is accepted."""
    template = member.job_spec.get("template") or {}
    metadata: KubeObject = {"generateName": "inplace-lint-", **_labels(template, jobset)}
    # The account is asked for by itself: it may come with the manifest. A Pod with a token's volume must name one.
    spec = {key: value for key, value in member.pod_spec.items() if key != "serviceAccount"}
    spec["serviceAccountName"] = "default"
    spec.setdefault("restartPolicy", "OnFailure")  # as the API and the controller fill it in for a JobSet
    try:
        stored = await _create(client, PODS, namespace, {"metadata": metadata, "spec": spec})
    except ApiError as error:
        return list(_pod_refusals(member, namespace, error))
    dropped = list(_dropped(member, stored))
    if dropped:
        return dropped
    job: KubeObject = {
        "metadata": {"generateName": "inplace-lint-"},
        "spec": {"completionMode": "Indexed"} | member.job_spec,
    }
    job["spec"] |= {"template": {"metadata": _labels(template, jobset), "spec": spec}, "suspend": True}
    try:
        await _create(client, JOBS, namespace, job)
    except ApiError as error:
        return list(_refusals("pod-refused", member.job_path, "spec.", error))
    return []


def _labels(template: KubeObject, jobset: KubeObject) -> KubeObject:
    """Return a template's labels and annotations with the one that admission may look for."""
    metadata = template.get("metadata") or {}
    name = {wire.JOBSET_NAME: str(jobset["metadata"].get("name", ""))}
    return {key: name | (metadata.get(key) or {}) for key in ("labels", "annotations")}


def _dropped(member: Member, stored: KubeObject) -> Iterator[Finding]:
    """Yield rules that did not come back: the server does not know them, and says nothing."""
    kept = {
        (kind, one.get("name")): one
        for kind in ("containers", "initContainers")
        for one in stored["spec"].get(kind) or ()
    }
    for container in member.every_container:
        key = ("initContainers" if container.is_init else "containers", container.name)
        given = container.raw.get("restartPolicyRules") or ()
        if given and not kept.get(key, {}).get("restartPolicyRules"):
            path, fix = f"{container.path}.restartPolicyRules", f"switch on {_GATES}, or {_way_out(member)}"
            is_for_more = any(one.get("action") != "Restart" for one in given)
            rule = "gates" if is_for_more or member.place != "supervisor" else "template-differs"
            yield Finding(rule, path, "rules that the server drops", "a server that keeps them", fix)


def _way_out(member: Member) -> str:
    return "use inject --restart-rule off" if member.place == "supervisor" else "use supervisor mode"


def _pod_refusals(member: Member, namespace: str, error: ApiError) -> Iterator[Finding]:
    """Name the kind of a refused Pod."""
    if isinstance(error, Forbidden) and "violates PodSecurity" in error.message:
        found = error.message[error.message.index("violates PodSecurity") :]
        fix = f"change the template, or the label pod-security.kubernetes.io/enforce of namespace {namespace}"
        yield Finding("pod-security", member.pod_path, found, "a Pod that the level allows", fix)
    elif isinstance(error, Forbidden) and "cannot create resource" in error.message:
        fix = "use an account that may create Pods there"
        yield Finding("cluster-unknown", member.pod_path, str(error), "the right to dry-run a Pod", fix)
    else:
        for refusal in _refusals("pod-refused", member.pod_path, "spec.", error):
            finding = replace(refusal, path=_by_name(member, refusal.path))
            gated = "restartPolicyRules" in finding.path or "restartPolicyRules" in finding.found
            if gated and any(word in finding.found for word in ("Unsupported value", "Forbidden", UNKNOWN)):
                fix = f"switch on {_GATES}, or {_way_out(member)}"
                yield Finding("gates", finding.path, finding.found, "a server that accepts them", fix)
            else:
                yield finding


def _by_name(member: Member, path: str) -> str:
    """Return a path with containers by name, as all our paths have them, where the server counts them."""
    named = {
        f"{kind}[{index}]": container.path.rpartition(".")[2]
        for kind, containers in (("containers", member.containers), ("initContainers", member.inits))
        for index, container in enumerate(containers)
    }
    return ".".join(named.get(part, part) for part in path.split("."))


def _refusals(rule: str, where: str, prefix: str, error: ApiError) -> Iterator[Finding]:
    """Yield each cause of a refusal at its path; `prefix` is what `where` stands for in the server's paths."""
    given: Any = error.details.get("causes")
    causes = [cause for cause in given if isinstance(cause, dict)] if isinstance(given, list) else []
    unknown = _UNKNOWN_FIELD.findall(error.message)
    for field in unknown:
        path = f"{where}.{field.removeprefix(prefix)}" if prefix else field
        yield Finding(rule, path, UNKNOWN, "a field of the API", "correct its name, or remove it")
    if unknown:
        return
    # A cause without a field says only that some rules were not checked.
    named = [cause for cause in causes if cause.get("field") != _WHOLE]
    for cause in named or causes or [{"message": error.message}]:
        field = str(cause.get("field") or "").replace(_WHOLE, "")
        inside = field.removeprefix(prefix)
        path = f"{where}.{inside}" if prefix and inside else inside or where
        found = str(cause.get("message") or error.message)
        yield Finding(rule, path, found, "a manifest that the server accepts", "correct the manifest")


async def _account(
    client: KubeClient, member: Member, namespace: str, objects: Sequence[KubeObject], *, in_place: bool
) -> AsyncIterator[Finding]:
    """Yield an account that is missing, or lacks an agent's rights."""
    name = str(member.pod_spec.get("serviceAccountName") or "default")
    path = f"{member.pod_path}.serviceAccountName"
    comes_along = any(is_object(obj, "ServiceAccount", name, namespace) for obj in objects)
    if name != "default" and not comes_along and not await _exists(client, SERVICE_ACCOUNTS, namespace, name):
        fix = f"kubectl create serviceaccount {name} -n {namespace}"
        yield Finding("account-missing", path, f"{name!r}, which is not there", "a ServiceAccount", fix)
        return
    if not in_place or member.agent is None:
        return
    jobset = str(member.metadata.get("name") or "")
    asked = rights_of(jobset)
    given = shown_rights(objects, namespace, name, asked) or []
    try:
        denied = [right for right in asked if right not in given and not await _may(client, namespace, name, right)]
    except Forbidden as error:
        fix = f"kubectl auth can-i patch pods -n {namespace} --as system:serviceaccount:{namespace}:{name}"
        yield Finding("cluster-unknown", path, str(error), "leave to review the account's rights", fix)
        return
    if denied:
        fix = commands(namespace, name, jobset)
        found = f"{name}, which may not {' or '.join(map(str, denied))}"
        yield Finding("account-rights", path, found, "a Role that allows it", fix)


async def _may(client: KubeClient, namespace: str, account: str, right: Right) -> bool:
    attributes = {"namespace": namespace, "group": right.group, "resource": right.resource, "verb": right.verb}
    attributes |= {"name": right.name} if right.name else {}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": as_account(namespace, account) | {"resourceAttributes": attributes},
    }
    answer = object_of((await client.raw("POST", REVIEWS, body=review)).body)
    return (answer.get("status") or {}).get("allowed") is True


async def _exists(client: KubeClient, resource: Resource, namespace: str | None, name: str) -> bool:
    try:
        await client.get(resource, namespace, name)
    except NotFound:
        return False
    except Forbidden:
        pass  # without the right to read them they count as there; the dry runs show the rest
    return True


async def _create(client: KubeClient, resource: Resource, namespace: str, obj: KubeObject) -> KubeObject:
    whole = {"apiVersion": resource.api_version, "kind": resource.kind} | obj
    return object_of((await client.raw("POST", resource.path(namespace, query=_DRY), body=whole)).body)


def judge(jobsets: Sequence[KubeObject]) -> list[list[Finding]]:
    """Return why our API would refuse each JobSet; nothing is stored anywhere."""
    return asyncio.run(_judge(jobsets))


async def _judge(jobsets: Iterable[KubeObject]) -> list[list[Finding]]:
    server = ApiServer(clock=LoopClock(), rng=Random(0))
    server.load([*custom_resource_definitions(), *admission_policies()])
    client = KubeClient(InMemoryTransport(server), user_agent="inplace-lint", field_manager="inplace-lint")
    found = []
    for jobset in jobsets:
        placed = jobset | {"metadata": (jobset.get("metadata") or {}) | {"namespace": "default"}}
        refused = await refusals_of_jobset(client, placed, "default")
        found.append(refused or [finding async for finding in refusals_of_jobs(client, placed)])
    return found
