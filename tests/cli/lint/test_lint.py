"""`inplace lint` finds what prevents a JobSet's in-place restart: each mistake gives one finding, at its path."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from inplace.cli.lint.admission import judge
from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.pieces import Reason
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.injection.finding import Finding
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.bounds import INT32_MAX
from inplace.simulator.cluster.manifests import held_by_probe
from tests.cli.command import run, run_here
from tests.cli.injecting import EXAMPLES, SILENT, as_yaml, documents_of, example, findings_of, injected, saved
from tests.cli.lint.cases import (
    BROKEN,
    COMMAND,
    GUARDED,
    HEALTH,
    JOB,
    POD,
    PROBED,
    SUPERVISED,
    Break,
    Rule,
    agent,
    job,
    jobset,
    pod,
    probe,
    put,
    replicated,
    worker,
)
from tests.cli.lint.stall_cases import FENCES, SAVINGS, STALLS, UNWATCHED

CLEAN = sorted(path.name for path in EXAMPLES.glob("*.yaml"))
KNOWN = {"in-place-in-order.yaml": {"startup-order"}}


def findings(*documents: KubeObject) -> list[tuple[Rule, str]]:
    """Return (rule, path) of lint's findings; for one that differs in one piece its reason is the rule."""
    return [(_rule_of(finding), finding.path) for finding in findings_of(*documents)]


def _rule_of(finding: Finding) -> Rule:
    """Return the rule, or the only reason of a template that differs, whose lines show both sides."""
    lines = finding.found.split("\n")
    reasons = {reason for reason in Reason if f"  {reason.why}" in lines}
    if not reasons:
        return finding.rule
    assert [line[0] for line in lines] == ["-", "+", " "] * (len(lines) // 3)
    assert RULES[finding.rule].severity == min(reason.severity for reason in reasons)  # "error" is the lesser text
    return reasons.pop() if len(reasons) == 1 else finding.rule


ALONE = [("train", *case) for case in BROKEN] + STALLS + SAVINGS + FENCES
FIRST = [("train", *case) for case in GUARDED] + [("train-supervisor", *case) for case in SUPERVISED]


@pytest.mark.parametrize(("name", "change", "rule", "path"), ALONE, ids=range(len(ALONE)))
def test_one_thing_broken_is_one_finding(name: str, change: Break, rule: Rule, path: str) -> None:
    """Each mistake in an example gives one finding of its rule at its path; a case without a rule gives none."""
    documents = documents_of(f"{name}.yaml")
    change(documents[-1])
    found = [one for one in findings(*documents) if one[0] == rule or one[0] is not Reason.NO_EPOCH_FILE]  # another
    assert found == ([(rule, path)] if rule else [])


@pytest.mark.parametrize(("name", "change", "rule", "path"), FIRST, ids=range(len(FIRST)))
def test_one_thing_broken_around_a_worker_is_found_first(name: str, change: Break, rule: Rule, path: str) -> None:
    """The first finding about a guard or a supervisor names its rule and path."""
    documents = documents_of(f"{name}.yaml")
    change(documents[-1])
    assert findings(*documents)[:1] == ([(rule, path)] if rule else [])


@pytest.mark.parametrize(("change", "rule", "path"), PROBED + UNWATCHED, ids=range(len(PROBED + UNWATCHED)))
def test_one_thing_broken_beside_a_startup_probe(change: Break, rule: Rule, path: str) -> None:
    """Each mistake gives one finding; a worker that the probe alone holds back is one already."""
    *others, document = documents_of("train.yaml")
    document = held_by_probe(document)
    change(document)
    expected = [("worker-start", COMMAND), *([(rule, path)] if rule else [])]
    assert sorted(findings(*others, document), key=str) == sorted(expected, key=str)


HUGE = [
    (1, INT32_MAX, "InPlaceRestart", [("2,147,483,647", "at most 100,000 pods that restart together")]),
    (1_000, 100_000, "InPlaceRestart", [("100,000,000", "at most 100,000 pods that restart together")]),
    (10_001, 1, "InPlaceRestart", [("10,001", "replicas of at most 10,000")]),
    (
        INT32_MAX,
        INT32_MAX,
        "InPlaceRestart",
        [
            ("2,147,483,647", "replicas of at most 10,000"),
            (f"{INT32_MAX * INT32_MAX:,}", "at most 100,000 pods that restart together"),
        ],
    ),
    (1, INT32_MAX, "Recreate", [("must be less than or equal to 100000", "a manifest that the server accepts")]),
    (INT32_MAX, INT32_MAX, "Recreate", [("2,147,483,647", "replicas of at most 10,000")]),
]


def test_the_command_says_which_bound_a_jobset_of_any_size_exceeds(tmp_path: Path) -> None:
    """The whole command ends, and names the size and the bound, also where only the embedded server refuses."""
    documents = []
    for number, (replicas, pods, strategy, _) in enumerate(HUGE):
        *others, document = documents_of("train.yaml")
        document["metadata"]["name"] = f"huge-{number}"
        others[1]["rules"][0]["resourceNames"] = [f"huge-{number}"]
        for other in others[1:]:
            other["metadata"]["name"] = f"inplace-agent:huge-{number}"
        others[2]["roleRef"]["name"] = f"inplace-agent:huge-{number}"
        replicated(document)["replicas"] = replicas
        job(document).update(parallelism=pods, completions=pods)
        jobset(document)["failurePolicy"]["restartStrategy"] = strategy
        documents += [document, *others]
    result = run_here("lint", "-f", saved(tmp_path, as_yaml(documents)), "-o", "json")
    assert result.returncode == 1, result.stderr
    for number, (*_, expected) in enumerate(HUGE):
        told = [
            (finding["found"], finding["needed"])
            for finding in json.loads(result.stdout)["findings"]
            if (finding["object"], finding["severity"]) == (f"JobSet default/huge-{number}", "error")
        ]
        assert len(told) == len(expected), told
        for (found, needed), (size, bound) in zip(told, expected, strict=True):
            assert size in found
            assert bound in needed


@pytest.mark.parametrize(
    ("changes", "rule", "is_enough"),
    [
        ({"verbs": ["get", "list"]}, 0, False),
        ({"verbs": ["*"], "resources": ["*"], "apiGroups": ["*"]}, 0, True),
        ({"verbs": ["get"]}, 1, False),
        ({"resourceNames": ["a"]}, 1, False),
    ],
)
def test_rights_that_the_file_shows(changes: dict[str, list[str]], rule: int, is_enough: bool) -> None:
    """A Role in the file that lacks an agent's right gives a finding; a Role with more rights gives none."""
    documents = documents_of("train.yaml")
    documents[1]["rules"][rule] |= changes
    lacking = [("account-rights", f"{POD}.serviceAccountName")]
    assert findings(*documents) == ([] if is_enough else lacking)


def test_rights_that_the_file_does_not_show_are_the_cluster_s_business() -> None:
    """A JobSet without a Role in its file gives no finding."""
    assert findings(documents_of("train.yaml")[-1]) == []


def test_an_account_of_another_name_whose_rights_are_a_role_of_the_file() -> None:
    """Admission does not restrict it; with ClusterRole inplace-agent it does."""
    documents = documents_of("train.yaml")
    pod(documents[-1])["serviceAccountName"] = documents[2]["subjects"][0]["name"] = "trainer"
    assert findings(*documents) == [("service-account-name", f"{POD}.serviceAccountName")]
    announcing = deepcopy(documents[2])
    announcing["roleRef"] |= {"kind": "ClusterRole", "name": "inplace-agent"}
    assert findings(announcing, *documents) == []


def test_an_account_that_mounts_no_token() -> None:
    """An unmounted token gives a finding, also by the ServiceAccount; a token projected to the agent gives none."""
    documents = documents_of("train.yaml")
    del pod(documents[-1])["automountServiceAccountToken"]
    documents[0]["automountServiceAccountToken"] = False
    assert findings(*documents) == []
    agent(documents[-1])["volumeMounts"].pop()
    assert findings(*documents) == [("service-account-token", f"{POD}.automountServiceAccountToken")]
    agent(documents[-1])["volumeMounts"].append(
        {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    )
    assert findings(*documents) == []


def test_an_order_inside_the_group() -> None:
    """An order inside the group gives a finding for sidecars only: supervisors are ready while they wait."""
    for name, expected in (("train.yaml", 1), ("train-supervisor.yaml", 0)):
        documents = documents_of(name)
        first = replicated(documents[-1])
        second = json.loads(json.dumps(first)) | {"name": "b", "dependsOn": [{"name": "workers", "status": "Ready"}]}
        jobset(documents[-1])["replicatedJobs"].append(second)
        assert [rule for rule, _ in findings(*documents)] == ["startup-order"] * expected


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


def test_a_manifest_for_upstream_s_agent_has_no_error() -> None:
    """A manifest for upstream's agent gives no error with our image; our additions are only recommended."""
    documents = documents_of("train.yaml")
    pod(documents[-1])["initContainers"] = [yaml.safe_load(UPSTREAM)]
    del pod(documents[-1])["automountServiceAccountToken"]
    worker(documents[-1])["command"] = ["python3", "-m", "inplace.examples.train"]
    differing, token = findings_of(*documents)
    assert (differing.rule, token.rule) == ("template-differs", "token-readable")
    missing = {Reason.RECOMMENDED, Reason.NO_EPOCH_FILE, Reason.PATIENCE}
    assert {reason for reason in Reason if reason.why in differing.found} == missing
    agent(documents[-1])["startupProbe"]["httpGet"]["port"] = 8080
    assert "- startupProbe.httpGet.port: 8080, BARRIER_PORT is 8081\n+ startupProbe" in findings_of(*documents)[0].found


@pytest.mark.parametrize("name", CLEAN)
def test_an_example_is_clean(name: str) -> None:
    """An example gives only the findings that it announces itself."""
    assert {rule for rule, _ in findings(*documents_of(name))} == KNOWN.get(name, set())


@pytest.mark.parametrize("options", [{}, {"barrier": "probe"}, {"mode": "supervisor"}], ids=str)
@pytest.mark.parametrize("name", ["plain.yaml", "monitor.yaml", "elastic.yaml"])
def test_what_inject_makes_is_clean(name: str, options: dict[str, Any]) -> None:
    """The injected manifest gives no finding; images without a tag are the examples' own."""
    rules = {rule for rule, _ in findings(*parse(injected(example(name), **options)))}
    asked_for = {"worker-start"} if options.get("barrier") == "probe" else set()
    assert rules - asked_for <= ({"image-pull", "unreachable-rule"} if name != "plain.yaml" else set())


def test_an_agent_beside_a_worker_without_a_command() -> None:
    """It is compared with one that is made for the same worker, whatever its own variables and volumes are."""
    no_folder = put(pod, volumes=[{"name": "inplace-agent"}])
    for change, reason in ((probe(httpGet=HEALTH), Reason.TARGET), (no_folder, Reason.EPOCH_FILE)):
        documents = list(parse(injected(SILENT)))
        change(documents[-1])
        assert findings(*documents)[0][0] is reason


def test_an_agent_that_cannot_be_added_is_the_only_finding() -> None:
    """Which container trains is open; what the controller sets on each Job itself is no finding beside that."""
    (document,) = parse(
        "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, "
        'metadata: {name: a, annotations: {inplace.dev/restart-in-place: "9"}}, '
        "spec: {replicatedJobs: [{name: w, template: {spec: {parallelism: 2, backoffLimit: 0, template: {spec: "
        '{containers: [{name: a, image: "t:1", command: [a]}, {name: b, image: "t:1", command: [b]}]}}}}}]}}'
    )
    assert [rule for rule, _ in findings(document)] == ["agent-not-added"]


def test_a_token_in_every_container_is_told_beside_an_added_agent() -> None:
    """The README's manifest is clean; with the author's word the workers of its group can read the agent's token."""
    (document,) = documents_of("plain.yaml")
    assert findings_of(document) == ()
    pod(document)["automountServiceAccountToken"] = True
    assert [one.rule for one in findings_of(document)] == ["token-readable"]


@pytest.mark.parametrize(
    ("queue", "resources", "is_told"),
    [
        ("team", {"limits": {"cpu": "8", "memory": "64Gi"}}, True),
        ("team", {"requests": {"cpu": "8"}}, False),
        (None, {"limits": {"cpu": "8", "memory": "64Gi"}}, False),
    ],
)
def test_what_a_queue_does_not_count(queue: str | None, resources: KubeObject, is_told: bool) -> None:
    """Beside Guaranteed workers an added agent asks for half a core of each node, which Kueue did not reserve."""
    (document,) = documents_of("minimal.yaml")
    document["metadata"]["labels"] = {} if queue is None else {"kueue.x-k8s.io/queue-name": queue}
    worker(document)["resources"] = resources
    found = [one for one in findings_of(document) if one.rule == "queue-uncounted"]
    assert [one.path for one in found] == ['metadata.labels["kueue.x-k8s.io/queue-name"]'] * is_told
    if is_told:
        each, in_all = "requests.cpu=500m, requests.memory=128Mi", "requests.cpu=4, requests.memory=1Gi"
        assert f"{each} in each of 8 Pods, {in_all} in all" in found[0].found
        assert [one.rule for one in findings_of(*parse(injected(as_yaml([document]))))] == []


def test_every_rule_about_manifests_is_broken_once_here() -> None:
    """Every rule of the catalogue has a case here."""
    reached = {
        *(rule for _, _, rule, _ in ALONE + FIRST),
        *(rule for _, rule, _ in PROBED + UNWATCHED),
        "worker-start",  # of all that a startup probe holds back
        "service-account-name",
        "account-rights",
        "startup-order",
        "torchrun-restarts",  # test_launcher.py
        "init-not-repeatable",  # test_init_containers.py
        "fuse-sidecar",
        "queue-uncounted",  # test_what_a_queue_does_not_count
        "admission",  # test_the_embedded_server_judges_too
        "runtime-unknown",  # test_subjects.py
        "trainer-annotation",
    }
    catalogue = list(RULES)
    manifest = set(catalogue[: catalogue.index("cluster-unknown")]) - {"template-broken", "template-differs"}
    assert (manifest | set(Reason)) - reached == set()
    assert reached - {""} <= set(RULES) | set(Reason)


@pytest.mark.slow
def test_as_a_program(tmp_path: Path) -> None:
    """`lint` exits 0 when clean, 1 with an error or, under --strict, a warning; -o json prints JSON."""
    made = run("inject", "-q", "-f", "examples/plain.yaml")
    shown = run("lint", "-f", "-", stdin=made.stdout)
    first, *policy = shown.stdout.splitlines()
    assert (shown.returncode, first) == (0, "JobSet default/plain: clean"), shown.stderr
    assert all(line.startswith("policy ") for line in policy)
    documents = documents_of("train.yaml")
    agent(documents[-1])["imagePullPolicy"] = "Always"
    file = saved(tmp_path, as_yaml(documents))
    assert [run("lint", "-f", file, *more).returncode for more in ((), ("--strict",))] == [0, 1]
    job(documents[-1])["backoffLimit"] = 6
    saved(tmp_path, as_yaml(documents))
    text, machine = run("lint", "-f", file), run("lint", "-f", file, "-o", "json")
    assert (text.returncode, machine.returncode) == (1, 1)
    found = "  found  - backoffLimit: 6\n         + backoffLimit: 2147483647\n         a failed Pod must be replaced"
    assert f"error template-broken in JobSet default/train\n  at     {JOB}.backoffLimit\n{found}" in text.stdout
    assert "\033" not in text.stdout
    said = json.loads(machine.stdout)
    assert (said["errors"], said["warnings"], said["jobsets"]) == (1, 1, ["JobSet default/train"])
    assert set(said["findings"][0]) == {"object", "rule", "severity", "path", "found", "needed", "why", "fix"}


def test_the_embedded_server_judges_too() -> None:
    """The server's dry run finds misspelt fields, schema and CEL errors, and nothing in a good manifest."""
    sound, misspelt, long = (documents_of("train.yaml")[-1] for _ in range(3))
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
    """A file that is no manifest gives exit code 2 and a message on stderr."""
    result = run_here("lint", "-f", file)
    assert (result.returncode, result.stdout) == (2, "")
    assert "expected" in result.stderr
    assert "Traceback" not in result.stderr
