"""`inject` lets a Pod fail at those exit codes at which its podFailurePolicy ends the Job; `lint` sees others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.cli.lint.agent import options_of
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.agent_command import GUARD
from inplace.common.injection.pod_failure_policy import final_codes
from inplace.common.injection.pod_roles import RUN, Member, members
from inplace.common.injection.restart_rules import Ending, codes_that
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.pod_rules import EXIT_CODES_MAX
from inplace.simulator.cluster.job_pods import judge
from tests.cli.injecting import PLAIN, annotated, as_yaml, findings_of, injected, jobset_of, with_env

FAILURES = set(range(1, 256))


def rule(action: str, operator: str, *values: int, container: str | None = None) -> KubeObject:
    """Return a rule about exit codes."""
    on: KubeObject = {"operator": operator, "values": list(values)}
    return {"action": action, "onExitCodes": on | ({"containerName": container} if container else {})}


DRAINED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
CASES: list[tuple[list[KubeObject], set[int]]] = [  # rules, and the codes that end the Pod
    ([rule("FailJob", "In", 3, 4)], {3, 4}),
    ([rule("FailJob", "NotIn", 42, 137, 143)], FAILURES - {42, 137, 143}),
    ([rule("FailJob", "NotIn", 0)], FAILURES),
    ([rule("FailJob", "NotIn", 1000)], FAILURES),
    ([rule("FailJob", "NotIn", 42, container="worker")], FAILURES - {42}),
    ([rule("FailJob", "NotIn", 42, container="other")], set()),
    ([rule("FailJob", "In", 3, container="other"), rule("FailJob", "In", 4, container="worker")], {4}),
    ([DRAINED, rule("FailJob", "NotIn", 42)], FAILURES - {42}),
    ([rule("Ignore", "In", 5), rule("FailJob", "NotIn", 42)], FAILURES - {5, 42}),
    ([rule("Count", "NotIn", 5), rule("FailJob", "In", 5, 6)], {5}),
    ([rule("FailIndex", "In", 5), rule("Ignore", "NotIn", 9), rule("FailJob", "In", 9)], {5, 9}),
    ([rule("Ignore", "NotIn", 9)], set()),
    ([rule("Count", "In", 9)], set()),
]


def with_rules(rules: list[KubeObject], text: str = PLAIN, mode: str = "sidecar") -> str:
    """Return the plain example with a podFailurePolicy, injected."""
    (document,) = parse(text)
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"] = {"rules": rules}
    return injected(as_yaml([document]), mode=mode)


def member_of(text: str) -> Member:
    """Return the replicatedJob."""
    (found,) = members(jobset_of(text))
    return found


@pytest.mark.parametrize(("rules", "final"), CASES, ids=range(len(CASES)))
@pytest.mark.parametrize("depth", ["containers", "process"])
def test_the_codes_that_end_the_job_end_a_guarded_pod(rules: list[KubeObject], final: set[int], depth: str) -> None:
    """Kubelet starts nothing again at them, the guard leaves with them, and every other failure restarts in place."""
    text = with_rules(rules, annotated(restart=depth))
    (worker,) = member_of(text).workers
    assert set(codes_that(worker.raw, Ending.STAYS)) == {0, *final}
    assert set(codes_that(worker.raw, Ending.ALL_RESTART)) == FAILURES - final
    assert all(len(one["exitCodes"]["values"]) <= EXIT_CODES_MAX for one in worker.raw.get("restartPolicyRules") or ())
    guard = options_of(worker, GUARD)
    assert guard is not None
    assert guard.final_codes == final
    assert injected(text) == text


@pytest.mark.parametrize(("rules", "final"), CASES, ids=range(len(CASES)))
def test_the_codes_that_end_the_job_end_a_supervised_pod(rules: list[KubeObject], final: set[int]) -> None:
    """The supervisor leaves with them."""
    (worker,) = member_of(with_rules(rules, mode="supervisor")).workers
    supervisor = options_of(worker, RUN)
    assert supervisor is not None
    assert supervisor.final_codes == final


RULES = st.lists(
    st.builds(
        lambda action, operator, values, container: rule(action, operator, *values, container=container),
        st.sampled_from(["FailJob", "Ignore", "Count"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.integers(1, 255), min_size=1, max_size=4),
        st.sampled_from([None, "worker", "other"]),
    ),
    max_size=4,
)


@given(rules=RULES, code=st.integers(1, 255))
def test_the_job_controller_is_of_the_same_opinion(rules: list[KubeObject], code: int) -> None:
    """A code is final exactly when the Job controller's own reading of the rules fails the Job."""
    state = {"terminated": {"exitCode": code}}
    pod = {
        "metadata": {"name": "p", "namespace": "n"},
        "status": {"containerStatuses": [{"name": "worker", "state": state}]},
    }
    policy = {"rules": rules}
    assert (judge(pod, policy)[0] == "FailJob") is (code in final_codes({"podFailurePolicy": policy}, "worker"))


def test_a_check_before_joining_ends_its_pod_beside_a_list_of_codes_that_restart() -> None:
    """The check's own code is left out of that list, although the policy lets it pass."""
    text = with_rules([rule("FailJob", "NotIn", 6, 42)], with_env(BEFORE_ANNOUNCE="true"))
    (worker,) = member_of(text).workers
    assert codes_that(worker.raw, Ending.ALL_RESTART) == [42]


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
@pytest.mark.parametrize(
    ("rules", "seen"),
    [
        ([rule("FailJob", "NotIn", 42, 137)], {0: "1-41, 43-136, 138-255"}),
        ([rule("FailJob", "In", 3), rule("Ignore", "In", 3), rule("FailJob", "In", 3, 4)], {0: "3", 2: "4"}),
        ([rule("Ignore", "NotIn", 42)], {}),
        ([rule("FailJob", "NotIn", 42, container="other")], {}),
    ],
)
def test_lint_sees_codes_that_never_reach_their_policy(
    rules: list[KubeObject], seen: dict[int, str], mode: str
) -> None:
    """At each rule those that it would decide on, whatever its operator, where the Pod restarts in place."""
    document = jobset_of(injected(PLAIN, mode=mode))
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"] = {"rules": rules}
    found = {one.path: one.found for one in findings_of(document) if one.rule == "unreachable-rule"}
    job = 'spec.replicatedJobs[name="workers"].template.spec.podFailurePolicy'
    assert found == {
        f"{job}.rules[{place}].onExitCodes.values": f"exit codes {codes}, which restart the Pod in place"
        for place, codes in seen.items()
    }


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
@pytest.mark.parametrize(("rules", "final"), CASES, ids=range(len(CASES)))
def test_lint_is_content_with_what_inject_makes(rules: list[KubeObject], final: set[int], mode: str) -> None:
    """No rule about the policy, and no error about its containers, speaks of an injected manifest."""
    rules_seen = {one.rule for one in findings_of(*parse(with_rules(rules, mode=mode)))}
    assert rules_seen <= ({"template-differs"} if final == FAILURES and mode == "sidecar" else set())
