"""Which domains a leader (controller/plan/placement.py) avoids where it can: those with nodes that are avoided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from inplace.common.jobset.bad_nodes import avoided, records_of
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.topology import exclusive_key, finds_domain


def domains_to_read(jobset: JobSet, gated: Iterable[Pod], in_use: int, now: str) -> Iterator[tuple[str, str]]:
    """Yield (node, label) of the bad nodes whose domains must be known: those that a new leader is to avoid."""
    policy = jobset.bad_nodes
    keys = {key_of_leader(jobset, pod) for pod in gated} - {""} if policy is not None else frozenset[str]()
    if policy is not None and keys:
        for node in avoided(records_of(jobset.status, policy, now), policy, in_use):
            yield from ((node, key) for key in keys)


def domains_of(nodes: Iterable[str], key: str, domains: Mapping[tuple[str, str], str]) -> tuple[str, ...]:
    """Return the domains of nodes as far as they are known, each once."""
    return tuple(dict.fromkeys(domains[node, key] for node in nodes if (node, key) in domains))


def key_of_leader(jobset: JobSet, pod: Pod) -> str:
    """Return the node label whose values are the domains of which a Pod chooses one for its Job; "" if it does not."""
    labels = pod.metadata.labels
    job = jobset.find_replicated_job(labels.replicated_job or "") if labels is not None else None
    if job is None or pod.completion_index != "0" or not finds_domain(jobset, job):
        return ""
    return exclusive_key(jobset, job) or ""
