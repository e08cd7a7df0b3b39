"""`inplace lint` explains what keeps a JobSet from restarting in place: one thing broken, one finding, at its path."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.lint import lint
from cli.lint_catalogue import RULES
from cli.lint_embedded import judge
from cli.manifests import parse, read_stream
from common.kube.client import KubeObject
from tests.cli.command import REPOSITORY, RUN_S_MAX, command, run
from tests.cli.injecting import EXAMPLES, example, injected

CLEAN = sorted(path.name for path in EXAMPLES.glob("*.yaml"))
WITHOUT_AGENT = ("monitor.yaml", "elastic-in-place.yaml", "in-place-in-order.yaml")
KNOWN = {name: {"agent-missing"} for name in WITHOUT_AGENT}  # they show something else, and leave the agent out

JOB = 'spec.replicatedJobs[name="workers"].template.spec'
POD = f"{JOB}.template.spec"
WORKER = f'{POD}.containers[name="worker"]'
AGENT = f'{POD}.initContainers[name="agent"]'

Break = Callable[[KubeObject], Any]


def jobset(document: KubeObject) -> KubeObject:
    """Return the spec of the JobSet."""
    spec: KubeObject = document["spec"]
    return spec


def replicated(document: KubeObject) -> KubeObject:
    """Return its replicatedJob."""
    found: KubeObject = document["spec"]["replicatedJobs"][0]
    return found


def job(document: KubeObject) -> KubeObject:
    """Return the spec of its Jobs."""
    found: KubeObject = replicated(document)["template"]["spec"]
    return found


def pod(document: KubeObject) -> KubeObject:
    """Return the spec of its Pods."""
    found: KubeObject = job(document)["template"]["spec"]
    return found


def agent(document: KubeObject) -> KubeObject:
    """Return the agent's container."""
    found: KubeObject = pod(document)["initContainers"][0]
    return found


def worker(document: KubeObject) -> KubeObject:
    """Return the worker's container."""
    found: KubeObject = pod(document)["containers"][0]
    return found


def put(part: Callable[[KubeObject], KubeObject], **fields: Any) -> Break:
    """Return what sets fields of a part; None removes one."""

    def change(document: KubeObject) -> None:
        target = part(document)
        for name, value in fields.items():
            target.pop(name, None)
            if value is not None:
                target[name] = value

    return change


def env(name: str, *, of: Callable[[KubeObject], KubeObject] = agent, **entry: Any) -> Break:
    """Return what replaces a variable; without an entry it is removed."""

    def change(document: KubeObject) -> None:
        container = of(document)
        container["env"] = [one for one in container["env"] if one["name"] != name]
        container["env"] += [{"name": name, **entry}] if entry else []

    return change


def probe(**fields: Any) -> Break:
    """Return what changes the agent's startup probe."""
    return put(lambda document: agent(document)["startupProbe"], **fields)


def rules(*rules: tuple[str, str, list[int]]) -> list[KubeObject]:
    """Return restartPolicyRules."""
    return [
        {"action": action, "exitCodes": {"operator": operator, "values": codes}} for action, operator, codes in rules
    ]


def volume(**source: Any) -> Break:
    """Return what replaces the volume of EPOCH_FILE."""

    def change(document: KubeObject) -> None:
        pod(document)["volumes"][0] = {"name": "agent", **source}

    return change


def policy(*rules: KubeObject) -> Break:
    """Return what adds rules to the failure policy."""
    return put(lambda document: jobset(document)["failurePolicy"], rules=list(rules))


def both(*changes: Break) -> Break:
    """Return what does several things."""
    return lambda document: [change(document) for change in changes]


ALL = "RestartAllContainers"
OTHER = {"name": "other", "image": "other:1", "command": ["other"]}
HELD = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
OPT_OUT = "jobset.sigs.k8s.io/disable-in-place-restart"
TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"

# What is broken in examples/train.yaml; the rule and the path that say so.
BROKEN: list[tuple[Break, str, str]] = [
    (put(job, backoffLimit=6), "backoff-limit", f"{JOB}.backoffLimit"),
    (put(job, backoffLimit=None), "backoff-limit", f"{JOB}.backoffLimit"),
    (put(job, podReplacementPolicy=None), "pod-replacement-policy", f"{JOB}.podReplacementPolicy"),
    (put(job, podReplacementPolicy="TerminatingOrFailed"), "pod-replacement-policy", f"{JOB}.podReplacementPolicy"),
    (put(job, completions=7), "completions", f"{JOB}.completions"),
    (put(job, parallelism=None), "completions", f"{JOB}.completions"),
    (
        both(put(job, completionMode="NonIndexed"), put(jobset, coordinator=None)),
        "completion-mode",
        f"{JOB}.completionMode",
    ),
    (put(job, backoffLimitPerIndex=1), "backoff-limit-per-index", f"{JOB}.backoffLimitPerIndex"),
    (
        put(job, podFailurePolicy={"rules": [HELD]}),
        "pod-failure-policy",
        f"{JOB}.podFailurePolicy.rules[0].onExitCodes.values",
    ),
    (put(jobset, startupPolicy={"startupPolicyOrder": "InOrder"}), "", ""),  # of one replicatedJob
    (put(lambda d: jobset(d)["failurePolicy"], maxRestarts=0), "max-restarts", "spec.failurePolicy.maxRestarts"),
    (put(lambda d: jobset(d)["failurePolicy"], maxRestarts=None), "max-restarts", "spec.failurePolicy.maxRestarts"),
    (
        put(lambda d: jobset(d)["failurePolicy"], restartStrategy="Recreate"),
        "restart-strategy",
        "spec.failurePolicy.restartStrategy",
    ),
    (
        both(
            policy({"action": "FailJobSet", "name": "a"}, {"action": "RestartJobSet", "name": "b"}),
            put(job, activeDeadlineSeconds=9),
        ),
        "unreachable-rule",
        "spec.failurePolicy.rules[1]",
    ),
    (policy({"action": "FailJobSet", "name": "a"}), "rules-without-failures", "spec.failurePolicy.rules[0]"),
    (put(lambda d: jobset(d)["coordinator"], podIndex=8), "spec-problem", "spec.coordinator"),
    (put(lambda d: jobset(d)["coordinator"], replicatedJob="x"), "spec-problem", "spec.coordinator"),
    (put(jobset, suspend="yes"), "spec-problem", "spec"),
    (
        both(put(lambda d: d["metadata"], annotations={"inplace.dev/restart-scope": "Group"}), env("RESTART_SCOPE")),
        "restart-scope",
        f'{AGENT}.env[name="RESTART_SCOPE"]',
    ),
    (env("RESTART_SCOPE", value="a"), "agent-env-source", f'{AGENT}.env[name="RESTART_SCOPE"]'),
    (put(lambda d: d["metadata"], annotations={OPT_OUT: "true"}), "disabled", f'metadata.annotations["{OPT_OUT}"]'),
    (
        put(lambda d: d["metadata"], annotations={STRATEGY: "true"}),
        "exclusive-topology",
        f'metadata.annotations["{STRATEGY}"]',
    ),
    (
        put(lambda d: replicated(d)["template"], metadata={"annotations": {TOPOLOGY: ""}}),
        "exclusive-topology",
        f'spec.replicatedJobs[name="workers"].template.metadata.annotations["{TOPOLOGY}"]',
    ),
    (put(lambda d: replicated(d)["template"], metadata={"annotations": {OPT_OUT: ""}}), "", ""),
    (put(pod, restartPolicy="OnFailure"), "pod-restart-policy", f"{POD}.restartPolicy"),
    (put(pod, initContainers=None), "agent-missing", f"{POD}.initContainers"),
    (put(pod, serviceAccountName="trainer"), "service-account-name", f"{POD}.serviceAccountName"),
    (put(pod, serviceAccountName=None), "service-account", f"{POD}.serviceAccountName"),
    (put(pod, automountServiceAccountToken=False), "service-account-token", f"{POD}.automountServiceAccountToken"),
    (put(pod, terminationGracePeriodSeconds=600), "termination-grace", f"{POD}.terminationGracePeriodSeconds"),
    (put(pod, shareProcessNamespace=True), "shared-processes", f"{POD}.shareProcessNamespace"),
    (put(pod, hostPID=True), "shared-processes", f"{POD}.hostPID"),
    (put(pod, hostNetwork=True), "host-network", f"{POD}.hostNetwork"),
    (lambda d: pod(d)["initContainers"].append(OTHER), "agent-order", f"{POD}.initContainers"),
    (lambda d: pod(d)["initContainers"].insert(0, OTHER), "", ""),
    (lambda d: pod(d)["initContainers"].append({**OTHER, "restartPolicy": "Always"}), "", ""),
    (put(agent, restartPolicy="OnFailure"), "agent-placement", AGENT),
    (
        lambda d: pod(d)["containers"].append(pod(d).pop("initContainers")[0]),
        "agent-placement",
        f'{POD}.containers[name="agent"]',
    ),
    (lambda d: worker(d)["command"].insert(0, "inplace-agent run --"), "agent-twice", AGENT),
    (put(agent, restartPolicyRules=None), "agent-restart-rules", f"{AGENT}.restartPolicyRules"),
    (put(agent, restartPolicyRules=rules((ALL, "In", [88]))), "agent-restart-rules", f"{AGENT}.restartPolicyRules"),
    (
        put(agent, restartPolicyRules=rules(("Restart", "In", [137]), (ALL, "NotIn", [0]))),
        "agent-restart-rules",
        f"{AGENT}.restartPolicyRules",
    ),
    (put(agent, restartPolicyRules=rules((ALL, "NotIn", [0]))), "", ""),
    (put(agent, restartPolicyRules=rules((ALL, "In", [88]), ("Terminate", "NotIn", [88]))), "", ""),
    (put(agent, livenessProbe={"tcpSocket": {"port": 8080}}), "liveness-probe", f"{AGENT}.livenessProbe"),
    (put(agent, lifecycle={"preStop": {"sleep": {"seconds": 9}}}), "pre-stop", f"{AGENT}.lifecycle.preStop"),
    (put(agent, imagePullPolicy="Always"), "image-pull", f"{AGENT}.imagePullPolicy"),
    (put(agent, imagePullPolicy=None), "image-pull", f"{AGENT}.imagePullPolicy"),
    (put(agent, imagePullPolicy=None, image="host:5000/inplace-agent:1.2"), "", ""),
    (put(agent, imagePullPolicy=None, image="inplace-agent@sha256:0"), "", ""),
    (put(agent, startupProbe=None), "startup-probe", f"{AGENT}.startupProbe"),
    (probe(httpGet=None, tcpSocket={"port": 8080}), "startup-probe", f"{AGENT}.startupProbe"),
    (probe(httpGet={"path": "/healthz", "port": 8080}), "startup-probe-target", f"{AGENT}.startupProbe.httpGet.path"),
    (probe(httpGet={"path": "/barrier-is-down", "port": 8080}), "", ""),
    (
        probe(httpGet={"path": "/barrier-is-lifted", "port": 8081}),
        "startup-probe-target",
        f"{AGENT}.startupProbe.httpGet.port",
    ),
    (
        both(
            probe(httpGet={"path": "/barrier-is-lifted", "port": "barrier"}),
            put(agent, ports=[{"name": "barrier", "containerPort": 8080}]),
        ),
        "",
        "",
    ),
    (
        probe(httpGet={"path": "/barrier-is-lifted", "port": 8080, "scheme": "HTTPS"}),
        "startup-probe-target",
        f"{AGENT}.startupProbe.httpGet.scheme",
    ),
    (probe(failureThreshold=600), "startup-probe-patience", f"{AGENT}.startupProbe.failureThreshold"),
    (probe(periodSeconds=None), "startup-probe-period", f"{AGENT}.startupProbe.periodSeconds"),
    (probe(initialDelaySeconds=5), "startup-probe-period", f"{AGENT}.startupProbe.initialDelaySeconds"),
    (env("POD_NAME"), "agent-env", f'{AGENT}.env[name="POD_NAME"]'),
    (env("JOBSET_NAME"), "agent-env", f'{AGENT}.env[name="JOBSET_NAME"]'),
    (env("NAMESPACE"), "", ""),  # the mounted token's is taken
    (env("BARRIER_PORT", value="99999"), "agent-env", f'{AGENT}.env[name="BARRIER_PORT"]'),
    (
        both(env("BARRIER_PORT", value="9000"), env("BARRIER_PORT", of=worker, value="9000")),
        "startup-probe-target",
        f"{AGENT}.startupProbe.httpGet.port",
    ),
    (
        env("RESTART_POD_IN_PLACE_EXIT_CODE", value="0"),
        "agent-env",
        f'{AGENT}.env[name="RESTART_POD_IN_PLACE_EXIT_CODE"]',
    ),
    (env("IN_PLACE_RESTART_EXIT_CODE", value="1"), "agent-env", f'{AGENT}.env[name="IN_PLACE_RESTART_EXIT_CODE"]'),
    (env("BARRIER_PORT", valueFrom={"configMapKeyRef": {"name": "x", "key": "y"}}), "", ""),
    (env("LOG_LEVEL", value="loud"), "agent-env", f'{AGENT}.env[name="LOG_LEVEL"]'),
    (env("LOG_LEVEL", value=3), "env-text", f'{AGENT}.env[name="LOG_LEVEL"].value'),
    (env("WORLD_SIZE", of=worker, value=8), "env-text", f'{WORKER}.env[name="WORLD_SIZE"].value'),
    (env("POD_NAME", value="me"), "agent-env-source", f'{AGENT}.env[name="POD_NAME"]'),
    (env("JOBSET_NAME", value="train"), "", ""),
    (env("JOBSET_NAME", value="trian"), "agent-env-source", f'{AGENT}.env[name="JOBSET_NAME"]'),
    (env("PREVIOUS_EPOCH", value="1"), "agent-env-source", f'{AGENT}.env[name="PREVIOUS_EPOCH"]'),
    (
        env("PREVIOUS_EPOCH", valueFrom={"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/epoch']"}}),
        "agent-env-source",
        f'{AGENT}.env[name="PREVIOUS_EPOCH"]',
    ),
    (
        both(env("BARRIER_ADDRESS", value="127.0.0.1"), env("BARRIER_ADDRESS", of=worker, value="127.0.0.1")),
        "agent-env-source",
        f'{AGENT}.env[name="BARRIER_ADDRESS"]',
    ),
    (env("BARRIER_ADDRESS"), "", ""),
    (env("POD_UID"), "agent-env-recommended", f'{AGENT}.env[name="POD_UID"]'),
    (env("JOBSET_UID"), "agent-env-recommended", f'{AGENT}.env[name="JOBSET_UID"]'),
    (env("PREVIOUS_EPOCH"), "agent-env-recommended", f'{AGENT}.env[name="PREVIOUS_EPOCH"]'),
    (env("EPOCH_FILE"), "epoch-file", f'{AGENT}.env[name="EPOCH_FILE"]'),
    (env("EPOCH_FILE", value="/tmp/epoch"), "epoch-file-volume", f'{AGENT}.env[name="EPOCH_FILE"]'),
    (volume(hostPath={"path": "/tmp"}), "epoch-file-volume", f'{AGENT}.env[name="EPOCH_FILE"]'),
    (volume(persistentVolumeClaim={"claimName": "x"}), "epoch-file-volume", f'{AGENT}.env[name="EPOCH_FILE"]'),
    (
        put(agent, volumeMounts=[{"name": "agent", "mountPath": "/var/run/inplace", "readOnly": True}]),
        "epoch-file-volume",
        f'{AGENT}.env[name="EPOCH_FILE"]',
    ),
    (
        both(env("GROUP_SIZE"), put(job, parallelism=301, completions=301)),
        "herd",
        f'{AGENT}.env[name="GROUP_SIZE"]',
    ),
    (both(env("GROUP_SIZE"), put(job, parallelism=300, completions=300)), "", ""),
    (put(worker, ports=[{"containerPort": 8080}]), "port-conflict", f"{WORKER}.ports[0].containerPort"),
    (put(worker, restartPolicyRules=None), "worker-recreated", f"{WORKER}.restartPolicyRules"),
    (put(worker, restartPolicy=None), "rules-without-policy", f"{WORKER}.restartPolicy"),
    (put(worker, restartPolicy="Always"), "worker-restarts-alone", f"{WORKER}.restartPolicyRules"),
    (
        put(worker, restartPolicyRules=rules(("Restart", "In", [3]), (ALL, "NotIn", [0]))),
        "worker-restarts-alone",
        f"{WORKER}.restartPolicyRules",
    ),
    (put(worker, restartPolicyRules=rules((ALL, "NotIn", [7]))), "worker-success", f"{WORKER}.restartPolicyRules"),
    (put(worker, restartPolicyRules=rules((ALL, "NotIn", [0, 3]))), "", ""),
    (put(worker, lifecycle={"preStop": {"exec": {"command": ["x"]}}}), "pre-stop", f"{WORKER}.lifecycle.preStop"),
    (put(worker, command=["python3", "-m", "examples.train"]), "worker-start", f"{WORKER}.command"),
    (
        put(worker, command=["python3", "-I", "-S", "/var/run/inplace/inplace-agent", "wait", "--", "x"]),
        "worker-file",
        f'{AGENT}.env[name="AGENT_FILE"]',
    ),
    (probe(timeoutSeconds=None), "startup-probe-hold", f"{AGENT}.startupProbe.timeoutSeconds"),
    (env("BARRIER_ADDRESS", of=worker), "worker-wait", f'{WORKER}.env[name="BARRIER_ADDRESS"]'),
]


def findings(documents: list[KubeObject], folder: Path) -> list[tuple[str, str]]:
    """Return (rule, path) of what lint finds."""
    file = folder / "manifest.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return [(finding.rule, finding.path) for report in lint(read_stream(str(file))) for finding in report.findings]


@pytest.mark.parametrize(
    ("change", "rule", "path"), BROKEN, ids=[f"{i}-{rule}" for i, (_, rule, _) in enumerate(BROKEN)]
)
def test_one_thing_broken_is_one_finding(tmp_path: Path, change: Break, rule: str, path: str) -> None:
    """Of that rule and at that path; without a rule it is no fault."""
    documents = list(parse(example("train.yaml")))
    change(documents[-1])
    assert findings(documents, tmp_path) == ([(rule, path)] if rule else [])


SUPERVISOR = f'{POD}.containers[name="worker"]'
SUPERVISED: list[tuple[Break, str, str]] = [
    (
        put(worker, command=["inplace-agent", "run", "--grace", "soon", "--", "x"]),
        "agent-command",
        f"{SUPERVISOR}.command",
    ),
    (put(worker, command=["inplace-agent", "run"]), "agent-command", f"{SUPERVISOR}.command"),
    (env("WORKER_GRACE_S", of=worker, value="soon"), "agent-command", f"{SUPERVISOR}.command"),
    (env("POD_NAME", of=worker), "agent-env", f'{SUPERVISOR}.env[name="POD_NAME"]'),
    (env("EPOCH_FILE", of=worker), "", ""),
    (env("EPOCH_FILE", of=worker, value="/tmp/x"), "epoch-file-volume", f'{SUPERVISOR}.env[name="EPOCH_FILE"]'),
    (put(worker, imagePullPolicy="Always"), "", ""),
    (put(worker, command=["sh", "-c", "exec inplace-agent run -- python3 train.py"]), "", ""),
    (put(worker, command=["python3", "-I", "-S", "/x/inplace-agent.pyz", "run", "--", "x"]), "", ""),
    (put(worker, command=["python3", "train.py"]), "agent-placement", f'{POD}.containers[name="worker"]'),
    (put(job, backoffLimit=3), "backoff-limit", f"{JOB}.backoffLimit"),
]


@pytest.mark.parametrize(
    ("change", "rule", "path"), SUPERVISED, ids=[f"{i}-{r}" for i, (_, r, _) in enumerate(SUPERVISED)]
)
def test_one_thing_broken_under_a_supervisor(tmp_path: Path, change: Break, rule: str, path: str) -> None:
    """The same for examples/train-supervisor.yaml."""
    documents = list(parse(example("train-supervisor.yaml")))
    change(documents[-1])
    found = findings(documents, tmp_path)
    assert found[:1] == ([(rule, path)] if rule else [])


RIGHTS = [
    ({"verbs": ["get", "list"]}, 0, ["list"]),
    ({"verbs": ["*"], "resources": ["*"], "apiGroups": ["*"]}, 0, []),
    ({"verbs": ["get"]}, 1, []),
    ({"resourceNames": ["a"]}, 1, []),
]


@pytest.mark.parametrize("index", range(4))
def test_rights_that_the_file_shows(tmp_path: Path, index: int) -> None:
    """A Role of the same file that leaves out what the agent needs is a finding; one that says more is none."""
    changes, rule, _ = RIGHTS[index]
    documents = list(parse(example("train.yaml")))
    documents[1]["rules"][rule] |= changes
    expected = [] if index == 1 else [("service-account-rights", f"{POD}.serviceAccountName")]
    assert findings(documents, tmp_path) == expected


def test_rights_that_the_file_does_not_show_are_the_cluster_s_business(tmp_path: Path) -> None:
    """A JobSet alone is clean."""
    assert findings([list(parse(example("train.yaml")))[-1]], tmp_path) == []


def test_an_account_that_mounts_no_token(tmp_path: Path) -> None:
    """It may be the ServiceAccount that says so; a projected token in the agent alone is as good."""
    documents = list(parse(example("train.yaml")))
    documents[0]["automountServiceAccountToken"] = False
    assert findings(documents, tmp_path) == [("service-account-token", f"{POD}.automountServiceAccountToken")]
    agent(documents[-1])["volumeMounts"].append(
        {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    )
    assert findings(documents, tmp_path) == []


def test_an_order_inside_the_group(tmp_path: Path) -> None:
    """Sidecars that wait for each other's readiness cost a restart; supervisors are ready while they wait."""
    for name, expected in (("train.yaml", 1), ("train-supervisor.yaml", 0)):
        documents = list(parse(example(name)))
        first = replicated(documents[-1])
        second = json.loads(json.dumps(first)) | {"name": "b", "dependsOn": [{"name": "workers", "status": "Ready"}]}
        jobset(documents[-1])["replicatedJobs"].append(second)
        assert [rule for rule, _ in findings(documents, tmp_path)] == ["startup-order"] * expected


UPSTREAM = """
name: agent
image: registry.example/in-place-restart-agent:v1
restartPolicy: Always
restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: NotIn, values: [0]}}]
env:
- {name: JOBSET_NAME, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['jobset.sigs.k8s.io/jobset-name']"}}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
startupProbe: {httpGet: {path: /barrier-is-down, port: 8081}, periodSeconds: 1, failureThreshold: 600}
"""


def test_a_manifest_for_upstream_s_agent_has_no_error(tmp_path: Path) -> None:
    """Swapping the image works: its variables, path and port are taken as they are; what we add is recommended."""
    documents = list(parse(example("train.yaml")))
    pod(documents[-1])["initContainers"] = [yaml.safe_load(UPSTREAM)]
    worker(documents[-1])["command"] = ["python3", "-m", "examples.train"]
    found = [rule for rule, _ in findings(documents, tmp_path)]
    assert {RULES[rule].severity for rule in found} == {"warning"}
    assert set(found) == {"agent-env-recommended", "epoch-file", "startup-probe-patience"}
    agent(documents[-1])["startupProbe"]["httpGet"]["port"] = 8080
    assert ("startup-probe-target", f"{AGENT}.startupProbe.httpGet.port") in findings(documents, tmp_path)


@pytest.mark.parametrize("name", CLEAN)
def test_an_example_is_clean(name: str) -> None:
    """But for what it says of itself."""
    found = {finding.rule for report in lint(read_stream(str(EXAMPLES / name))) for finding in report.findings}
    assert found == KNOWN.get(name, set())


@pytest.mark.parametrize("options", [{}, {"wait": False}, {"mode": "supervisor"}, {"port": 9000}], ids=str)
@pytest.mark.parametrize("name", ["plain.yaml", "monitor.yaml", "elastic.yaml"])
def test_what_inject_makes_is_clean(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    """Show 6 of issue 6; images without a tag are the examples' own."""
    file = tmp_path / "injected.yaml"
    file.write_text(injected(example(name), tmp_path, **options))
    rules = {finding.rule for report in lint(read_stream(str(file))) for finding in report.findings}
    asked_for = {"worker-start"} if options.get("wait") is False else set()
    assert rules - asked_for <= ({"image-pull", "rules-without-failures"} if name != "plain.yaml" else set())


def test_every_rule_about_manifests_is_broken_once_here() -> None:
    """A rule of the catalogue that no case reaches may as well not exist."""
    reached = {rule for _, rule, _ in (*BROKEN, *SUPERVISED)} | {"service-account-rights", "startup-order"}
    catalogue = list(RULES)
    reached.add("admission")  # test_the_embedded_server_judges_too
    manifest = set(catalogue[: catalogue.index("cluster-unknown")])
    assert manifest - reached == set()
    assert reached - {""} <= set(RULES)


def test_as_a_program(tmp_path: Path) -> None:
    """0 clean, 1 with an error, or with warnings under --strict; JSON for programs, colours for terminals alone."""
    made = run("inject", "-q", "-f", "examples/plain.yaml")
    shown = subprocess.run(
        command("lint", "-f", "-"),
        cwd=REPOSITORY,
        input=made.stdout,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert (shown.returncode, shown.stdout) == (0, "JobSet default/plain: clean\n"), shown.stderr
    documents = list(parse(example("train.yaml")))
    agent(documents[-1])["imagePullPolicy"] = "Always"
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    assert [run("lint", "-f", str(file), *more).returncode for more in ((), ("--strict",))] == [0, 1]
    job(documents[-1])["backoffLimit"] = 6
    file.write_text(yaml.safe_dump_all(documents))
    text, machine = run("lint", "-f", str(file)), run("lint", "-f", str(file), "-o", "json")
    assert (text.returncode, machine.returncode) == (1, 1)
    assert f"error backoff-limit in JobSet default/train\n  at     {JOB}.backoffLimit\n  found  6\n" in text.stdout
    assert "\033" not in text.stdout
    said = json.loads(machine.stdout)
    assert (said["errors"], said["warnings"], said["jobsets"]) == (1, 1, ["JobSet default/train"])
    assert set(said["findings"][0]) == {"object", "rule", "severity", "path", "found", "needed", "why", "fix"}


def test_the_embedded_server_judges_too() -> None:
    """What only the definition knows: misspelt fields of the JobSet, its schema, its CEL; nothing for a sound one."""
    sound, misspelt, long = (list(parse(example("train.yaml")))[-1] for _ in range(3))
    misspelt["spec"]["failurePolice"] = {}
    long["metadata"]["annotations"] = {"x": 3}
    found = judge([sound, misspelt, long])
    assert [[(finding.rule, finding.path) for finding in findings] for findings in found[:2]] == [
        [],
        [("admission", "spec.failurePolice")],
    ]
    assert [finding.rule for finding in found[2]] == ["admission"]


@pytest.mark.parametrize("file", ["/nowhere.yaml", "examples", "README.md", "deploy/rbac/controller.yaml"])
def test_what_is_no_manifest_is_said_in_words(file: str) -> None:
    """Exit code 2, on stderr."""
    result = run("lint", "-f", file)
    assert (result.returncode, result.stdout) == (2, "")
    assert "expected" in result.stderr
    assert "Traceback" not in result.stderr
