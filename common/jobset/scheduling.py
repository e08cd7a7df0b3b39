"""
The form of spec.scheduling: which Pods the scheduler places together (KEP-969 of upstream). Pure.

What is passed on unread stays a dictionary, so that a field of a newer Kubernetes survives.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Gang(msgspec.Struct, rename="camel"):
    """All Pods of a group or none; upstream reads `minCount` of one Job's group alone."""

    min_count: int | None = None


class Policy(msgspec.Struct):
    """How the Pods of one group are placed."""

    basic: dict[str, Any] | None = None
    gang: Gang | None = None


class Placing(msgspec.Struct, rename="camel"):
    """What all three levels can say of a group; `resourceClaims` is of one Job's group alone."""

    scheduling_policy: Policy | None = None
    scheduling_constraints: dict[str, Any] | None = None
    disruption_mode: dict[str, Any] | None = None
    resource_claims: list[dict[str, Any]] | None = None

    @property
    def is_gang(self) -> bool:
        """Say whether the Pods are placed whole or not at all: where nothing is said, too, as upstream has it."""
        return self.scheduling_policy is None or self.scheduling_policy.gang is not None


class Entry(Placing, rename="camel", kw_only=True):
    """One entry of spec.scheduling.replicatedJobs; with `job` each Job of its one target is a group of its own."""

    target_replicated_jobs: list[str]
    job: Placing | None = None


class Scheduling(Placing, rename="camel", kw_only=True):
    """spec.scheduling; an empty one counts as set."""

    replicated_jobs: list[Entry] | None = None
