"""The rights of agents: for which accounts, and in which passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import BindAgents
from inplace.controller.plan.steps import plan
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld, settled

SEEN = frozenset({("workers", "trainer"), ("workers", "a")})


def bound(manifest: KubeObject, accounts: frozenset[tuple[str, str]] = SEEN, **observed: Any) -> list[str]:
    """Return the accounts that a plan gives rights to, in order, where these Pods were admitted."""
    given: dict[str, Any] = {"adds_agents": True, "accounts": accounts, **observed}
    actions = plan(replace(PlannerWorld(manifest).observed(), **given)).actions
    return [action.account for action in actions if isinstance(action, BindAgents)]


def test_accounts_of_pods_that_were_admitted() -> None:
    """Each once, sorted; what the template names counts for nothing until a Pod with it is there."""
    named = changed(replicated_job(), "template.spec.template.spec.serviceAccountName", "operator")
    assert bound(jobset(jobs=[named])) == ["a", "trainer"]
    assert bound(jobset(jobs=[named]), frozenset()) == []


def test_they_are_given_before_all_else() -> None:
    """Agents wait for their rights; a thousand Jobs may come in the same pass."""
    observed = replace(PlannerWorld(jobset()).observed(), adds_agents=True, accounts=SEEN)
    assert [type(action) for action in plan(observed).actions][:2] == [BindAgents, BindAgents]


def test_who_needs_rights() -> None:
    """Groups that restart in place, under a controller that adds agents; a manifest's own agents bring their rights."""
    assert bound(jobset(), adds_agents=False) == []
    assert bound(jobset(strategy="Recreate")) == []
    assert bound(jobset(annotations={wire.AGENT: wire.AGENT_OFF})) == []


def test_a_replicated_job_that_opted_out_has_no_agent() -> None:
    """Its Pods' accounts get nothing."""
    out = changed(replicated_job("out"), "template.metadata.annotations", {wire.DISABLE: ""})
    both = frozenset({("workers", "a"), ("out", "b"), ("gone", "c")})
    assert bound(jobset(jobs=[replicated_job(), out]), both) == ["a"]


def test_who_needs_rights_where_jobsets_ask_for_agents() -> None:
    """With --agent-opt-in only a JobSet that asks for agents needs them."""
    assert bound(jobset(), agents_by_default=False) == []
    asking = jobset(annotations={wire.AGENT: wire.AGENT_ON})
    assert bound(asking, agents_by_default=False) == ["a", "trainer"]
    assert bound(asking, agents_by_default=False, adds_agents=False) == []


def test_a_settled_jobset_asks_for_nothing() -> None:
    """Where every Pod has announced, a controller that starts gives no right again."""
    world = settled(jobset())
    assert plan(replace(world.observed(), adds_agents=True)).actions == ()
