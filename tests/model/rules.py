"""The rules, by the names that a trace and the table of planted bugs print."""

from __future__ import annotations

from typing import Final

S1: Final = "S1 two workers of different epochs run at once"
S2: Final = "S2 a slot's worker started twice in one epoch"
S3: Final = "S3 a worker started before every slot announced its epoch"
S3_NOW: Final = "S3 a controller that saw everything synced without every slot live and alone"
S4: Final = "S4 S or D decreased, or D passed S"
S5: Final = "S5 a Job was recreated that had no completed Pod, or while its epoch ran"
S6: Final = "S6 more counted restarts than maxRestarts"
S7: Final = "S7 more group restarts than agents, workers and Pods that died"
S8: Final = "S8 the JobSet failed with restarts left"
M1: Final = "M1 an epoch has a rank twice, or not at all"
M2: Final = "M2 a worker started in an epoch whose members its agent has not read, or as no member"
M3: Final = "M3 a running epoch ended although no member was hurt"
M4: Final = "M4 a worker started in a Pod that was not counted"
R1: Final = "R1 two workers of one epoch start from different steps"
R2: Final = "R2 a worker is told a step that its Pod cannot load, or that is a part of another whole"
R3: Final = "R3 a worker is told a shared step that no member told"
F1: Final = "F1 a Pod that a controller counts as gone runs a worker"
F2: Final = "F2 an agent holds its lease, or its worker runs, for longer than it promised"
INVARIANT: Final = "INV production code raised InvariantError"
STUCK: Final = "L1 the group cannot come together again without a further fault"

# (S, D) as they are read.
Epochs = tuple[int, int]
# A stored status of the JobSet: (how often it was lost before, S, D). In this order versions grow.
Version = tuple[int, int, int]


def broken_by_write(old: Epochs, new: Epochs, announced: list[int], restarts_max: int, deaths: int) -> str:
    """Name the rule that a status write breaks, or return "".

    Args:
        old: the status before.
        new: the status written.
        announced: for each slot, the highest epoch that any Pod of it ever had stored.
        restarts_max: maxRestarts.
        deaths: of agents, workers and Pods so far.
    """
    (synced, deprecated), (synced_new, deprecated_new) = old, new
    if synced_new < synced or deprecated_new < deprecated or deprecated_new > synced_new:
        return S4
    if synced_new > synced and synced_new > deprecated_new and min(announced) < synced_new:
        return S3
    if synced_new - 1 > restarts_max:
        return S6
    if synced_new - 1 > deaths:
        return S7
    return ""
