"""Check a Pod template as a whole. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inplace.cli.lint.agent import check_agent, check_guard, check_start
from inplace.cli.lint.agent_policies import check_before_announce, check_fence, check_saving, check_stall
from inplace.cli.lint.difference import check_differences
from inplace.cli.lint.init_containers import check_init_containers, runs_again
from inplace.cli.lint.launcher import check_launcher
from inplace.cli.lint.rights import ANNOUNCE, PATCH, is_object, rights_of, shown_rights
from inplace.cli.terminal.moments import whole_duration_text
from inplace.common.injection.agent_pieces import holds_token
from inplace.common.injection.container_resources import agents_own, is_guaranteed, is_pod_guaranteed, users_own
from inplace.common.injection.finding import Finding, shown
from inplace.common.injection.pod_cost import agents_amounts, listed
from inplace.common.injection.pod_roles import Container, Member
from inplace.common.injection.rights import ROLE, is_restricted
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

GRACE_S_MAX: Final = 120  # a drained node holds the whole group up so long
_INJECT: Final = "`inplace inject` adds it"


def check_pod(
    member: Member, group_pods: int, stream: Sequence[KubeObject], *, has_rights: bool = False
) -> Iterator[Finding]:
    """Yield problems of one replicatedJob's Pods; `has_rights`: the controller binds their account."""
    yield from _agents(member)
    yield from check_differences(member, group_pods)
    yield from check_containers(member)
    yield from _renamed_account(member, stream)
    agent = member.agent
    if agent is None or _has_two_agents(member):
        return
    if not has_rights:
        yield from _account(member, agent, stream)
    yield from _token_readers(member, agent, is_everywhere=_automount(member.pod_spec, stream) is not False)
    yield from _surroundings(member, agent)
    yield from _class(member)
    yield from check_deadlines(member)
    yield from check_init_containers(member)
    for container in runs_again(member):
        yield from _image(container)
    yield from check_stall(member, agent)
    yield from check_saving(member, agent)
    yield from check_before_announce(member, agent)
    yield from check_fence(member, agent)
    yield from check_agent(member, agent)
    for worker in member.workers:
        yield from check_launcher(worker)
    if member.place == "supervisor":
        return
    for worker in member.workers:
        if worker not in member.helpers:
            yield from check_guard(worker, agent) if member.is_guarded else check_start(worker, agent)


def check_containers(member: Member) -> Iterator[Finding]:
    """Yield reasons why the API server will refuse the Pod; it does not check the templates of a JobSet."""
    for container in member.every_container:
        for name, entry in container.env.items():
            value = entry.get("value")
            if value is not None and not isinstance(value, str):  # null is as if it were not there
                fix = f'write "{str(value).lower() if isinstance(value, bool) else value}", with quotes'
                found = f"{value!r} ({type(value).__name__})"
                yield Finding("admission", f"{container.path_of(name)}.value", found, "a text", fix)
        if container.raw.get("restartPolicyRules") and not container.raw.get("restartPolicy"):
            needed = "Always" if container.is_agent_alone else "Never"
            path = f"{container.path}.restartPolicy"
            yield Finding("admission", path, "nothing", needed, f"set it to {needed}")


def _agents(member: Member) -> Iterator[Finding]:
    """Yield an agent that is not there, or is there twice."""
    sidecar, supervisor = member.sidecar_agent, member.supervisor
    if member.agent is None:
        path = f"{member.pod_path}.initContainers"
        fix = f"{_INJECT}, or annotate the replicatedJob's template to leave it out of the group"
        yield Finding("agent-missing", path, "no agent", "inplace-agent as a sidecar, or around the worker", fix)
    elif sidecar is not None and supervisor is not None:
        found = f"{sidecar.name} beside {supervisor.name}, which is one too"
        yield Finding("agent-twice", sidecar.path, found, "one agent", "remove one of them")


def _has_two_agents(member: Member) -> bool:
    return member.supervisor is not None and member.sidecar_agent is not None


def _renamed_account(member: Member, stream: Sequence[KubeObject]) -> Iterator[Finding]:
    """Yield an account that the file has under a longer name only, as kustomize leaves it."""
    name = member.pod_spec.get("serviceAccountName")
    accounts = [str((one.get("metadata") or {}).get("name")) for one in stream if one.get("kind") == "ServiceAccount"]
    renamed = [] if not name or name in accounts else [account for account in accounts if str(name) in account]
    if renamed:
        fix = f"write {renamed[0]}; kustomize does with the configuration in docs/manifests.md"
        path, found = f"{member.pod_path}.serviceAccountName", f"{name}, and in this file {renamed[0]}"
        yield Finding("account-missing", path, found, "an account of this file", fix)


def _account(member: Member, agent: Container, stream: Sequence[KubeObject]) -> Iterator[Finding]:
    """Yield reasons in the manifest why the agent cannot talk to the API server."""
    pod, path = member.pod_spec, member.pod_path
    name, namespace = pod.get("serviceAccountName"), str(member.metadata.get("namespace") or "default")
    asked = rights_of(str(member.metadata.get("name") or ""))
    given = shown_rights(stream, namespace, str(name), [*asked, ANNOUNCE])  # by Roles of this file
    if name in (None, "", "default"):
        fix = f"name an account that may list and watch JobSets and patch Pods; {_INJECT}"
        yield Finding("service-account", f"{path}.serviceAccountName", shown(name), "an account for the agents", fix)
    elif not is_restricted(name) and given is not None and PATCH in given and ANNOUNCE not in given:
        fix = f"bind ClusterRole {ROLE} to it instead"
        yield Finding("service-account-name", f"{path}.serviceAccountName", shown(name), f"ClusterRole {ROLE}", fix)
    if _automount(pod, stream) is False and not agent.has_token_mount:
        fix = "remove the field, or mount a projected token into the agent's container alone"
        yield Finding("service-account-token", f"{path}.automountServiceAccountToken", "False", "a token", fix)
    lacking = [] if given is None else [right for right in asked if right not in given]
    if lacking:
        path, found = f"{path}.serviceAccountName", f"{name}, which may not {' or '.join(map(str, lacking))}"
        fix = f"add it to a Role in this file; {_INJECT}"
        yield Finding("account-rights", path, found, "both", fix)


def _automount(pod: KubeObject, stream: Sequence[KubeObject]) -> object:
    """Return whether kubelet mounts a token into every container: the Pod's word, else its account's, else None."""
    if (said := pod.get("automountServiceAccountToken")) is not None:
        return said
    name = pod.get("serviceAccountName")
    account = next((one for one in stream if is_object(one, "ServiceAccount", name)), {})
    return account.get("automountServiceAccountToken")


def _token_readers(member: Member, agent: Container, *, is_everywhere: bool) -> Iterator[Finding]:
    """Yield workers that can read the agent's token; a supervisor shares its container with its worker by design."""
    volumes = member.pod_spec.get("volumes") or ()
    tokens = [one.get("name") for one in volumes if holds_token(one)]
    for worker in member.workers if member.place == "sidecar" else ():
        own = [mount.get("name") for mount in worker.raw.get("volumeMounts") or ()]
        if (is_everywhere and not worker.has_token_mount) or any(name in tokens for name in own):
            found, needed = "the agent's token in the worker's container", f"it in {agent.name} alone"
            fix = "remove automountServiceAccountToken: true, unless a script talks to the API server; "
            fix += "or mount no token there"
            yield Finding("token-readable", worker.path, found, needed, fix)


def _class(member: Member) -> Iterator[Finding]:
    """Yield the agent's containers without which the Pod would be Guaranteed."""
    if not is_pod_guaranteed(member, users_own(member)):
        return
    for container in agents_own(member):
        if not is_guaranteed(container):
            found = shown(container.raw.get("resources"))
            fix = f"give {container.name} limits for cpu and memory, as `inplace inject` does"
            yield Finding("pod-class", f"{container.path}.resources", found, "limits that equal the requests", fix)


def check_queue(jobset: KubeObject, group: Sequence[Member]) -> Iterator[Finding]:
    """Yield how much the agents of Guaranteed Pods ask for; beside other workers 10m and 32Mi are no news.

    Args:
        jobset: with agents that the controller adds.
        group: its replicatedJobs that restart in place.
    """
    labels = (jobset.get("metadata") or {}).get("labels") or {}
    counted = [member for member in group if is_pod_guaranteed(member, users_own(member))]
    if wire.QUEUE_NAME not in labels or not counted:
        return
    each = {name: amount for name, amount in agents_amounts(counted[0]).items() if name.startswith("requests.")}
    pods = sum(member.pods for member in counted)
    in_all = {name: amount * pods for name, amount in each.items()}
    yield Finding(
        "queue-uncounted",
        f'metadata.labels["{wire.QUEUE_NAME}"]',
        f"agents that the queue does not count: {listed(each)} in each of {pods:,} Pods, {listed(in_all)} in all",
        "as much room beside the workers on their nodes",
        f"leave it, set its amounts in {wire.AGENT}, or let the queue count agents that `inplace inject` writes",
    )


def _surroundings(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield settings of the Pod that disturb a restart."""
    pod, path = member.pod_spec, member.pod_path
    grace = pod.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace > GRACE_S_MAX:
        field, fix = f"{path}.terminationGracePeriodSeconds", "lower it: a group restart does not wait for it anyway"
        yield Finding("termination-grace", field, str(grace), f"at most {GRACE_S_MAX}", fix)
    for field in ("shareProcessNamespace", "hostPID"):
        if pod.get(field) is True:
            yield Finding("shared-processes", f"{path}.{field}", "True", "nothing", "remove it")
    if pod.get("hostNetwork") is True:
        fix = "remove it, or see to one Pod per node and a BARRIER_PORT that is free there"
        yield Finding("host-network", f"{path}.hostNetwork", "True", "nothing", fix)
    if member.place == "supervisor":
        return  # its container does not restart
    for container in (agent, *member.workers):
        if (container.raw.get("lifecycle") or {}).get("preStop"):
            where, fix = f"{container.path}.lifecycle.preStop", "do it in the container, on SIGTERM, within 2 s"
            yield Finding("pre-stop", where, "a hook", "nothing that a restart relies on", fix)
        yield from _image(container)


def _image(container: Container) -> Iterator[Finding]:
    """Yield an image that is pulled at every start; without a policy that is one without a tag, or with :latest."""
    image, policy = str(container.raw.get("image", "")), container.raw.get("imagePullPolicy")
    tag = image.rpartition("/")[2].partition(":")[2]
    if policy == "Always" or (policy is None and "@" not in image and tag in ("", "latest")):
        found = f"{shown(policy)} for {image!r}"
        fix = "set it to IfNotPresent, and name the image by tag or digest"
        yield Finding("image-pull", f"{container.path}.imagePullPolicy", found, "IfNotPresent", fix)


def check_deadlines(member: Member) -> Iterator[Finding]:
    """Yield limits that restarts in place do not begin again."""
    for path, kind, seconds in _limits(member):
        fix = "allow for the whole run, or remove it; spec.activeDeadlineSeconds of the JobSet bounds a run as well"
        found = f"{whole_duration_text(seconds)} from the {kind}'s start, which go on through every restart in place"
        yield Finding("active-deadline", f"{path}.activeDeadlineSeconds", found, "a time for the whole run", fix)


def deadline_sentence(member: Member) -> str:
    """Say when the Job or the Pods end whatever happens; "" for never."""
    ends = [
        f"Each {kind} ends {whole_duration_text(seconds)} after its start with the reason DeadlineExceeded; restarts "
        f"in place do not begin this time again (activeDeadlineSeconds)."
        for _, kind, seconds in _limits(member)
    ]
    return " ".join(ends)


def _limits(member: Member) -> Iterator[tuple[str, str, int]]:
    """Yield where a limit stands, what it ends, and its seconds; a restart in place keeps Job and Pods."""
    places = ((member.job_path, "Job", member.job_spec), (member.pod_path, "Pod", member.pod_spec))
    for path, kind, spec in places:
        seconds = spec.get("activeDeadlineSeconds")
        if isinstance(seconds, int) and not isinstance(seconds, bool):
            yield path, kind, seconds
