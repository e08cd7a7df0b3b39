"""Lint says in sentences what a manifest does about failures."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from inplace.cli.lint.agent_policies import check_unwatched
from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.jobset import check_jobset
from inplace.cli.lint.lint import LintOptions, lint, run_lint
from inplace.cli.lint.policy import policy_sentences
from inplace.cli.manifests.documents import Stream
from inplace.cli.terminal.moments import whole_duration_text
from inplace.common.injection.as_made import as_made
from inplace.common.wire import names as wire
from tests.cli.injecting import EXAMPLES, documents_of, saved
from tests.cli.lint.cases import Break, env, job, pod, put, template, worker
from tests.cli.lint.stall_cases import run_with
from tests.controller.manifests import jobset, replicated_job

TOLD = "An Event tells of a node whose worker was the first to fail 2 times in 3600 s; without a spare its Pods stay."


def annotated(**annotations: str) -> dict[str, Any]:
    """Return a JobSet with annotations by their names in `wire`."""
    manifest = jobset(restarts_max=100)
    manifest["metadata"]["annotations"] = {getattr(wire, name): text for name, text in annotations.items()}
    return manifest


def of_example(name: str, **annotations: str) -> dict[str, Any]:
    """Return the JobSet of an example, with annotations."""
    document: dict[str, Any] = documents_of(f"{name}.yaml")[-1]
    given = {getattr(wire, key): text for key, text in annotations.items()}
    document["metadata"]["annotations"] = (document["metadata"].get("annotations") or {}) | given
    return document


def test_an_escalation_is_told_step_by_step() -> None:
    """Each step with what it does, how often and in which window; then what ends the JobSet."""
    manifest = annotated(ESCALATION="InPlace=3,ReplacePod=1,RecreateJobs=1,window=86400")
    assert list(policy_sentences(manifest)[:5]) == [
        "After a failure all workers restart in their Pods: up to 3 times in any 1 d.",
        "Beyond that the Pod that failed first is replaced, and the others restart in place: once in any 1 d.",
        "Beyond that all Jobs are deleted and created again: once in any 1 d.",
        "Beyond that the JobSet fails, with the reason RestartLimitExceeded.",
        "After 100 restarts in all (maxRestarts) it fails at the next failure, whatever the windows say.",
    ]


def test_where_nothing_is_set_the_defaults_are_told() -> None:
    """What a failure does, what ends the JobSet, and what hangs, nodes and missing Pods do."""
    document = documents_of("train.yaml")[-1]
    assert policy_sentences(document) == (
        "After a failure all workers restart in their Pods: up to 10 times in the JobSet's life (maxRestarts).",
        "The next failure fails the JobSet, with the reason ReachedMaxRestarts.",
        f"A failure that comes back at the same step counts as any other (no-progress in {wire.FAILURES} is not set).",
        f"A loss that is no finite number, and steps that get slower, restart nothing ({wire.RESTART_ON} is not set).",
        "A Pod that failed first on a node that is cordoned, tainted or not ready is replaced on another node.",
        TOLD,
        f"No node is avoided: a Pod that is replaced may return to its node (failures in {wire.NODES} is not set).",
        "If a group waits longer than 10 min for Pods that are missing, an Event says so, and it waits on.",
        f"A rank that makes no step for far longer than before is told of, and {UNRESTARTED}",
        f"{GIVEN_UP}until its object is gone ({wire.FENCE_AFTER} is not set).",
        (
            "Only the agent has a token of ServiceAccount inplace-agent. A script that talks to the API server needs "
            "automountServiceAccountToken: true in its Pod template."
        ),
    )


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            "max=8,min=6,step=2,wait=60",
            (
                "8 of 10 Pods train; 2 are spares; with fewer than 8 it waits 1 min and goes on with 6 or more, "
                "in steps of 2"
            ),
        ),
        ("9", "9 of 10 Pods train; 1 is a spare; with fewer than 9 it waits"),
        (
            "max=10,min=9",
            "All 10 Pods train; none is a spare; with fewer than 10 it waits 1 min and goes on with 9 or more",
        ),
    ],
)
def test_members_are_told(setting: str, words: str) -> None:
    """How many Pods train, or Jobs, how many are spares, and what follows where members are missing."""
    for replicas, pods, noun in ((1, 10, "Pods"), (10, 4, "Jobs of 4 Pods")):
        manifest = jobset(jobs=[replicated_job(replicas=replicas, pods=pods)], restarts_max=100)
        manifest["metadata"]["annotations"] = {wire.MEMBERS: setting}
        told = words.replace("Pods", noun)
        assert f"{told} ({wire.MEMBERS})." in policy_sentences(manifest)


def test_a_mistake_in_members_is_told_once() -> None:
    """With what was written, and never what it was taken for; two jobs that read one annotation make one mistake."""
    manifest = jobset(jobs=[replicated_job("w", pods=10)])
    for setting, mode, needed, found in (
        ("max=8,min=9", "Indexed", "min <= max <= 10, the pods of w", "min 9 and max 8"),
        ("max=11", "Indexed", "max <= 10, the pods of w", "max 11"),
        ("max=8,min=5,step=2", "Indexed", "a step that divides max 8 - min 5 = 3", "step 2"),
        ("max=8", "NonIndexed", "an Indexed Job with completions 10, as its parallelism", "NonIndexed"),
    ):
        manifest["metadata"]["annotations"] = {wire.MEMBERS: setting}
        manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] = mode
        assert (needed, found) in [(one.needed, one.found) for one in check_jobset(manifest)]
    for replicas, pods, needed, found in (
        (10, 2, "max <= 10, the Jobs of w", "max 11"),
        (12, 500, "at most 5,500 pods", "6,000"),
        (0, 10, "a Job at least", "replicas 0"),
    ):
        several = jobset(jobs=[replicated_job("w", replicas=replicas, pods=pods)])
        several["metadata"]["annotations"] = {wire.MEMBERS: "max=11"}
        assert (needed, found) in [(one.needed, one.found) for one in check_jobset(several)]
    manifest["spec"]["replicatedJobs"].append(replicated_job("v"))
    assert len([one for one in check_jobset(manifest) if one.found == "w, v"]) == 1


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("max=6,step=2", "step, and no min below max"),
        ("step=2,wait=5", "step and wait, and no min below max"),
        ("max=6,min=6,wait=5", "wait, and no min below max"),
        ("max=6", ""),
        ("min=2,step=2", ""),
        ("max=6,min=2,step=2,wait=5", ""),
    ],
)
@pytest.mark.parametrize("is_job_s", [False, True])
def test_steps_of_a_group_that_never_gets_smaller_are_told(setting: str, found: str, is_job_s: bool) -> None:
    """On the JobSet and on the Job template: without min they change nothing."""
    document = documents_of("elastic-jax.yaml")[-1]
    place = document["spec"]["replicatedJobs"][0]["template"] if is_job_s else document
    del document["metadata"]["annotations"]
    place["metadata"] = (place.get("metadata") or {}) | {"annotations": {wire.MEMBERS: setting}}
    [report] = lint(Stream("x.yaml", "", (document,)))
    assert [one.found for one in report.findings if one.rule == "no-effect"] == ([found] if found else [])


@pytest.mark.parametrize("injected", [False, True])
def test_members_on_the_pods_are_one_mistake(injected: bool) -> None:
    """It is said where they belong, and nothing of the agent's variables."""
    document = documents_of("elastic-jax.yaml")[-1]
    given = document["metadata"].pop("annotations")
    template(document)["metadata"] = {"annotations": given}
    [report] = lint(Stream("x.yaml", "", (as_made(document).jobset if injected else document,)))
    [finding] = [one for one in report.findings if RULES[one.rule].severity == "error"]
    assert finding.rule == "spec-problem"
    assert finding.path.endswith(f".template.spec.template.metadata.annotations[{wire.MEMBERS}]")
    assert finding.fix == "move it"


@pytest.mark.parametrize(
    ("name", "said", "words"),
    [
        ("plain", None, "Only the agent has a token of ServiceAccount default."),
        ("plain", True, "Training code can read the token of ServiceAccount default"),
        ("train-supervisor", None, "The worker shares its container with the agent"),
    ],
)
def test_who_has_a_token_is_told(name: str, said: bool | None, words: str) -> None:
    """Of the account's token, which lets an agent announce."""
    document = documents_of(f"{name}.yaml")[-1]
    pod(document)["automountServiceAccountToken"] = said
    assert policy_sentences(as_made(document).jobset)[-1].startswith(words)


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_every_example_has_a_policy(name: str) -> None:
    """Each JobSet of the examples says in its first sentences what ends it."""
    for document in documents_of(name):
        if document["kind"] == "JobSet":
            assert any("fails the JobSet" in sentence for sentence in policy_sentences(document))


WITHOUT_EFFECT = [
    ("ESCALATION", "InPlace=0", "The next failure fails the JobSet, with the reason ReachedMaxRestarts."),
    ("FAILURES", "no-progress=3,short=315360000", f"as any other (no-progress in {wire.FAILURES} has no effect)."),
    ("RESTART_ON", "loss+slowly", f"restart nothing ({wire.RESTART_ON} has no effect)."),
    ("NODES", "failures=2,within=315360000", f"return to its node (failures in {wire.NODES} has no effect)."),
    ("NODES", "marked=never", "cordoned, tainted or not ready is replaced on another node."),
    ("BARRIER", "soon", "for Pods that are missing, an Event says so, and it waits on."),
]


OBSERVED = [
    ("FAILURES", "no-progress=3,mode=observe", "without a higher step than ever before, an Event says so."),
    ("ESCALATION", "RecreateJobs=1,mode=observe", "10 times in the JobSet's life (maxRestarts)."),
    ("RESTART_ON", "kinds=stall,mode=observe", f"restart nothing ({wire.RESTART_ON} is observed)."),
    ("NODES", "failures=1,mode=observe", "was the first to fail once in 3600 s; its Pods stay."),
]


@pytest.mark.parametrize(("name", "text", "end"), OBSERVED)
def test_what_is_observed_changes_nothing(name: str, text: str, end: str) -> None:
    """The sentences are those of a JobSet without it, and what an Event tells."""
    sentences = policy_sentences(of_example("train", **{name: text}))
    assert any(sentence.endswith(end) for sentence in sentences), sentences
    assert not any("are recreated" in sentence for sentence in sentences)


@pytest.mark.parametrize(("name", "text", "end"), WITHOUT_EFFECT)
def test_what_cannot_be_read_has_no_effect(name: str, text: str, end: str) -> None:
    """The sentence says what holds instead, beside the finding; other annotations keep their effect."""
    sentences = policy_sentences(annotated(**{name: text}))
    assert [sentence for sentence in sentences if sentence.endswith(end)]
    assert [one.rule for one in check_jobset(annotated(**{name: text}))] == ["spec-problem"]


def test_a_jobset_that_cannot_be_read_has_no_sentences() -> None:
    """The finding says why."""
    assert policy_sentences({"metadata": None, "spec": {"replicatedJobs": 3}}) == ()


def test_other_strategies_are_told() -> None:
    """Jobs are recreated, the rules of the failurePolicy come first, and without one a failure is the end."""
    rule = {"name": "a", "action": "FailJobSet"}
    manifest = jobset(restarts_max=1) | {"metadata": {"name": "a"}}
    manifest["spec"]["failurePolicy"] |= {"restartStrategy": "Recreate", "rules": [rule]}
    assert policy_sentences(manifest) == (
        (
            "Nothing restarts in place here (restartStrategy is Recreate): `inplace inject -f FILE` changes that, and "
            "so does the annotation inplace.dev/restart-in-place."
        ),
        "If a Job fails, the rules of the failurePolicy come first; what follows is for Jobs that fit none.",
        "After a failure all Jobs are deleted and created again: once in the JobSet's life (maxRestarts).",
        "The next failure fails the JobSet, with the reason ReachedMaxRestarts.",
    )
    manifest["spec"]["failurePolicy"] = {"maxRestarts": 0}
    assert policy_sentences(manifest)[1].startswith("The first failure fails the JobSet")
    del manifest["spec"]["failurePolicy"]
    assert policy_sentences(manifest) == (
        (
            "Nothing restarts in place here (restartStrategy is not set): `inplace inject -f FILE` changes that, and "
            "so does the annotation inplace.dev/restart-in-place."
        ),
        "The first Job that fails fails the JobSet: it has no failurePolicy.",
    )


def test_a_switch_and_a_scope_are_told() -> None:
    """Switched off, nothing restarts; a scope says what restarts together."""
    assert policy_sentences(annotated(DISABLE="")) == (
        f"No worker waits for the others, and no group restarts: {wire.DISABLE} switches it off.",
    )
    assert (
        "Each replicatedJob restarts for itself; maxRestarts and the escalation count for all together."
        in policy_sentences(annotated(RESTART_SCOPE="ReplicatedJob"))
    )


@pytest.mark.parametrize(
    ("escalation", "found"),
    [
        ("InPlace=3,window=0", "'0'"),
        ("InPlace=3,window=315360000", "'315360000'"),
        ("Backwards=1", "'Backwards'"),
        ("InPlace=64,RecreateJobs=64,window=60", "128"),
    ],
)
def test_a_bad_escalation_is_a_finding(escalation: str, found: str) -> None:
    """Windows of 0 or 10 years, steps that do not exist, and more uses than maxRestarts."""
    (finding,) = [one for one in check_jobset(annotated(ESCALATION=escalation)) if one.rule == "spec-problem"]
    assert finding.found == found
    assert wire.ESCALATION in finding.path


def test_durations_are_short() -> None:
    """The largest unit that divides them."""
    assert [whole_duration_text(seconds) for seconds in (86400, 7200, 120, 61)] == ["1 d", "2 h", "2 min", "61 s"]


def test_the_command_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text after the findings, and for programs under the JobSet's name."""
    file = saved(tmp_path, json.dumps(annotated(ESCALATION="InPlace=1,window=60")))
    run_lint(file, LintOptions())
    assert "\npolicy After a failure all workers restart in their Pods: once in any 1 min.\n" in capsys.readouterr().out
    run_lint(file, LintOptions(output="json"))
    (sentences,) = json.loads(capsys.readouterr().out)["policies"].values()
    assert sentences == list(policy_sentences(as_made(annotated(ESCALATION="InPlace=1,window=60")).jobset))


def test_no_progress_is_told_with_what_it_needs() -> None:
    """The seconds are those that the annotation has, or 60; no watchdog is needed."""
    end = "without a higher step than ever before, the JobSet fails: NoProgress."
    first = f"If 3 epochs in a row end by a failure and {end}"
    for text, stall, long_s in (("3", "0", 60), ("no-progress=3,short=600", "0", 600), ("3", "120", 60)):
        document = of_example("train", FAILURES=text, STALL=stall)
        short = f"An epoch whose steps no Pod tells counts as one without progress if it ran less than {long_s} s."
        assert {first, short} <= set(policy_sentences(document))
        assert list(check_unwatched(document)) == []


def test_failures_that_come_back_are_told_where_they_end_the_jobset() -> None:
    """By their number, class and place."""
    same = "If 2 failures in a row have one error, from one rank or at one step, without progress in between, "
    assert f"{same}the JobSet fails: NoProgress." in policy_sentences(of_example("train", FAILURES="same=2"))


def test_what_restarts_a_group_that_works_is_told() -> None:
    """Each kind that is named, and that an agent has to see the steps."""
    kinds = "Failures are also: a loss that is no finite number, steps that get slower (inplace.dev/restart-on)."
    without = f"No agent sees its worker's steps, so {wire.RESTART_ON} has no effect."
    for is_seen, told in ((False, [kinds, without]), (True, [kinds])):
        document = of_example("train-supervisor", RESTART_ON="steps+loss")
        if not is_seen:
            env("EPOCH_FILE", of=worker)(document)
        assert [one for one in policy_sentences(document) if one in (kinds, without)] == told
        assert [one.rule for one in check_unwatched(document)] == ["no-effect"] * (without in told)
    document = of_example("train", RESTART_ON="loss", STALL="120")
    document["spec"]["failurePolicy"]["restartStrategy"] = "Recreate"
    problems = [one for one in check_jobset(document) if one.rule == "spec-problem"]
    assert f"metadata.annotations[{wire.RESTART_ON}]" in [one.path for one in problems]


def test_who_stays_on_marked_nodes_is_told() -> None:
    """In place of the default."""
    stays = f"A Pod restarts in place on a cordoned or tainted node, too (marked=stay in {wire.NODES})."
    sentences = policy_sentences(annotated(NODES="marked=stay"))
    assert stays in sentences
    assert not [one for one in sentences if "is replaced on another node" in one]


def test_bad_nodes_are_told() -> None:
    """In two sentences with their numbers."""
    sentences = policy_sentences(annotated(NODES="2"))
    assert [one for one in sentences if one.startswith("Pods and nodes: a node whose worker was the first to fail 2")]
    assert (
        "A Pod whose failure makes its node bad is replaced. If no other node is free, it may return there."
        in sentences
    )


@pytest.mark.parametrize("strategy", [None, "true"])
def test_that_a_job_leaves_its_domain_is_told(strategy: str | None) -> None:
    """Where the scheduler finds a domain for each Job, and bad nodes are asked for."""
    strategies = {} if strategy is None else {"NODE_SELECTOR_STRATEGY": strategy}
    sentences = policy_sentences(annotated(NODES="failures=2,percent=20", EXCLUSIVE_TOPOLOGY="rack", **strategies))
    told = [one for one in sentences if one.startswith("A Job with its own domain is recreated")]
    assert bool(told) is (strategy is None)
    assert all("more than 20 % of its nodes are bad (one always may be)" in one for one in told)


@pytest.mark.parametrize(
    ("deadline", "end"),
    [
        ("600", "10 min for Pods that are missing, an Event says so, and it waits on."),
        (
            "deadline=600,action=RecreateJobs",
            "10 min for Pods that are missing, the Jobs of the missing Pods are recreated.",
        ),
    ],
)
def test_a_barriers_deadline_is_told(deadline: str, end: str) -> None:
    """With what happens then."""
    assert f"If a group waits longer than {end}" in policy_sentences(annotated(BARRIER=deadline))


UNRESTARTED = f"nothing restarts because of it ({wire.STALL} is not set)."
GIVEN_UP = "A Pod is given up 300 s after Kubernetes says that its node is gone (its default), and the group waits "
EARLY = "A Pod is replaced as soon as Kubernetes says that its node is gone, and the group waits "
LEASE = "for its worker's end for at most 70 s. An API server that is away for longer than 60 s ends EVERY worker."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (put(pod), f"{EARLY}{LEASE}"),
        (env("FENCE_AFTER_S", of=worker), f"{EARLY}until its object is gone ({wire.FENCE_AFTER} has no effect)."),
        (
            put(job, podFailurePolicy={"rules": []}),
            f"{GIVEN_UP}until its object is gone ({wire.FENCE_AFTER} has no effect).",
        ),
    ],
)
def test_a_dead_node_is_told(change: Break, sentence: str) -> None:
    """With leases, where the agents do not keep them, and where Kubernetes does not replace early."""
    document = of_example("train-supervisor", FENCE_AFTER="60")
    change(document)
    assert sentence in policy_sentences(document)


def test_checks_hangs_and_saving_are_told() -> None:
    """With their times, the agents' own options included."""
    document = of_example("train-supervisor", STALL="after=30,start=900", RESTART="save-within=60")
    run_with("--before-announce", "true", "--before-announce-unanswered", "leave")(document)
    told = policy_sentences(document)
    assert (
        "A worker hangs if a step takes longer than 30 s or the first step comes later than 900 s after the start; "
        "that is a failure."
    ) in told
    assert (
        "Before a Pod joins an epoch it runs a check; if that fails, the Pod is replaced. A Pod whose check is not "
        "over after 30 s, or cannot be run, ends."
    ) in told
    assert (
        "Before a planned stop workers have up to 60 s to save. A save that takes longer than 30 s is a hang, unless "
        "the script says inplace.busy."
    ) in told


def test_parts_that_differ_are_named() -> None:
    """Where one replicatedJob has a limit, both sentences name theirs."""
    document = of_example("train-supervisor")
    other = copy.deepcopy(document["spec"]["replicatedJobs"][0]) | {"name": "other"}
    env("STALL_AFTER_S", of=worker, value="30")(document)
    document["spec"]["replicatedJobs"].append(other)
    hangs = [one for one in policy_sentences(document) if "hangs" in one or "no step" in one]
    assert hangs == [
        "workers: A worker hangs if a step takes longer than 30 s; that is a failure.",
        f"other: A rank that makes no step for far longer than before is told of, and {UNRESTARTED}",
    ]


def test_the_limit_of_a_run_is_told() -> None:
    """A Job template's activeDeadlineSeconds is told as what it is in place: a limit of the whole run."""
    document = of_example("train")
    assert not any("DeadlineExceeded" in sentence for sentence in policy_sentences(document))
    job(document)["activeDeadlineSeconds"] = 14400
    assert (
        "Each Job ends 4 h after its start with the reason DeadlineExceeded; restarts in place do not begin this time "
        "again (activeDeadlineSeconds)."
    ) in policy_sentences(document)
