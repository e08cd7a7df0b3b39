"""`inplace inject` adds what policies need, in one piece that lint finds nothing wrong with, or refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from inplace.agent.settings.arguments import parse
from inplace.cli.lint.policy import policy_sentences
from inplace.cli.manifests.yaml_loader import parse as parse_yaml
from inplace.common.wire import names as wire
from tests.cli.injecting import (
    PLAIN,
    annotated,
    findings_of,
    injected,
    jobset_of,
    plain,
    pod_spec_of,
    refused,
    with_env,
)

COMMAND = "[python3, -m, inplace.examples.train]"
CHECK = {
    "BEFORE_ANNOUNCE": "test -e /dev/nvidia0",
    "BEFORE_ANNOUNCE_TIMEOUT_S": "20",
    "BEFORE_ANNOUNCE_UNANSWERED": "leave",
}
ALL = annotated(with_env(**CHECK), restart="save-within=60", fence_after="60", nodes="2")
SAVING = {"fieldRef": {"fieldPath": f"metadata.annotations['{wire.SAVE_WITHIN}']"}}


def values(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's variables."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
def test_all_policies_together_are_complete(mode: str) -> None:
    """Lint has no finding, the policy's sentences know them, and a second run changes nothing."""
    made = injected(ALL, mode=mode)
    assert injected(made, mode=mode) == made
    assert findings_of(*parse_yaml(made)) == ()
    told = " ".join(policy_sentences(jobset_of(made)))
    for words in ("not over after 20 s", "up to 60 s to save", "for at most 70 s", "2 times within 3600 s"):
        assert words in told
    assert pod_spec_of(made)["terminationGracePeriodSeconds"] == 90


def test_a_guard_and_its_agent_share_the_settings() -> None:
    """The guard checks and asks, the agent waits for one check and keeps the lease; code 6 ends the Pod."""
    pod = pod_spec_of(injected(ALL))
    guard, agent = values(pod["containers"][0]), values(pod["initContainers"][0])
    assert {name: guard[name] for name in guard if name.startswith("BEFORE")} == CHECK
    assert (guard["SAVE_WITHIN_S"], agent["SAVE_WITHIN_S"], agent["CHECKS_BEFORE_ANNOUNCE"]) == (SAVING, SAVING, "1")
    assert pod["containers"][0]["restartPolicyRules"][0]["exitCodes"]["values"] == [0, 6]
    read = parse(["guard", "--", "x"], {name: text for name, text in guard.items() if isinstance(text, str)})
    assert read is not None
    assert (read.before_announce, read.check_timeout_s, read.joins_unanswered) == ("test -e /dev/nvidia0", 20.0, False)


@pytest.mark.parametrize(
    ("text", "awaited"),
    [
        (with_env(BEFORE_ANNOUNCE="look"), "1"),
        (PLAIN.replace(COMMAND, f"[/inplace/bin/guard, --before-announce, look, --, {COMMAND[1:]}"), "1"),
        (with_env(BEFORE_ANNOUNCE=""), None),
        (PLAIN.replace(COMMAND, "[train, --before-announce, look]"), None),
    ],
)
def test_a_check_of_a_worker_is_awaited(text: str, awaited: str | None) -> None:
    """The agent waits for a check that a variable or the guard's command names, and its exit code ends the Pod."""
    made = injected(text)
    pod = pod_spec_of(made)
    assert values(pod["initContainers"][0]).get("CHECKS_BEFORE_ANNOUNCE") == awaited
    assert pod["containers"][0]["restartPolicyRules"][0]["exitCodes"]["values"] == [0, 6][: 2 if awaited else 1]
    assert findings_of(*parse_yaml(made)) == ()
    assert injected(made) == made


def test_a_time_to_save_makes_the_grace_period_longer() -> None:
    """By the time to save; a Pod of 0 s needs none."""
    for text, grace_s in (("60", 90), ("0", None)):
        made = pod_spec_of(injected(annotated(restart=f"save-within={text}")))
        assert made.get("terminationGracePeriodSeconds") == grace_s


def test_many_jobs_tell_their_index_to_the_agent() -> None:
    """So that the first Pod of the replicatedJob alone is asked to save."""
    several = PLAIN.replace("replicas: 1", "replicas: 2")
    assert several != PLAIN
    for text, there in ((PLAIN, False), (several, True)):
        agent = pod_spec_of(injected(annotated(text, restart="save-within=60")))["initContainers"][0]
        assert ("JOB_INDEX" in values(agent)) is there


SAVES = {"restart": "save-within=60"}
LOOKS = {"BEFORE_ANNOUNCE": "true"}
IN_6 = "{action: RestartAllContainers, exitCodes: {operator: In, values: [6]}}"
COUNT_3 = "{action: Count, onExitCodes: {operator: In, values: [3]}}"
FAIL_NOT_3 = "{action: FailJob, onExitCodes: {operator: NotIn, values: [3]}}"
REFUSED: list[tuple[str, dict[str, Any], str]] = [  # text, options, words of the refusal
    (with_env(**LOOKS), {"barrier": "probe"}, "found no guard in the Pod, needed a guard or a supervisor for BEFORE_"),
    (annotated(**SAVES), {"barrier": "probe"}, "a supervisor for save-within in inplace.dev/restart; write the"),
    (with_env(WORKER_CLEAN="ipc"), {"barrier": "probe"}, 'env[name="WORKER_CLEAN"]: found no guard in the container'),
    (
        with_env(BEFORE_ANNOUNCE_TIMEOUT_S="3"),
        {},
        'env[name="BEFORE_ANNOUNCE"]: found nothing, needed a check beside BEFORE_ANNOUNCE_TIMEOUT_S; set it',
    ),
    (with_env(**LOOKS, BEFORE_ANNOUNCE_TIMEOUT_S="0"), {}, "found BEFORE_ANNOUNCE_TIMEOUT_S: expected seconds from"),
    (with_env(**LOOKS, BEFORE_ANNOUNCE_UNANSWERED="stay"), {}, "found BEFORE_ANNOUNCE_UNANSWERED: expected join or"),
    (
        annotated(restart="containers", fence_after="60"),
        {},
        "inplace.dev/restart: process below a guard, --mode supervisor, or no inplace.dev/fence-after",
    ),
    (annotated(fence_after="60"), {"barrier": "probe"}, "found an agent that ends before its worker, needed one that"),
    (
        annotated(plain(pod="terminationGracePeriodSeconds: 60"), **SAVES),
        {},
        "terminationGracePeriodSeconds: found 60, needed more than the 60 s to save",
    ),
    (
        annotated(with_env(SAVE_WITHIN_S="30"), **SAVES),
        {},
        "env[name=\"SAVE_WITHIN_S\"]: found '30', needed 60, by fieldRef",
    ),
    (
        injected(with_env(**LOOKS)).replace('BEFORE_ANNOUNCE, value: "1"', 'BEFORE_ANNOUNCE, value: "2"'),
        {},
        "env[name=\"CHECKS_BEFORE_ANNOUNCE\"]: found '2', needed 1; set it to the number of guards with a check",
    ),
    (
        with_env(plain(worker=f"restartPolicyRules: [{IN_6}]"), **LOOKS),
        {},
        "restartPolicyRules: found after exit code 6",
    ),
    (
        annotated(plain(job=f"podFailurePolicy: {{rules: [{COUNT_3}]}}"), fence_after="60"),
        {"mode": "supervisor"},
        "podFailurePolicy: found one, needed none beside leases",
    ),
    (
        with_env(plain(job=f"podFailurePolicy: {{rules: [{FAIL_NOT_3}]}}"), **LOOKS),
        {},
        "podFailurePolicy.rules[0]: found an end of the Job after exit code 6, needed a Pod that is replaced",
    ),
]


@pytest.mark.parametrize(("text", "options", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_work_is_refused(text: str, options: dict[str, Any], words: str) -> None:
    """In one sentence with the place, what is there, what is needed, and what to do."""
    assert words in refused(text, **options)
