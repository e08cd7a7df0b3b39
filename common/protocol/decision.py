"""The answers of a `Ledger`: the status that the JobSet should have, and the number of its Pods in each state."""

from __future__ import annotations

from dataclasses import dataclass

from inplace.common.protocol.members import Members


@dataclass(frozen=True, slots=True)
class Decision:
    """What the JobSet's status should say now.

    Args:
        synced: S, never below the ledger's.
        deprecated: D, never below the ledger's; with an S that grows, an epoch that is skipped.
        restarts: counted group restarts so far, this decision's included.
        exceeded: more restarts than allowed were announced; the JobSet must fail, and S and D stay.
        recreate: (replicatedJob, job index) whose Pods completed and so cannot restart in place.
        members: of `synced` in a group with spares, for the same write; None where nobody knows them.
    """

    synced: int
    deprecated: int
    restarts: int = 0
    exceeded: bool = False
    recreate: frozenset[tuple[str, int]] = frozenset()
    members: Members | None = None


@dataclass(frozen=True, slots=True)
class PodCounts:
    """How many Pods of the expected slots do what; completed ones are in none of it.

    Args:
        running: at S, while it is the running epoch.
        waiting: announced an epoch beyond S.
        restarting: are there and have not announced it yet.
        missing: are not there.
        spares: wait for a member to be lost, while S runs.
    """

    running: int
    waiting: int
    restarting: int
    missing: int
    spares: int = 0
