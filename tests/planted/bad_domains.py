"""Planted bugs of Jobs that leave bad domains, which their exploration must find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from inplace.common.jobset.bad_nodes import BadNodes
from inplace.common.jobset.places import Place, job_of_pod
from inplace.common.jobset.scopes import Scope
from inplace.common.wire import names as wire
from inplace.controller.plan import leaving
from inplace.controller.plan.budget import exempt_next_epoch
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.escalation import count_recreation
from inplace.controller.plan.leaving import leave_bad_domains
from tests.model.bad_domains import explore_bad_domains
from tests.planted.bug import checked
from tests.planted.mistake import instead_of, within


def _leaves_the_other(original: Callable[..., None], draft: Draft, scope: Scope, place: Place, why: str) -> None:
    original(draft, scope, (place[0], 1 - place[1]), why)


def _counts_former_domains(original: Callable[..., bool], draft: Draft) -> bool:
    """Take the failures of a Job's predecessors for its own."""
    records = draft.status.get(wire.NODE_FAILURES)
    if records is None:
        return original(draft)
    current = draft.observed.jobs
    mistaken = [record | {"jobUid": current[job_of_pod(record["pod"])].metadata.uid} for record in records]
    draft.status[wire.NODE_FAILURES] = mistaken
    has_left = original(draft)
    draft.status[wire.NODE_FAILURES] = records
    return has_left


def _one_is_enough(
    original: Callable[..., str], draft: Draft, policy: BadNodes, place: Place, nodes: Sequence[str]
) -> str:
    return original(draft, policy, place, [*nodes, *nodes])


BAD_DOMAIN_BUGS: Final = (
    checked(
        "bad domains: recreates a healthy Job",
        explore_bad_domains,
        instead_of(leaving._leave, _leaves_the_other),
        stories="bad_domains",
    ),
    checked(
        "bad domains: counts a domain again that a Job has left",
        explore_bad_domains,
        instead_of(leave_bad_domains, _counts_former_domains),
        stories="bad_domains",
    ),
    checked(
        "bad domains: takes one bad node for a bad domain",
        explore_bad_domains,
        instead_of(leaving._why_left, _one_is_enough),
        stories="bad_domains",
    ),
    checked(
        "bad domains: maxRestarts counts the recreation and its epoch",
        explore_bad_domains,
        within(leaving._leave, instead_of(exempt_next_epoch, lambda original, *_, **__: None)),
        stories="bad_domains",
    ),
    checked(
        "bad domains: the recreation takes no place of its failure",
        explore_bad_domains,
        within(leaving._leave, instead_of(count_recreation, lambda original, *_: "")),
        stories="bad_domains",
    ),
    checked(
        "bad domains: calls off that a Pod of another Job leaves",
        explore_bad_domains,
        instead_of(leaving._is_leaving_elsewhere, lambda original, *_: False),
        stories="bad_domains",
    ),
    checked(
        "bad domains: a Job of a running group is recreated",
        explore_bad_domains,
        instead_of(leaving._scope_that_may, lambda original, draft, place: draft.jobset.scopes_in(draft.status)[""]),
        stories="bad_domains",
    ),
)
