"""What goes wrong in benchmarks.policies, and the annotations under which a group answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from inplace.common.jobset.notices import restart_on
from inplace.common.jobset.settings import STALL
from inplace.common.protocol.learned_limit import STEP_S_MIN
from inplace.common.wire import names as wire
from inplace.common.wire.notice import STALL as STALL_KIND

PODS: Final = 8  # one on each node
SPARE_NODES: Final = 2  # where a rack goes, there is a whole one
NEVER_S: Final = 1e12
HEALTHY_S: Final = 1000 * 3600.0  # mean time between two deaths on one node
FLAKY_S: Final = 600.0  # the same of a node that should be repaired
RACK_NODES: Final = 4
AWAY_S: Final = 600.0  # how long the nodes of a drained rack are cordoned


@dataclass(frozen=True, slots=True)
class Scenario:
    """What goes wrong.

    Args:
        flaky: how many nodes end their worker every FLAKY_S, in the mean.
        flaky_ranks: how many ranks do that wherever they run, as one that runs out of memory.
        crash_at_s: a bug ends every run at this second of the work.
        rack_s: the mean time between two failures that end the workers of one rack's nodes together.
        drain_s: the mean time between two drains.
        cordon_at_s: when somebody cordons the flaky nodes.
        gone_at_s: when one rack's nodes stop for good.
        spares: nodes that no Pod of the group needs.
        drained: how many nodes a drain takes.
        away_s: how long they are cordoned.
        die_s: the mean time between two deaths of a worker that say nothing of its node.
        turn_s: the mean time until one more node ends its worker every FLAKY_S.
        hang_s: the mean time between two hangs of the group.
        person_s: how long after it turned bad a person drains a node, and after it began ends a hang.
        work_s: the seconds of work; the group is given twice as long.
    """

    flaky: int = 0
    flaky_ranks: int = 0
    crash_at_s: float = NEVER_S
    rack_s: float = NEVER_S
    drain_s: float = NEVER_S
    cordon_at_s: float = NEVER_S
    gone_at_s: float = NEVER_S
    spares: int = SPARE_NODES
    drained: int = RACK_NODES
    away_s: float = AWAY_S
    die_s: float = NEVER_S
    turn_s: float = NEVER_S
    hang_s: float = NEVER_S
    person_s: float = 3600.0
    work_s: float = 4 * 3600.0


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "nothing in particular": Scenario(),
    "one flaky node": Scenario(flaky=1),
    "two flaky nodes": Scenario(flaky=2),
    "one flaky rank": Scenario(flaky_ranks=1),
    "a bug at one step": Scenario(crash_at_s=3800.0),
    "a rack that fails": Scenario(rack_s=3600.0),
    "a cordoned flaky node": Scenario(flaky=1, cordon_at_s=3600.0),
    "drains of a rack": Scenario(drain_s=1800.0, spares=RACK_NODES),
    "a rack gone for good": Scenario(gone_at_s=3600.0, spares=RACK_NODES),
}
FULL: Final[Mapping[str, Scenario]] = {
    "a node is away at times": Scenario(drain_s=2 * 3600.0, spares=0, drained=1, away_s=1800.0),
    "a node is away often": Scenario(drain_s=3600.0, spares=0, drained=1, away_s=3600.0),
    "two nodes are away often": Scenario(drain_s=3600.0, spares=0, drained=2, away_s=3600.0),
}
"""In a cluster that is full: no node is free for a Pod that lost its own."""
NONE: Final = "none"
ADVISED: Final = "all three"
_ESCALATION: Final = "InPlace=4,ReplacePod=4,RecreateJobs=2,window=86400"
_BAD_NODES: Final = "failures=2,within=86400,percent=30"
_NO_PROGRESS: Final = "no-progress=6,short=240"
POLICIES: Final[Mapping[str, Mapping[str, str]]] = {
    NONE: {},
    "budget in time": {wire.ESCALATION: "InPlace=5,window=3600"},
    "no progress": {wire.FAILURES: _NO_PROGRESS},
    "escalation": {wire.ESCALATION: _ESCALATION},
    "bad nodes": {wire.NODES: _BAD_NODES},
    "marked: stay": {wire.NODES: "marked=stay"},
    ADVISED: {wire.ESCALATION: _ESCALATION, wire.NODES: _BAD_NODES, wire.FAILURES: _NO_PROGRESS},
}
"""The annotations of the JobSet under each policy; docs/policies.md says what they mean."""
PLACES: Final[Mapping[str, tuple[int, str]]] = {
    "no spare": (0, ""),
    "1 spare": (1, f"max={PODS}"),
    "2 spares": (2, f"max={PODS}"),
    f"6 to {PODS} members": (0, f"max={PODS},min=6"),
    f"6 to {PODS}, 1 spare": (1, f"max={PODS},min=6"),
}
"""Spares beyond PODS, each with a node of its own, and what `inplace.dev/members` says; docs/members.md."""


def hang_limit_s(annotations: Mapping[str, str]) -> float | None:
    """Return after how many seconds a hung group restarts; None: a person has to do it.

    No worker is silent here: the limit that somebody set, or the least that a Pod learns (docs/adr/0109).
    """
    if (after_s := STALL.read_or_default(annotations).get("after")) is not None:
        return float(after_s)
    return STEP_S_MIN if STALL_KIND in restart_on(annotations) else None
