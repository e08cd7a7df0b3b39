"""Manifests with one mistake each, the rule that reports it, and its path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inplace.cli.lint.pieces import Reason
from inplace.common.injection.agent_pieces import startup_probe
from inplace.common.kube.resources import KubeObject
from inplace.common.wire.names import AGENT as AGENT_ANNOTATION
from inplace.common.wire.names import RESTART, RESTART_DEPTH

JOB = 'spec.replicatedJobs[name="workers"].template.spec'
POD = f"{JOB}.template.spec"
WORKER = f'{POD}.containers[name="worker"]'
AGENT = f'{POD}.initContainers[name="agent"]'
COMMAND, RULES_OF_WORKER = f"{WORKER}.command", f"{WORKER}.restartPolicyRules"
INITS = f"{POD}.initContainers"
PROBE, RULES_OF_AGENT = f"{AGENT}.startupProbe", f"{AGENT}.restartPolicyRules"
LIFTED: KubeObject = {"path": "/barrier-is-lifted", "port": 8080}
HEALTH: KubeObject = LIFTED | {"path": "/healthz"}
GUARANTEED: KubeObject = {"limits": {"cpu": "4", "memory": "8Gi"}}

Break = Callable[[KubeObject], Any]
Part = Callable[[KubeObject], KubeObject]
Rule = str | Reason  # a rule of the catalogue, or what a piece of the template that differs costs


def at(variable: str, container: str = AGENT) -> str:
    """Return the path of a variable."""
    return f'{container}.env[name="{variable}"]'


def annotation(name: str) -> str:
    """Return the path of an annotation of the JobSet."""
    return f'metadata.annotations["{name}"]'


def part(*keys: str | int) -> Part:
    """Return a function that finds a part of a JobSet, by the keys that lead there."""

    def find(document: KubeObject) -> KubeObject:
        found = document
        for key in keys:
            found = found[key]  # type: ignore[index]
        return found

    return find


_REPLICATED = ("spec", "replicatedJobs", 0)
_JOB = (*_REPLICATED, "template", "spec")
_POD = (*_JOB, "template", "spec")
jobset = part("spec")
metadata = part("metadata")
failure_policy = part("spec", "failurePolicy")
replicated = part(*_REPLICATED)
job_template = part(*_REPLICATED, "template")
job = part(*_JOB)
template = part(*_JOB, "template")  # of Pods
pod = part(*_POD)
agent = part(*_POD, "initContainers", 0)
worker = part(*_POD, "containers", 0)


def unmount(name: str, *, of: Part = agent) -> Break:
    """Return a change that takes a volume from a container."""

    def change(document: KubeObject) -> None:
        of(document)["volumeMounts"] = [mount for mount in of(document)["volumeMounts"] if mount["name"] != name]

    return change


def mounted(name: str, path: str) -> Break:
    """Return a change that mounts a volume into the worker."""
    return lambda document: worker(document)["volumeMounts"].append({"name": name, "mountPath": path})


def depth(text: str) -> Break:
    """Return a change that sets the JobSet's depth of a restart."""
    return put(metadata, annotations={RESTART: text})


def put(place: Part, **fields: Any) -> Break:
    """Return a change that sets fields of a part; None removes a field."""

    def change(document: KubeObject) -> None:
        target = place(document)
        for name, value in fields.items():
            target.pop(name, None)
            if value is not None:
                target[name] = value

    return change


def env(name: str, *, of: Part = agent, **entry: Any) -> Break:
    """Return a change that replaces a variable; without an entry it removes the variable."""

    def change(document: KubeObject) -> None:
        container = of(document)
        container["env"] = [one for one in container["env"] if one["name"] != name]
        container["env"] += [{"name": name, **entry}] if entry else []

    return change


def probe(**fields: Any) -> Break:
    """Return a change of the agent's startup probe."""
    return put(lambda document: agent(document)["startupProbe"], **fields)


def ruled(place: Part, *rules: tuple[str, str, list[int]]) -> Break:
    """Return a change of a container's restartPolicyRules, each an action, an operator and exit codes."""
    made = [
        {"action": action, "exitCodes": {"operator": operator, "values": codes}} for action, operator, codes in rules
    ]
    return put(place, restartPolicyRules=made)


def runs(*words: str) -> Break:
    """Return a change of the worker's command."""
    return put(worker, command=list(words))


def volume(**source: Any) -> Break:
    """Return a change that replaces the volume of EPOCH_FILE."""

    def change(document: KubeObject) -> None:
        pod(document)["volumes"][0] = {"name": "agent", **source}

    return change


def policy(*rules: KubeObject) -> Break:
    """Return a change that adds rules to the failure policy."""
    return put(failure_policy, rules=list(rules))


def both(*changes: Break) -> Break:
    """Return a change that makes several changes."""
    return lambda document: [change(document) for change in changes]


ALL = "RestartAllContainers"
ASKED: KubeObject = {"exec": {"command": ["cat", "/ready"]}}
UNGUARDED = {
    "name": "two",
    "image": "two:1",
    "command": ["two"],
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": ALL, "exitCodes": {"operator": "NotIn", "values": [0]}}],
}
METRICS = {"name": "metrics", "image": "metrics:1"}
OTHER = {"name": "other", "image": "other:1", "command": ["other"]}
HELD = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
CODE = "CONTAINER_RESTART_EXIT_CODE"
OPT_OUT = "jobset.sigs.k8s.io/disable-in-place-restart"
TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"

# A mistake in examples/train.yaml, and the rule and path of its finding.
BROKEN: list[tuple[Break, Rule, str]] = [
    (put(job, backoffLimit=6), Reason.BACKOFF_LIMIT, f"{JOB}.backoffLimit"),
    (put(job, backoffLimit=None), Reason.BACKOFF_LIMIT, f"{JOB}.backoffLimit"),
    (put(job, podReplacementPolicy=None), Reason.REPLACEMENT, f"{JOB}.podReplacementPolicy"),
    (put(job, podReplacementPolicy="TerminatingOrFailed"), Reason.REPLACEMENT, f"{JOB}.podReplacementPolicy"),
    (put(job, completions=7), Reason.COMPLETIONS, f"{JOB}.completions"),
    (put(job, parallelism=None), Reason.COMPLETIONS, f"{JOB}.completions"),
    (put(job, parallelism=0), Reason.COMPLETIONS, f"{JOB}.completions"),
    (
        both(put(job, completionMode="NonIndexed"), put(jobset, coordinator=None)),
        Reason.COMPLETION_MODE,
        f"{JOB}.completionMode",
    ),
    (put(job, backoffLimitPerIndex=1), Reason.INDEX_LIMIT, f"{JOB}.backoffLimitPerIndex"),
    (
        put(job, podFailurePolicy={"rules": [HELD]}),
        "unreachable-rule",
        f"{JOB}.podFailurePolicy.rules[0].onExitCodes.values",
    ),
    (put(jobset, startupPolicy={"startupPolicyOrder": "InOrder"}), "", ""),  # of one replicatedJob
    (put(failure_policy, maxRestarts=0), "max-restarts", "spec.failurePolicy.maxRestarts"),
    (put(failure_policy, maxRestarts=None), "max-restarts", "spec.failurePolicy.maxRestarts"),
    (put(failure_policy, restartStrategy="Recreate"), "not-in-place", "spec.failurePolicy.restartStrategy"),
    (
        both(
            policy({"action": "FailJobSet", "name": "a"}, {"action": "RestartJobSet", "name": "b"}),
            put(job, podFailurePolicy={"rules": []}),
        ),
        "unreachable-rule",
        "spec.failurePolicy.rules[1]",
    ),
    (policy({"action": "FailJobSet", "name": "a"}), "unreachable-rule", "spec.failurePolicy.rules[0]"),
    (put(worker, image="${IMAGE}:1"), "unexpanded-variable", f"{WORKER}.image"),
    (put(worker, image="<REGISTRY>/train:1"), "unexpanded-variable", f"{WORKER}.image"),
    (put(pod, nodeSelector={"pool": "<pool>"}), "unexpanded-variable", f"{POD}.nodeSelector.pool"),
    (put(metadata, name="$NAME"), "unexpanded-variable", "metadata.name"),
    (
        put(replicated, replicas="{{ .Values.replicas }}"),
        "unexpanded-variable",
        f"{JOB.split('.template')[0]}.replicas",
    ),
    (put(worker, args=["--name=$(NAME)", "${SHELL}"]), "", ""),  # kubelet's and the shell's own
    (put(metadata, annotations={"inplace.dev/stal-after": "60"}), "no-effect", annotation("inplace.dev/stal-after")),
    (put(part("spec", "coordinator"), podIndex=8), "spec-problem", "spec.coordinator"),
    (put(part("spec", "coordinator"), replicatedJob="x"), "spec-problem", "spec.coordinator"),
    (put(jobset, suspend="yes"), "spec-problem", "spec"),
    (
        both(put(metadata, annotations={"inplace.dev/restart-scope": "Group"}), env("RESTART_SCOPE")),
        Reason.SETTING,
        at("RESTART_SCOPE"),
    ),
    (env("RESTART_SCOPE", value="a"), Reason.SETTING, at("RESTART_SCOPE")),
    (put(metadata, annotations={OPT_OUT: "true"}), "not-in-place", annotation(OPT_OUT)),
    (put(metadata, annotations={STRATEGY: "true"}), "no-effect", annotation(STRATEGY)),
    (
        put(job_template, metadata={"annotations": {TOPOLOGY: ""}}),
        "no-effect",
        f'spec.replicatedJobs[name="workers"].template.metadata.annotations["{TOPOLOGY}"]',
    ),
    (put(job_template, metadata={"annotations": {OPT_OUT: ""}}), "", ""),
    (put(pod, restartPolicy="OnFailure"), "", ""),  # each container has its own, and no limit counts, as upstream's
    (
        both(put(pod, restartPolicy="OnFailure"), lambda d: pod(d)["containers"].append(METRICS)),
        Reason.POD_POLICY,
        f"{POD}.restartPolicy",
    ),
    (
        both(put(pod, initContainers=None), unmount("progress", of=worker)),
        "agent-not-added",
        f"{WORKER}.volumeMounts[0]",
    ),
    (both(put(metadata, annotations={AGENT_ANNOTATION: "off"}), put(pod, initContainers=None)), "agent-missing", INITS),
    (put(pod, serviceAccountName=None), "service-account", f"{POD}.serviceAccountName"),
    (unmount("token"), "service-account-token", f"{POD}.automountServiceAccountToken"),
    (put(pod, automountServiceAccountToken=None), "token-readable", WORKER),
    (put(pod, automountServiceAccountToken=True), "token-readable", WORKER),
    (lambda d: worker(d)["volumeMounts"].append({"name": "token", "mountPath": "/t"}), "token-readable", WORKER),
    (depth("process"), "", ""),
    (both(depth("process"), env("RESTART_DEPTH")), Reason.SETTING, at("RESTART_DEPTH")),
    (both(depth("process"), env("RESTART_DEPTH", value="containers")), Reason.SETTING, at("RESTART_DEPTH")),
    (both(depth("process"), env("RESTART_DEPTH", value="process")), "", ""),
    (depth("containers"), "", ""),
    (depth("deep"), "spec-problem", "metadata.annotations[inplace.dev/restart].depth"),
    (put(template, metadata={"annotations": {RESTART_DEPTH: "deep"}}), "agent-env", at("RESTART_DEPTH")),
    (put(pod, terminationGracePeriodSeconds=600), "termination-grace", f"{POD}.terminationGracePeriodSeconds"),
    (put(pod, shareProcessNamespace=True), "shared-processes", f"{POD}.shareProcessNamespace"),
    (put(pod, hostPID=True), "shared-processes", f"{POD}.hostPID"),
    (put(pod, hostNetwork=True), "host-network", f"{POD}.hostNetwork"),
    (lambda d: pod(d)["initContainers"].append(OTHER), Reason.ORDER, f"{POD}.initContainers"),
    (lambda d: pod(d)["initContainers"].insert(0, OTHER), "", ""),
    (lambda d: pod(d)["initContainers"].append({**OTHER, "restartPolicy": "Always"}), "", ""),
    (put(agent, restartPolicy="OnFailure"), Reason.PLACEMENT, AGENT),
    (
        lambda d: pod(d)["containers"].append(pod(d).pop("initContainers")[0]),
        Reason.PLACEMENT,
        f'{POD}.containers[name="agent"]',
    ),
    (lambda d: worker(d)["command"].insert(0, "inplace-agent run --"), "agent-twice", AGENT),
    (put(agent, restartPolicyRules=None), Reason.AGENT_ALONE, RULES_OF_AGENT),
    (ruled(agent, (ALL, "In", [88])), Reason.AGENT_ALONE, RULES_OF_AGENT),
    (ruled(agent, ("Restart", "In", [137]), (ALL, "NotIn", [0])), Reason.AGENT_ALONE, RULES_OF_AGENT),
    (ruled(agent, (ALL, "NotIn", [0])), "", ""),
    (ruled(agent, (ALL, "In", [88]), ("Terminate", "NotIn", [88])), "", ""),
    (put(agent, livenessProbe={"tcpSocket": {"port": 8080}}), Reason.LIVENESS, f"{AGENT}.livenessProbe"),
    (put(agent, lifecycle={"preStop": {"sleep": {"seconds": 9}}}), "pre-stop", f"{AGENT}.lifecycle.preStop"),
    (put(job, activeDeadlineSeconds=14400), "active-deadline", f"{JOB}.activeDeadlineSeconds"),
    (put(pod, activeDeadlineSeconds=9), "active-deadline", f"{POD}.activeDeadlineSeconds"),
    (put(worker, resources=GUARANTEED), "pod-class", f"{AGENT}.resources"),
    (both(put(worker, resources=GUARANTEED), put(agent, resources=GUARANTEED)), "", ""),
    (put(worker, resources={"limits": {"cpu": "1"}}), "", ""),
    (both(put(worker, resources=GUARANTEED), put(pod, resources=GUARANTEED)), "", ""),
    (put(agent, imagePullPolicy="Always"), "image-pull", f"{AGENT}.imagePullPolicy"),
    (put(agent, imagePullPolicy=None), "image-pull", f"{AGENT}.imagePullPolicy"),
    (put(agent, imagePullPolicy=None, image="host:5000/inplace-agent:1.2"), "", ""),
    (put(agent, imagePullPolicy=None, image="inplace-agent@sha256:0"), "", ""),
    (env("POD_NAME"), Reason.REFUSED, at("POD_NAME")),
    (env("JOBSET_NAME"), Reason.REFUSED, at("JOBSET_NAME")),
    (env("NAMESPACE"), "", ""),  # the mounted token's is taken
    (env("BARRIER_PORT", value="99999"), "agent-env", at("BARRIER_PORT")),
    (env("RESTART_POD_IN_PLACE_EXIT_CODE", value="0"), "agent-env", at("RESTART_POD_IN_PLACE_EXIT_CODE")),
    (
        both(env("RESTART_POD_IN_PLACE_EXIT_CODE", value="88"), env("IN_PLACE_RESTART_EXIT_CODE", value="1")),
        "agent-env",
        at("IN_PLACE_RESTART_EXIT_CODE"),
    ),
    (env("BARRIER_PORT", valueFrom={"configMapKeyRef": {"name": "x", "key": "y"}}), "", ""),
    (env("LOG_LEVEL", value="loud"), "agent-env", at("LOG_LEVEL")),
    (env("LOG_LEVEL", value=3), "admission", f'{AGENT}.env[name="LOG_LEVEL"].value'),
    (env("WORLD_SIZE", of=worker, value=8), "admission", f'{WORKER}.env[name="WORLD_SIZE"].value'),
    (env("POD_NAME", value="me"), Reason.SOURCE, at("POD_NAME")),
    (env("JOBSET_NAME", value="train"), "", ""),
    (env("JOBSET_NAME", value="trian"), Reason.SOURCE, at("JOBSET_NAME")),
    (env("PREVIOUS_EPOCH", value="1"), Reason.SOURCE, at("PREVIOUS_EPOCH")),
    (
        env("PREVIOUS_EPOCH", valueFrom={"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/epoch']"}}),
        Reason.SOURCE,
        at("PREVIOUS_EPOCH"),
    ),
    (env("BARRIER_ADDRESS", value="127.0.0.1"), Reason.SOURCE, at("BARRIER_ADDRESS")),
    (env("BARRIER_ADDRESS"), "", ""),
    (env("POD_UID"), Reason.RECOMMENDED, at("POD_UID")),
    (env("JOBSET_UID"), Reason.RECOMMENDED, at("JOBSET_UID")),
    (env("PREVIOUS_EPOCH"), Reason.RECOMMENDED, at("PREVIOUS_EPOCH")),
    (env("EPOCH_FILE"), Reason.NO_EPOCH_FILE, at("EPOCH_FILE")),
    (env("EPOCH_FILE", value="/tmp/epoch"), Reason.EPOCH_FILE, at("EPOCH_FILE")),
    (volume(hostPath={"path": "/tmp"}), Reason.EPOCH_FILE, at("EPOCH_FILE")),
    (volume(persistentVolumeClaim={"claimName": "x"}), Reason.EPOCH_FILE, at("EPOCH_FILE")),
    (lambda d: agent(d)["volumeMounts"][0].update(readOnly=True), Reason.EPOCH_FILE, at("EPOCH_FILE")),
    (both(env("GROUP_SIZE"), put(job, parallelism=301, completions=301)), Reason.HERD, at("GROUP_SIZE")),
    (both(env("GROUP_SIZE"), put(job, parallelism=300, completions=300)), "", ""),
    (put(worker, ports=[{"containerPort": 8080}]), "port-conflict", f"{WORKER}.ports[0].containerPort"),
    (put(worker, restartPolicyRules=None), Reason.NOT_IN_PLACE, RULES_OF_WORKER),
    (put(worker, restartPolicy=None), "admission", f"{WORKER}.restartPolicy"),
    (put(worker, restartPolicy="Always"), Reason.ALONE, RULES_OF_WORKER),
    (ruled(worker, ("Restart", "In", [3]), (ALL, "NotIn", [0])), Reason.ALONE, RULES_OF_WORKER),
    (ruled(worker, (ALL, "NotIn", [7])), Reason.SUCCESS, RULES_OF_WORKER),
    (ruled(worker, (ALL, "NotIn", [0, 3])), "", ""),
    (put(worker, lifecycle={"preStop": {"exec": {"command": ["x"]}}}), "pre-stop", f"{WORKER}.lifecycle.preStop"),
]


# The same for the startup probe instead of guards, where lint names each worker as well.
PROBED: list[tuple[Break, Rule, str]] = [
    (lambda _: None, "", ""),
    (put(agent, startupProbe=None), Reason.PROBE, PROBE),
    (probe(httpGet=None, tcpSocket={"port": 8080}), Reason.PROBE, PROBE),
    (probe(httpGet=HEALTH), Reason.TARGET, f"{PROBE}.httpGet.path"),
    (probe(httpGet={"path": "/barrier-is-down", "port": 8080}), "", ""),
    (probe(httpGet=LIFTED | {"port": 8081}), Reason.TARGET, f"{PROBE}.httpGet.port"),
    (
        both(
            probe(httpGet=LIFTED | {"port": "barrier"}), put(agent, ports=[{"name": "barrier", "containerPort": 8080}])
        ),
        "",
        "",
    ),
    (probe(httpGet=LIFTED | {"scheme": "HTTPS"}), Reason.TARGET, f"{PROBE}.httpGet.scheme"),
    (probe(failureThreshold=600), Reason.PATIENCE, f"{PROBE}.failureThreshold"),
    (probe(periodSeconds=None), Reason.PERIOD, f"{PROBE}.periodSeconds"),
    (probe(initialDelaySeconds=5), Reason.PERIOD, f"{PROBE}.initialDelaySeconds"),
    (env("BARRIER_PORT", value="9000"), Reason.TARGET, f"{PROBE}.httpGet.port"),
    (probe(timeoutSeconds=None), Reason.HOLD, f"{PROBE}.timeoutSeconds"),
]


GUARDED: list[tuple[Break, Rule, str]] = [
    (runs("python3", "train.py"), Reason.PROBE, PROBE),
    (runs("inplace-agent", "--", "x"), Reason.PROBE, PROBE),
    (runs("inplace-agent", "guard"), "agent-command", COMMAND),
    (runs("inplace-agent", "guard", "--grace", "soon", "--", "x"), "agent-command", COMMAND),
    (runs("sh", "-c", "exec inplace-agent guard -- x"), "", ""),
    (env("LINK_FILE"), Reason.LINK, at("LINK_FILE")),
    (env("LINK_FILE", of=worker), "", ""),
    (env("LINK_FILE", of=worker, value="/x/link"), Reason.LINK, at("LINK_FILE", WORKER)),
    (unmount("agent", of=worker), Reason.LINK, f"{WORKER}.volumeMounts"),
    (unmount("progress", of=worker), Reason.LINK, f"{WORKER}.volumeMounts"),
    (unmount("progress", of=agent), Reason.LINK, f"{WORKER}.volumeMounts"),
    (lambda d: worker(d)["volumeMounts"][0].pop("readOnly"), Reason.WRITABLE, f"{WORKER}.volumeMounts.readOnly"),
    (
        both(unmount("agent", of=worker), mounted("checkpoints", "/var/run/inplace")),
        Reason.LINK,
        f"{WORKER}.volumeMounts",
    ),
    (unmount("inplace", of=worker), Reason.PROGRAM, f'{WORKER}.volumeMounts[mountPath="/inplace"]'),
    (both(unmount("inplace", of=worker), runs("inplace-agent", "guard", "--", "x")), "", ""),
    (runs("/inplace/bin/guard", "--grace", "soon", "--", "x"), "agent-command", COMMAND),
    (
        env(
            "EPOCH",
            of=worker,
            valueFrom={"fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/epoch']"}},
        ),
        "guard-epoch",
        at("EPOCH", WORKER),
    ),
    (both(depth("containers"), runs("inplace-agent", "guard", "--standby", "--", "x")), "no-effect", COMMAND),
    (both(depth("containers"), env("WORKER_STANDBY", of=worker, value="on")), "no-effect", COMMAND),
    (env("WORKER_STANDBY", of=worker, value="on"), "", ""),
    (both(depth("containers"), env("WORKER_STANDBY", of=worker, value="always")), "", ""),
    (put(agent, startupProbe={"httpGet": {"port": 8080}}), Reason.SECOND_BARRIER, PROBE),
    (put(agent, readinessProbe=None), Reason.READINESS, f"{AGENT}.readinessProbe"),
    (put(worker, livenessProbe=ASKED), "worker-probe", WORKER),
    (both(depth("containers"), put(worker, startupProbe=ASKED)), "worker-probe", WORKER),
    (put(worker, lifecycle={"postStart": ASKED}), "worker-probe", WORKER),
    (put(worker, readinessProbe=ASKED), "", ""),
    (
        both(
            depth("containers"),
            put(worker, livenessProbe=ASKED),
            put(agent, startupProbe=startup_probe(), readinessProbe=None),
        ),
        "",
        "",
    ),
    (
        lambda document: pod(document)["containers"].append(UNGUARDED),
        Reason.NO_GUARD,
        f'{POD}.containers[name="two"].command',
    ),
]

SUPERVISED: list[tuple[Break, Rule, str]] = [
    (runs("inplace-agent", "run", "--grace", "soon", "--", "x"), "agent-command", COMMAND),
    (runs("inplace-agent", "run"), "agent-command", COMMAND),
    (env("WORKER_GRACE_S", of=worker, value="soon"), "agent-command", COMMAND),
    (env("POD_NAME", of=worker), Reason.REFUSED, at("POD_NAME", WORKER)),
    (env("EPOCH_FILE", of=worker), Reason.NO_EPOCH_FILE, at("EPOCH_FILE", WORKER)),
    (both(env("EPOCH_FILE", of=worker), env(CODE, of=worker)), Reason.SUPERVISOR, at(CODE, WORKER)),
    (env(CODE, of=worker, value=None), Reason.SUPERVISOR, at(CODE, WORKER)),
    (ruled(worker, ("Restart", "In", [89])), Reason.SUPERVISOR, RULES_OF_WORKER),
    (put(worker, restartPolicyRules=None, restartPolicy="OnFailure"), "", ""),
    (ruled(worker, (ALL, "In", [88, 137])), "", ""),
    (env("EPOCH_FILE", of=worker, value="/tmp/x"), Reason.EPOCH_FILE, at("EPOCH_FILE", WORKER)),
    (put(worker, imagePullPolicy="Always"), "", ""),
    (runs("sh", "-c", "exec inplace-agent run -- python3 train.py"), "", ""),
    (runs("python3", "-I", "-S", "/x/inplace-agent", "run", "--", "x"), "", ""),
    (runs("python3", "train.py"), "template-broken", f'{POD}.containers[name="worker"]'),
    (put(job, backoffLimit=3), Reason.BACKOFF_LIMIT, f"{JOB}.backoffLimit"),
]
