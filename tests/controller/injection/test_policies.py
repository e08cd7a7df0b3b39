"""`inplace inject` adds what policies need, in one piece that lint finds nothing wrong with, or refuses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from inplace.agent.start.arguments import parse
from inplace.cli.lint.policy import policy_sentences
from inplace.cli.manifests.yaml_loader import parse as parse_yaml
from inplace.common.wire import names as wire
from inplace.controller.injection.policies import PolicyOptions
from tests.cli.command import run_here
from tests.cli.injecting import PLAIN, findings_of, injected, jobset_of, plain, pod_spec_of, refused

ALL = PolicyOptions("test -e /dev/nvidia0", 20.0, "leave", 60, "60", "2/3600")
SAVING = {"fieldRef": {"fieldPath": f"metadata.annotations['{wire.SAVE_WITHIN}']"}}


def values(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's variables."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("options", [{}, {"depth": "process"}, {"mode": "supervisor"}], ids=repr)
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
    assert (guard["SAVE_WITHIN_S"], agent["SAVE_WITHIN_S"], agent["CHECKS_BEFORE_ANNOUNCE"]) == (SAVING, SAVING, "1")
    assert pod["containers"][0]["restartPolicyRules"][0]["exitCodes"]["values"] == [0, 6]
    read = parse(["guard", "--", "x"], {name: text for name, text in guard.items() if isinstance(text, str)})
    assert read is not None
    assert (read.before_announce, read.check_timeout_s, read.joins_unanswered) == ("test -e /dev/nvidia0", 20.0, False)


def test_kubelet_replaces_nothing_in_a_check() -> None:
    """A shell's $( and $$ are escaped; other dollars stay."""
    made = injected(PLAIN, policies=PolicyOptions('test "$(id -u)" != $$$HOME'))
    assert values(pod_spec_of(made)["containers"][0])["BEFORE_ANNOUNCE"] == 'test "$$(id -u)" != $$$$$HOME'


def test_a_check_among_the_workers_own_variables_is_awaited() -> None:
    """As one that an option asks for: the agent waits for it, and its exit code ends the Pod."""
    text = PLAIN.replace(
        "              env:", "              env:\n              - {name: BEFORE_ANNOUNCE, value: look}"
    )
    assert text != PLAIN
    pod = pod_spec_of(injected(text))
    assert values(pod["containers"][0])["BEFORE_ANNOUNCE"] == "look"
    assert values(pod["initContainers"][0])["CHECKS_BEFORE_ANNOUNCE"] == "1"
    assert pod["containers"][0]["restartPolicyRules"][0]["exitCodes"]["values"] == [0, 6]
    assert findings_of(*parse_yaml(injected(text))) == ()


def test_an_annotation_that_is_there_asks_as_well() -> None:
    """For the time to save the Pod gets the same grace period as by the option; a Pod of 0 s needs none."""
    for text, grace_s in (("60", 90), ("0", None)):
        made = pod_spec_of(injected(plain(metadata=f'annotations: {{{wire.SAVE_WITHIN}: "{text}"}}')))
        assert made.get("terminationGracePeriodSeconds") == grace_s


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
    (
        PLAIN,
        {"barrier": "probe", "policies": CHECKS},
        "found no guard in the Pod, needed a guard or",
    ),
    (
        PLAIN,
        {"barrier": "probe", "policies": SAVES},
        "a supervisor for inplace.dev/save-within; write the",
    ),
    (PLAIN, {"policies": PolicyOptions(check_timeout_s=3.0)}, "--before-announce: found nothing beside its other"),
    (
        PLAIN,
        {"depth": "containers", "policies": LEASE},
        "--restart process, --mode supervisor, or no inplace.dev/fence-after",
    ),
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
        "env[name=\"SAVE_WITHIN_S\"]: found '30', needed 60, by fieldRef",
    ),
    (
        PLAIN.replace(COMMAND, f"[inplace-agent, run, --before-announce=true, --, {COMMAND[1:]}"),
        {"policies": CHECKS},
        "found --before-announce already",
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
    made = run_here("inject", "-q", "-f", str(file), *options)
    assert made.returncode == 0
    annotations = jobset_of(made.stdout)["metadata"]["annotations"]
    given = (wire.FENCE_AFTER, wire.BAD_NODES, wire.SAVE_WITHIN, wire.RESTART_DEPTH)
    assert [annotations[name] for name in given] == ["60", "2/3600", "60", "process"]
    assert "BEFORE_ANNOUNCE_UNANSWERED" in made.stdout
