"""Check a Pod template as a whole, its account's rights in the same file, and PyTorch's launcher. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inplace.cli.lint.agent import check_agent, check_guard, check_start
from inplace.cli.lint.agent_policies import check_before_announce, check_fence, check_saving, check_stall
from inplace.cli.lint.difference import check_differences
from inplace.cli.lint.init_containers import check_init_containers, runs_again
from inplace.cli.terminal.moments import whole_duration_text
from inplace.common.injection.agent_pieces import holds_token
from inplace.common.injection.container_resources import agents_own, is_guaranteed, is_pod_guaranteed, users_own
from inplace.common.injection.finding import Finding, shown
from inplace.common.injection.pod_cost import agents_amounts, listed
from inplace.common.injection.pod_roles import Container, Member
from inplace.common.injection.rights import ROLE, binds, is_restricted
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


@dataclass(frozen=True, slots=True)
class Right:
    """One thing an agent does."""

    group: str
    resource: str
    verb: str
    name: str = ""  # of the one object; "" for any

    def __str__(self) -> str:
        """Return it as kubectl auth can-i has it."""
        return f"{self.verb} {self.resource}"


PATCH: Final = Right("", "pods", "patch")
ANNOUNCE: Final = Right("inplace.dev", "epochs", "announce")  # by which admission knows an agent
_SHIPPED: Final = [  # of deploy/rbac/agents.yaml
    {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]} for right in (PATCH, ANNOUNCE)
]


def rights_of(jobset: str) -> list[Right]:
    """Return what an agent of this JobSet does."""
    return [*(Right(wire.API_GROUP, "jobsets", verb, jobset) for verb in ("list", "watch")), PATCH]


def shown_rights(
    stream: Sequence[KubeObject], namespace: str, account: str, asked: Sequence[Right]
) -> list[Right] | None:
    """Return which of these the file gives this account; None when only the cluster can tell."""
    rules: list[Mapping[str, Any]] = []
    bound = False
    for binding in stream:
        place = _metadata(binding).get("namespace") or namespace
        if not binds(binding, namespace, account) or (binding["kind"] == "RoleBinding" and place != namespace):
            continue
        wanted = binding.get("roleRef") or {}
        role = next((one for one in stream if is_object(one, wanted.get("kind"), wanted.get("name"))), None)
        if role is None and (wanted.get("kind"), wanted.get("name")) == ("ClusterRole", ROLE):
            role = {"rules": _SHIPPED}
        if role is None:
            return None  # a Role that is in the cluster already may say anything
        bound = True
        rules += [rule for rule in role.get("rules") or () if isinstance(rule, dict)]
    return [right for right in asked if any(_allows(rule, right) for rule in rules)] if bound else None


def _allows(rule: Mapping[str, Any], right: Right) -> bool:
    pairs = (("apiGroups", right.group), ("resources", right.resource), ("verbs", right.verb))
    names = rule.get("resourceNames") or (right.name,)  # the names of later Pods are not known
    return right.name in names and all({wanted, "*"} & set(rule.get(field) or ()) for field, wanted in pairs)


def is_object(obj: KubeObject, kind: object, name: object, namespace: str | None = None) -> bool:
    """Say whether this is an object of a kind and a name; one without a namespace is in any."""
    is_there = namespace is None or (_metadata(obj).get("namespace") or namespace) == namespace
    return is_there and (obj.get("kind"), _metadata(obj).get("name")) == (kind, name)


def _metadata(obj: KubeObject) -> Mapping[str, Any]:
    return obj.get("metadata") or {}


VARIABLE: Final = "PET_MAX_RESTARTS"  # torchrun's option by its environment
_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")
_SCRIPT_FOLLOWS: Final = ("-m", "--module", "--no-python", "--no_python")
# argparse takes every beginning of --max-restarts that no other option has.
_OPTION: Final = re.compile(r"--max[-_]r[a-z]*")
_QUOTES: Final = re.compile(r"['\"\\]")  # of a shell's text
_BETWEEN: Final = re.compile(r"[\s;&|]+")  # its words
_REFERENCE: Final = re.compile(r"\$[({]?(\w+)[)}]?")


def check_launcher(worker: Container) -> Iterator[Finding]:
    """Yield a torchrun that restarts its workers by itself, by an option or by its environment."""
    own = _own_words([part for word in worker.words for part in _parts(word)])
    if own is None:
        return
    env = worker.values
    given = _given(own)
    path = f"{worker.path}.command"
    if given is None:
        given, path = env.get(VARIABLE, ""), worker.path_of(VARIABLE)
    value = _REFERENCE.sub(lambda match: env.get(match[1], match[0]), given)
    if value.isdecimal() and int(value) > 0:
        fix = "set it to 0, torchrun's default: a failed worker then ends torchrun, and the group restarts in place"
        yield Finding("torchrun-restarts", path, f"torchrun --max-restarts={int(value)}", "0", fix)


def _parts(word: str) -> list[str]:
    """Return the words of a shell's text, or the word itself."""
    return [part for part in _BETWEEN.split(_QUOTES.sub("", word)) if part] if " " in word else [word]


def _own_words(words: Sequence[str]) -> list[str] | None:
    """Return torchrun's options, without those of the script that it starts; None where there is no torchrun."""
    for place, word in enumerate(words):
        if word.rpartition("/")[2] == "torchrun" or word in _MODULES:  # behind -m, or in the text behind -c
            own: list[str] = []
            for option in words[place + 1 :]:
                if option.endswith(".py") or option in _SCRIPT_FOLLOWS:
                    break
                own.append(option)
            return own
    return None


def _given(words: Sequence[str]) -> str | None:
    """Return the value of the last --max-restarts; None without one."""
    given = None
    for word, after in zip(words, [*words[1:], ""], strict=False):
        option, is_one_word, value = word.partition("=")
        if _OPTION.fullmatch(option):
            given = value if is_one_word else after
    return given
