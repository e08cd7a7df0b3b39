"""`inplace inject` adds the agent as a user would by hand, changes nothing else, and refuses undecidable manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from inplace.cli.inject.inject import DIFF_LINES_MAX, Refusal
from inplace.cli.manifests.documents import Stream
from inplace.cli.manifests.text import FLOW_CHARS_MAX, with_documents
from inplace.cli.manifests.yaml_loader import REPEATED_MAX, parse
from inplace.common.injection.rights import RESTRICTED, is_restricted, permissions
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.manifests import held_by_probe
from tests.cli.command import REPOSITORY, demo_json, run, run_here
from tests.cli.injecting import (
    FLOW,
    PLAIN,
    SILENT,
    TWO,
    annotated,
    as_yaml,
    example,
    injected,
    jobset_of,
    plain,
    pod_spec_of,
    refused,
    with_env,
)

OPTIONS: list[Mapping[str, Any]] = [
    {},
    {"barrier": "probe"},
    {"copies_image": True},
    {"mode": "supervisor"},
    {"mode": "supervisor", "copies_image": True},
    {"agent_image": "registry.example/agent@sha256:0"},
]


def by_name(items: list[KubeObject]) -> dict[str, KubeObject]:
    """Return named objects by name."""
    return {item["name"]: item for item in items}


def wrapped(worker: KubeObject) -> list[str]:
    """Return a worker's own command, without the agent's program in front of it."""
    command: list[str] = worker["command"]
    return command[command.index("--") + 1 :] if "--" in command else command


def test_no_option_writes_a_setting() -> None:
    """A setting is an annotation or a variable of the manifest; the help lists 12 options for all else."""
    shown = re.findall(r"^  (?:-\w, )?--([a-z-]+)", run_here("inject", "--help").stdout, re.MULTILINE)
    assert shown == [
        *("file", "mode", "agent-image", "copy-image", "barrier", "restart-rule", "worker", "rbac", "namespace"),
        *("output", "diff", "quiet", "help"),
    ]


@pytest.mark.parametrize("barrier", ["guard", "probe"])
def test_the_sidecar_is_what_the_example_has_by_hand(barrier: str) -> None:
    """The injected sidecar equals the example's field by field, apart from names and a stricter securityContext."""
    made, by_hand = injected(PLAIN, barrier=barrier), example("train.yaml")
    if barrier == "probe":
        by_hand = yaml.safe_dump(held_by_probe(jobset_of(by_hand)))
    ours, theirs = pod_spec_of(made), pod_spec_of(by_hand)
    (agent,), (model,) = ours["initContainers"], theirs["initContainers"]
    assert agent.pop("securityContext")["runAsNonRoot"] is True
    assert (agent.pop("name"), agent.pop("volumeMounts")[0]["mountPath"]) == ("inplace-agent", "/var/run/inplace")
    del model["name"], model["volumeMounts"]
    given = by_name(model.pop("env"))
    given.pop("RESTART_POD_IN_PLACE_EXIT_CODE", None)  # the default, said by hand
    assert by_name(agent.pop("env")) == given
    assert agent == model
    assert wrapped(ours["containers"][0]) == wrapped(theirs["containers"][0])
    for key in ("restartPolicy", "restartPolicyRules"):
        assert ours["containers"][0][key] == theirs["containers"][0][key]
    assert jobset_of(made)["spec"]["failurePolicy"] == jobset_of(by_hand)["spec"]["failurePolicy"]
    specs = [jobset_of(text)["spec"]["replicatedJobs"][0]["template"]["spec"] for text in (made, by_hand)]
    for key in ("backoffLimit", "podReplacementPolicy", "parallelism", "completions"):
        assert specs[0][key] == specs[1][key]


def test_the_supervisor_is_what_the_example_has_by_hand() -> None:
    """The injected supervisor has the example's variables, rules and worker."""
    made, by_hand = injected(PLAIN, mode="supervisor"), example("train-supervisor.yaml")
    worker, model = pod_spec_of(made)["containers"][0], pod_spec_of(by_hand)["containers"][0]
    original = by_name(pod_spec_of(PLAIN)["containers"][0]["env"])
    agents = {name: entry for name, entry in by_name(worker["env"]).items() if name not in original}
    assert agents.items() <= by_name(model["env"]).items()
    assert wrapped(worker) == wrapped(model) == ["python3", "-m", "inplace.examples.train"]
    assert worker["restartPolicyRules"] == model["restartPolicyRules"]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_every_comment_stays_and_only_lines_are_added(options: Mapping[str, Any]) -> None:
    """Each line of the manifest is kept in its order, apart from the command that is wrapped."""
    made = iter(injected(PLAIN, **options).splitlines())
    command = "              command: [python3, -m, inplace.examples.train]"
    kept = [line for line in PLAIN.splitlines() if line != command or options.get("barrier") == "probe"]
    assert [line for line in kept if line not in made] == []


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=repr)
@pytest.mark.parametrize("name", ["plain.yaml", "depends-on.yaml", "train.yaml", "elastic.yaml"])
def test_doing_it_twice_changes_nothing(name: str, options: Mapping[str, Any]) -> None:
    """A second run changes no byte, with any options."""
    once = injected(example(name), **options)
    assert injected(once, **options) == once


@pytest.mark.parametrize("name", ["train.yaml", "train-supervisor.yaml"])
def test_a_manifest_with_an_agent_is_left_alone(name: str) -> None:
    """A manifest with an agent written by hand stays as it is."""
    assert injected(example(name)) == example(name)


def test_other_kinds_and_documents_pass_through() -> None:
    """Other documents stay as they are: before and after the JobSet, in a List, or empty."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"day": "2026-11-21"}}
    text = f"---\n# first\n{as_yaml([other])}---\n---\n{PLAIN}"
    made = injected(text)
    assert [document["kind"] for document in parse(made) if document] == [
        *("ServiceAccount", "Role", "RoleBinding", "RoleBinding", "ConfigMap", "JobSet")
    ]
    assert "# first\n" in made
    listed = {"apiVersion": "v1", "kind": "List", "items": [other, jobset_of(PLAIN)]}
    *_, document = parse(injected(json.dumps(listed)))
    assert document["items"][0] == other
    assert document["items"][1] == jobset_of(injected(PLAIN))


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
@pytest.mark.parametrize("account", ["trainer", "default", "inplace-agentx"])
def test_an_account_of_another_name_stays_the_users(field: str, account: str) -> None:
    """It reads this JobSet by name; its right to announce makes admission restrict it. The objects have our names."""
    made = injected(plain(pod=f"{field}: {account}"))
    assert pod_spec_of(made)["serviceAccountName"] == account
    role, reading, announcing, _ = parse(made)
    name = f"inplace-agent:plain:{account}"
    assert (role["kind"], role["metadata"]["name"], role["rules"][0]["resourceNames"]) == ("Role", name, ["plain"])
    assert (reading["roleRef"]["kind"], reading["roleRef"]["name"]) == ("Role", name)
    assert announcing["metadata"]["name"] == f"{name}:announce"
    assert (announcing["roleRef"]["kind"], announcing["roleRef"]["name"]) == ("ClusterRole", "inplace-agent")
    for binding in (reading, announcing):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "default"}]
    assert injected(made) == made


def test_an_account_that_the_file_binds_is_left_to_the_user() -> None:
    """When the file binds the account itself, inject refuses nothing and adds nothing."""
    binding = permissions("default", "trainer", "plain")[-1]
    bound = f"{as_yaml([binding])}---\n{plain(pod='serviceAccountName: trainer')}"
    assert [document["kind"] for document in parse(injected(bound))] == ["RoleBinding", "JobSet"]


def test_each_jobset_and_account_has_its_own_role() -> None:
    """So that no account reads another JobSet, and files of one namespace do not overwrite each other's."""
    other = plain(pod="serviceAccountName: inplace-agent-b").replace("name: plain", "name: other", 1)
    made = injected(f"{PLAIN}---\n{other}")
    assert [(one["kind"], one["metadata"]["name"]) for one in parse(made)][:8] == [
        ("ServiceAccount", "inplace-agent"),
        ("Role", "inplace-agent:plain:inplace-agent"),
        ("RoleBinding", "inplace-agent:plain:inplace-agent"),
        ("RoleBinding", "inplace-agent:plain:inplace-agent:announce"),
        ("ServiceAccount", "inplace-agent-b"),
        ("Role", "inplace-agent:other:inplace-agent-b"),
        ("RoleBinding", "inplace-agent:other:inplace-agent-b"),
        ("RoleBinding", "inplace-agent:other:inplace-agent-b:announce"),
    ]


def test_a_name_that_only_the_server_knows_reads_all_jobsets() -> None:
    """generateName, and a runtime of Trainer, whose JobSets are named as their TrainJobs."""
    role = next(
        one for one in parse(injected(PLAIN.replace("name: plain", "generateName: plain-", 1))) if one["kind"] == "Role"
    )
    assert role["metadata"]["name"] == "inplace-agent:inplace-agent"
    assert "resourceNames" not in role["rules"][0]


@pytest.mark.parametrize(
    ("account", "expected"),
    [("inplace-agent", True), ("inplace-agent-b.c", True), ("inplace-agent-", False), ("inplace-agentx", False)],
)
def test_a_restricted_account_is_one_that_admission_knows(account: str, expected: bool) -> None:
    """`inject` uses the account pattern of deploy/admission/agents.yaml."""
    policy = (REPOSITORY / "deploy" / "admission" / "agents.yaml").read_text()
    assert f"system:serviceaccount:[^:]+:{RESTRICTED}$" in policy
    assert is_restricted(account) is expected


@pytest.mark.parametrize(("mode", "word"), [("sidecar", "/inplace/bin/guard"), ("supervisor", "run")])
def test_the_stop_signal_of_a_worker_is_told_to_its_parent(mode: str, word: str) -> None:
    """SIGTERM needs no word; a signal that nobody can pass on gets none."""
    for name, told in (("SIGUSR1", ("--stop-signal", "SIGUSR1")), ("SIGTERM", ()), ("SIGKILL", ())):
        text = plain(worker=f"lifecycle: {{stopSignal: {name}}}")
        command = pod_spec_of(injected(text, mode=mode))["containers"][0]["command"]
        assert tuple(command[command.index(word) + 1 : command.index("--")]) == told


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_what_is_cleaned_is_told_to_the_workers_parent(mode: str) -> None:
    """By a variable, a line for each; a path of the system is refused."""
    (worker,) = pod_spec_of(injected(with_env(WORKER_CLEAN="/tmp/lock\nipc"), mode=mode))["containers"]
    assert by_name(worker["env"])["WORKER_CLEAN"]["value"] == "/tmp/lock\nipc"
    assert "found WORKER_CLEAN: expected a path of the worker's own" in refused(
        with_env(WORKER_CLEAN="/etc"), mode=mode
    )


def test_a_divided_jobset_tells_each_agent_its_part() -> None:
    """Agents of both modes read their scope from the annotation; without it the variable is empty."""
    sidecar = pod_spec_of(injected(PLAIN))["initContainers"][0]
    supervisor = pod_spec_of(injected(PLAIN, mode="supervisor"))["containers"][0]
    assert ["RESTART_SCOPE" in by_name(one["env"]) for one in (sidecar, supervisor)] == [True, True]


def test_a_small_manifest_gets_few_lines() -> None:
    """What a reader of the injected manifest has to read beside what was written."""
    text = example("minimal.yaml")
    _, lines = injected(text).split("---\n# All that is yours", 1)  # behind account, Role and binding
    assert len(lines.splitlines()) - len(text.splitlines()) <= 75


def test_a_worker_beside_upstream_s_agent_keeps_its_command() -> None:
    """A worker beside upstream's agent gets no guard, which would look for a link for ever."""
    injected_once = injected(PLAIN, barrier="probe")
    upstream = injected_once.replace("name: NAMESPACE", "name: OTHER").replace(
        "name: RESTART_POD_IN_PLACE_EXIT_CODE", "name: IN_PLACE_RESTART_EXIT_CODE"
    )
    assert pod_spec_of(injected(upstream))["containers"][0]["command"][0] == "python3"


def test_a_root_pod_does_not_make_the_agent_root() -> None:
    """The agent gets its own runAsUser: with runAsNonRoot and the Pod's user 0 kubelet would not start it."""
    text = plain(pod="securityContext: {runAsUser: 0}")
    assert pod_spec_of(injected(text))["initContainers"][0]["securityContext"]["runAsUser"] == 65532


def test_the_worker_is_chosen_by_name() -> None:
    """Only the named worker gets the rules, and a second run finds it without the name."""
    made = injected(TWO, workers=("worker",))
    assert ["restartPolicyRules" in container for container in pod_spec_of(made)["containers"]] == [True, False]
    assert injected(made) == made
    both = injected(TWO, workers=("worker", "logger"))
    assert all("restartPolicyRules" in container for container in pod_spec_of(both)["containers"])


def test_replicated_jobs_out_of_the_group_are_left_alone() -> None:
    """examples/monitor.yaml: the monitor gets no agent and keeps its own policies."""
    before = jobset_of(example("monitor.yaml"))["spec"]["replicatedJobs"][1]
    after = jobset_of(injected(example("monitor.yaml")))["spec"]["replicatedJobs"]
    assert after[1] == before
    assert [c["name"] for c in after[0]["template"]["spec"]["template"]["spec"]["initContainers"]] == ["inplace-agent"]


THREE = "exitCodes: {operator: In, values: [3]}"
WORKER = 'spec.replicatedJobs[name="workers"].template.spec.template.spec.containers[name="worker"]'


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (PLAIN.replace("completions: 8", "completions: 7"), {}, "completions: found 7, needed parallelism (8)"),
        (plain(job="completionMode: NonIndexed"), {}, "needed Indexed"),
        (plain(job="backoffLimitPerIndex: 1"), {}, "backoffLimitPerIndex: found 1"),
        (SILENT, {"mode": "supervisor"}, f"{WORKER}.command: found nothing"),
        (
            annotated(SILENT.replace("name: POD_IP", "name: LD_AUDIT", 1), restart="process"),
            {},
            "write the worker's command, or inplace.dev/restart: containers",
        ),
        (
            PLAIN.replace("name: WORLD_SIZE", "name: POD_NAME"),
            {"mode": "supervisor"},
            "env[name=\"POD_NAME\"]: found '8'",
        ),
        (plain(worker="restartPolicy: Always"), {}, "found 'Always'"),
        (
            plain(worker=f"restartPolicyRules: [{{action: Restart, {THREE}}}]"),
            {},
            "found exit codes 3 that restart it alone",
        ),
        (annotated(restart="deep"), {}, "restart].depth: found 'deep', needed process or containers; the"),
        (annotated(restart="process"), {"barrier": "probe"}, "found no guard beside depth process"),
        (PLAIN, {"workers": ("main",)}, "--worker: found 'main'"),
        (plain(metadata="annotations: {inplace.dev/agent: workers=worker+main}"), {}, "agent\"]: found 'main'"),
        (annotated(fence_after="5"), {"mode": "supervisor"}, "fence-after]: found '5', needed an integer from 15 to"),
        (annotated(nodes="9"), {}, "nodes].failures: found '9', needed an integer from 1 to 8"),
        (annotated(restart="save-within=1h"), {}, "restart].save-within: found '1h', needed an integer from 0 to 3600"),
        (annotated(escalation="often"), {}, "escalation].InPlace: found 'often', needed"),
        (annotated(agent="cpu=fast"), {}, "agent].cpu: found 'fast', needed an amount such as"),
    ],
)
def test_what_it_cannot_decide_it_refuses(text: str, options: Mapping[str, Any], expected: str) -> None:
    """The refusal names the path, the found and the needed value, and the cure."""
    assert text != PLAIN or options
    assert expected in refused(text, **options)


def test_a_variable_that_the_agent_sets_alike_is_no_conflict() -> None:
    """The worker's own POD_NAME is the Pod's name as well."""
    assert injected(PLAIN.replace("name: POD_IP", "name: POD_NAME"))


def test_a_supervisor_gets_a_new_container_when_its_worker_keeps_failing() -> None:
    """Rule and variable name the same code, beside rules that are there; none without the option or for a last code."""
    (usual,) = pod_spec_of(injected(PLAIN, mode="supervisor"))["containers"]
    assert by_name(usual["env"])["CONTAINER_RESTART_EXIT_CODE"]["value"] == "88"
    (worker,) = pod_spec_of(injected(with_env(CONTAINER_RESTART_EXIT_CODE="99"), mode="supervisor"))["containers"]
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [99]}}
    assert (worker["restartPolicy"], worker["restartPolicyRules"]) == ("Never", [rule])
    assert by_name(worker["env"])["CONTAINER_RESTART_EXIT_CODE"]["value"] == "99"
    without = pod_spec_of(injected(PLAIN, mode="supervisor", restart_rule=False))["containers"][0]
    assert "restartPolicyRules" not in without
    assert "CONTAINER_RESTART_EXIT_CODE" not in by_name(without["env"])
    again = injected(yaml.safe_dump_all(yaml.safe_load_all(example("jax.yaml"))), mode="supervisor")
    assert len(pod_spec_of(again)["containers"][0]["restartPolicyRules"]) == 2


def test_a_sidecar_restarts_in_place_without_rules() -> None:
    """For Kubernetes before 1.36: the guard starts its worker again; init containers and probes do not change that."""
    for text in (PLAIN, plain(worker="livenessProbe: {exec: {command: [alive]}}")):
        made = pod_spec_of(injected(text, restart_rule=False))
        assert not any("restartPolicyRules" in one for one in (*made["initContainers"], *made["containers"]))
        agent = by_name(made["initContainers"][0]["env"])
        assert agent["CLEAN_AFTER_FAILURES"] == {"name": "CLEAN_AFTER_FAILURES", "value": "0"}
        assert "startupProbe" not in made["initContainers"][0]
        assert made["containers"][0]["command"][0] == "/inplace/bin/guard"
        assert "restart-depth: containers" not in injected(text, restart_rule=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            annotated(restart="containers"),
            "found depth containers, needed a guard and depth process, where kubelet has no",
        ),
        (SILENT, "no guard around the worker"),
    ],
)
def test_what_needs_kubelet_is_refused_without_rules(text: str, words: str) -> None:
    """New containers at each restart, and a worker whose command only its image knows."""
    assert words in refused(text, restart_rule=False)


def test_the_depth_is_the_annotation_which_the_agent_reads() -> None:
    """The agent's variables are the same whatever the JobSet asks for."""
    made = injected(annotated(restart="process"))
    assert pod_spec_of(made) == pod_spec_of(injected(PLAIN))
    assert injected(made) == made
    assert "inplace.dev/restart:" not in injected(PLAIN)
    agent = by_name(pod_spec_of(injected(PLAIN))["initContainers"][0]["env"])
    for name, annotation in wire.SETTINGS.items():
        assert agent[name]["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.annotations['{annotation}']"


def test_a_fixed_value_may_say_what_the_annotation_says() -> None:
    """A manifest written by hand keeps it; one that says otherwise is refused."""
    made = injected(annotated(restart="process"))
    field = "valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['inplace.dev/restart-depth']\"}}"
    assert field in made
    fixed = made.replace(field, "value: process")
    assert injected(fixed) == fixed
    assert "found 'containers', needed process, by fieldRef" in refused(made.replace(field, "value: containers"))


@pytest.mark.parametrize(
    "options", [{}, {"mode": "supervisor"}, {"mode": "supervisor", "workers": ("worker", "logger")}]
)
def test_several_containers_are_named_when_the_worker_is_not(options: Mapping[str, Any]) -> None:
    """With several containers and no worker named, the refusal lists them and says how to choose."""
    with pytest.raises(Refusal, match=r"found containers worker, logger, needed .* --worker NAME"):
        injected(TWO, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "saw nothing but blanks and comments"),
        ("# nothing\n---\n", "saw nothing but blanks and comments"),
        ("{", "expected YAML or JSON"),
        ("? [a]\n: 1\n", "a list where a key that is a text, a number or a boolean has to be"),
        ("just a text\n", "expected objects with apiVersion and kind"),
        ("apiVersion: v1\nkind: Pod\n", "expected a JobSet (jobset.x-k8s.io/v1alpha2), saw Pod (v1)"),
        ("apiVersion: jobset.x-k8s.io/v1\nkind: JobSet\n", "saw JobSet (jobset.x-k8s.io/v1)"),
        (PLAIN.replace("replicatedJobs:", "replicatedJobs: 3 #"), "expected"),
        (
            PLAIN.replace("            containers:\n", "            containers: {}\n            x:\n"),
            "containers: expected a list, saw a mapping",
        ),
        (PLAIN.replace("[python3, -m, inplace.examples.train]", "python3"), "command: expected a list, saw a text"),
        (
            PLAIN.replace("[python3, -m, inplace.examples.train]", "[python3, train.py, 1e-4]"),
            "command[2]: expected a text, saw a number; in quotes it is a text",
        ),
        ("\x00", "expected YAML or JSON"),
        ("a: &a [x]\n" + "".join(f"b{i}: &b{i} [{f'*b{i - 1}, ' * 10 if i else '*a, ' * 10}]\n" for i in range(9)), ""),
    ],
)
def test_what_is_no_manifest_is_said_in_words(tmp_path: Path, text: str, expected: str) -> None:
    """A bad manifest gives exit code 2, one line and no output; "" expects the refusal of too many anchors."""
    file = tmp_path / "x.yaml"
    file.write_text(text)
    result = run_here("inject", "-f", str(file))
    assert result.returncode == 2, result.stderr
    assert (expected or f"more than {REPEATED_MAX:,} values") in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("file", "expected"),
    [("/nowhere.yaml", "No such file"), ("examples", "a folder, not a file"), ("README.md", "expected")],
)
def test_what_is_no_file_is_said_in_words(file: str, expected: str) -> None:
    """A missing file, a folder and a file of other text give exit code 2 and a message."""
    result = run_here("inject", "-f", file)
    assert (result.returncode, result.stdout) == (2, "")
    assert expected in result.stderr


@pytest.mark.slow
def test_as_a_program() -> None:
    """`inject` reads stdin, writes stdout and prints the difference to stderr, in colour only on a terminal."""
    options = ((), ("--diff",), ("-o", "json", "-q"))
    whole, diff, again = (run("inject", "-f", "-", *more, stdin=PLAIN) for more in options)
    assert (whole.returncode, diff.returncode, again.returncode) == (0, 0, 0), whole.stderr
    assert whole.stderr == diff.stdout
    assert "+            - name: inplace-agent\n" in diff.stdout
    assert "\033" not in diff.stdout
    assert json.loads(again.stdout)["items"] == list(parse(whole.stdout))
    assert again.stderr == ""
    refused = run("inject", "-f", "-", stdin=TWO)
    assert (refused.returncode, refused.stdout) == (1, "")


@pytest.mark.slow
def test_a_long_difference_is_not_shown(tmp_path: Path) -> None:
    """A long manifest is printed without its difference, and a note says why: comparing takes too long."""
    file = tmp_path / "many.yaml"
    file.write_text("---\n".join(PLAIN.replace("name: plain", f"name: plain{number}") for number in range(70)))
    whole, diff = run("inject", "-f", str(file)), run("inject", "-f", str(file), "--diff")
    assert (whole.returncode, diff.returncode, diff.stdout) == (0, 1, "")
    assert len(list(parse(whole.stdout))) == 1 + 70 * 4  # the account; a Role, two bindings and a JobSet each
    assert f"more than {DIFF_LINES_MAX:,} lines" in whole.stderr == diff.stderr


words = st.text("ab: #'\"\\\n-0", max_size=6)  # and some that are longer than a line
trees = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), words, words.map(lambda word: word * FLOW_CHARS_MAX)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from("abcd"), trees, min_size=1), st.dictionaries(st.sampled_from("abcd"), trees))
def test_the_edited_text_says_what_was_wanted(old: KubeObject, changes: KubeObject) -> None:
    """For any old and new value, in block and flow style, the edited text is read as the new value."""
    for flow in (False, True, None):
        text = yaml.safe_dump(old, default_flow_style=flow, sort_keys=False, indent=4)
        edited = with_documents(Stream("x", text, tuple(parse(text))), [old | changes])
        assert list(parse(edited.text)) == [old | changes]


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from("abcd"), trees, min_size=1), st.dictionaries(st.sampled_from("wxyz"), trees))
def test_what_is_only_added_keeps_the_comments(old: KubeObject, added: KubeObject) -> None:
    """Additions at the root and below it edit the text, so that comments stay."""
    new = {key: value | added if isinstance(value, dict) else value for key, value in old.items()} | added
    for flow in (False, True, None):
        text = yaml.safe_dump(old, default_flow_style=flow, sort_keys=False, indent=4)
        edited = with_documents(Stream("x", text, tuple(parse(text))), [new])
        assert (list(parse(edited.text)), edited.keeps_comments) == ([new], True)


def test_a_tab_in_front_of_a_comment_is_kept() -> None:
    """YAML has it and kubectl reads it; PyYAML's reader in Python refuses it."""
    line = "  name: plain\t# mine\n"
    assert line in injected(PLAIN.replace("  name: plain\n", line, 1))


def test_what_outgrows_its_braces_goes_below_its_key() -> None:
    """A value that is too long for its braces moves below its key; the comments around it stay."""
    text = injected("# mine\n" + FLOW)
    assert "# mine" in text
    assert "          spec:\n            containers:\n            - name: worker\n" in text
    assert injected(text) == text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "arguments"),
    [({}, ["--runtime", "model"]), ({"mode": "supervisor"}, ["--pods", "2"])],
    ids=["sidecar", "supervisor"],
)
def test_what_inject_makes_restarts_in_place(tmp_path: Path, options: Mapping[str, Any], arguments: list[str]) -> None:
    """The injected manifest restarts in place in the embedded Kubernetes: a worker's death recreates no Pod."""
    file = tmp_path / "injected.yaml"
    file.write_text(injected(PLAIN, **options))
    last = demo_json("--yes", "--file", str(file), *arguments)
    assert ([restart["epoch"] for restart in last["restarts"]], last["pods_recreated"]) == ([2], 0)


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ("", "a restart in place starts all containers again, because the livenessProbe of container worker"),
        ("annotations: {inplace.dev/restart: process}", "kubelet kills a worker that does not answer while it waits"),
    ],
)
def test_the_depth_is_said(tmp_path: Path, annotation: str, said: str) -> None:
    """A depth that the template asks for, and one under which kubelet kills workers, stand on standard error."""
    lines = {"worker": "livenessProbe: {tcpSocket: {port: 9000}}"} | ({"metadata": annotation} if annotation else {})
    path = tmp_path / "manifest.yaml"
    path.write_text(plain(**lines))
    assert said in run("inject", "-f", str(path)).stderr
    assert run("inject", "--quiet", "-f", str(path)).stderr == ""
