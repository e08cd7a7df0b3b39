"""`inplace inject` adds what policies need, in one piece that lint finds nothing wrong with, or refuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from inplace.agent.start.arguments import GuardOptions, parse
from inplace.cli.inject.policies import PolicyOptions
from inplace.cli.lint.policy import policy_sentences
from inplace.cli.manifests.yaml_loader import parse as parse_yaml
from inplace.common.wire import names as wire
from tests.cli.command import run
from tests.cli.injecting import PLAIN, findings_of, injected, jobset_of, plain, pod_spec_of, refused

ALL = PolicyOptions("test -e /dev/nvidia0", 20.0, "leave", 60, "60", "2/3600")
FIELD = {"fieldRef": {"fieldPath": f"metadata.annotations['{wire.FENCE_AFTER}']"}}


def values(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's variables."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("options", [{"depth": "process"}, {"mode": "supervisor"}], ids=repr)
def test_all_policies_together_are_complete(options: dict[str, Any]) -> None:
    """Lint has no finding, the policy's sentences know them, and a second run changes nothing."""
    made = injected(PLAIN, policies=ALL, **options)
    assert injected(made, policies=ALL, **options) == made
    assert injected(made, **options) == made
    assert findings_of(*parse_yaml(made)) == ()
    told = " ".join(policy_sentences(jobset_of(made)))
    for words in ("not over after 20 s", "up to 60 s to save", "for at most 70 s", "2 times within 3600 s"):
        assert words in told
    assert pod_spec_of(made)["terminationGracePeriodSeconds"] == 90


def test_a_guard_and_its_agent_share_the_settings() -> None:
    """The guard checks and asks, the agent waits for one check and keeps the lease; code 6 ends the Pod."""
    pod = pod_spec_of(injected(PLAIN, policies=ALL, depth="process"))
    guard, agent = values(pod["containers"][0]), values(pod["initContainers"][0])
    assert {name: guard[name] for name in guard if name.startswith("BEFORE")} == {
        "BEFORE_ANNOUNCE": "test -e /dev/nvidia0",
        "BEFORE_ANNOUNCE_TIMEOUT_S": "20",
        "BEFORE_ANNOUNCE_UNANSWERED": "leave",
    }
    assert (guard["SAVE_WITHIN_S"], agent["SAVE_WITHIN_S"], agent["CHECKS_BEFORE_ANNOUNCE"]) == ("60", "60", "1")
    assert agent["FENCE_AFTER_S"] == FIELD
    assert pod["containers"][0]["restartPolicyRules"][0]["exitCodes"]["values"] == [0, 6]
    read = parse(["guard", "--", "x"], {name: text for name, text in guard.items() if isinstance(text, str)})
    assert isinstance(read, GuardOptions)
    assert (read.before_announce, read.check_timeout_s, read.joins_unanswered) == ("test -e /dev/nvidia0", 20.0, False)


def test_kubelet_replaces_nothing_in_a_check() -> None:
    """A shell's $( and $$ are escaped; other dollars stay."""
    made = injected(PLAIN, policies=PolicyOptions('test "$(id -u)" != $$$HOME'))
    assert values(pod_spec_of(made)["containers"][0])["BEFORE_ANNOUNCE"] == 'test "$$(id -u)" != $$$$$HOME'


def test_an_annotation_that_is_there_asks_as_well() -> None:
    """Its agents get the variable; a JobSet without it keeps every byte."""
    annotated = plain(metadata=f'annotations: {{{wire.FENCE_AFTER}: "60"}}')
    pod = pod_spec_of(injected(annotated, mode="supervisor"))
    assert values(pod["containers"][0])["FENCE_AFTER_S"] == FIELD
    assert "FENCE" not in injected(PLAIN, mode="supervisor")


def test_many_jobs_tell_their_index_to_the_agent() -> None:
    """So that the first Pod of the replicatedJob alone is asked to save."""
    several = PLAIN.replace("replicas: 1", "replicas: 2")
    assert several != PLAIN
    for text, there in ((PLAIN, False), (several, True)):
        agent = pod_spec_of(injected(text, policies=PolicyOptions(save_within_s=60)))["initContainers"][0]
        assert ("JOB_INDEX" in values(agent)) is there


SAVES = PolicyOptions(save_within_s=60)
CHECKS = PolicyOptions("true")
LEASE = PolicyOptions(fence_after_s="60")
IN_6 = "{action: RestartAllContainers, exitCodes: {operator: In, values: [6]}}"
IN_3 = "{operator: In, values: [3]}"
FAIL_NOT_3 = "{action: FailJob, onExitCodes: {operator: NotIn, values: [3]}}"
COMMAND = "[python3, -m, inplace.examples.train]"
REFUSED: list[tuple[str, dict[str, Any], str]] = [  # text, options, words of the refusal
    (PLAIN, {"barrier": "probe", "policies": CHECKS}, "--before-announce: found no guard in the Pod"),
    (PLAIN, {"barrier": "probe", "policies": SAVES}, "--save-within: found no guard in the Pod"),
    (PLAIN, {"policies": PolicyOptions(check_timeout_s=3.0)}, "--before-announce: found nothing beside its other"),
    (PLAIN, {"policies": LEASE}, "--restart process, --mode supervisor, or no inplace.dev/fence-after"),
    (PLAIN, {"policies": PolicyOptions(fence_after_s="5"), "mode": "supervisor"}, "--fence-after: found '5'"),
    (PLAIN, {"policies": PolicyOptions(bad_nodes="2")}, "--bad-nodes: found '2', needed FAILURES/SECONDS"),
    (
        plain(metadata=f"annotations: {{{wire.BAD_NODES}: 3/3600}}"),
        {"policies": PolicyOptions(bad_nodes="2/3600")},
        "found 3/3600, needed 2/3600; change the annotation, or leave the option out",
    ),
    (
        plain(pod="terminationGracePeriodSeconds: 60"),
        {"policies": SAVES},
        "terminationGracePeriodSeconds: found 60, needed more than the 60 s to save",
    ),
    (
        PLAIN.replace("              env:", "              env:\n              - {name: SAVE_WITHIN_S, value: '30'}"),
        {"policies": SAVES},
        'env[name="SAVE_WITHIN_S"]: found 30, needed 60; change it there, or leave the option out',
    ),
    (
        PLAIN.replace(COMMAND, f"[inplace-agent, run, --save-within=30, --, {COMMAND[1:]}"),
        {"policies": SAVES},
        "found --save-within already",
    ),
    (
        plain(worker=f"restartPolicyRules: [{IN_6}]"),
        {"policies": CHECKS},
        "restartPolicyRules: found after exit code 6",
    ),
    (
        plain(job=f"podFailurePolicy: {{rules: [{{action: Count, onExitCodes: {IN_3}}}]}}"),
        {"policies": LEASE, "mode": "supervisor"},
        "podFailurePolicy: found one, needed none beside leases",
    ),
    (
        plain(job=f"podFailurePolicy: {{rules: [{FAIL_NOT_3}]}}"),
        {"policies": CHECKS},
        "podFailurePolicy.rules[0]: found an end of the Job after exit code 6, needed a Pod that is replaced",
    ),
]


@pytest.mark.parametrize(("text", "options", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_work_is_refused(text: str, options: dict[str, Any], words: str) -> None:
    """In one sentence with the place, what is there, what is needed, and what to do."""
    assert words in refused(text, **options)


def test_the_command_has_the_options(tmp_path: Path) -> None:
    """Each under its name."""
    file = tmp_path / "plain.yaml"
    file.write_text(PLAIN)
    options = ["--before-announce", "true", "--before-announce-timeout", "20", "--before-announce-unanswered", "leave"]
    options += ["--save-within", "60", "--fence-after", "60", "--bad-nodes", "2/3600", "--restart", "process"]
    made = run("inject", "-q", "-f", str(file), *options)
    assert made.returncode == 0
    annotations = jobset_of(made.stdout)["metadata"]["annotations"]
    assert (annotations[wire.FENCE_AFTER], annotations[wire.BAD_NODES]) == ("60", "2/3600")
    assert "BEFORE_ANNOUNCE_UNANSWERED" in made.stdout
