"""
Judge who runs in a group with spares, from the JobSet's versions, the Pods and the starts of workers alone.

Each epoch has one list, in the write of its S. Only the slots of that list run, with its ranks and its size.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inplace.common.jobset.members import MemberPolicy
from inplace.common.jobset.settings import MEMBERS, WAIT_S
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.link import PlayedRank
from inplace.common.protocol.members import Members, Sizes
from inplace.common.wire import names as wire
from inplace.common.wire.members import read_members
from inplace.simulator.campaign.slots import Slot, place_of
from inplace.simulator.cluster.timeline import own_status

M1 = "M1 an epoch began without a list of its members, or with one that its JobSet does not allow"
M2 = "M2 a worker started in a slot that the list does not name, or with another rank or size"
M3 = "M3 the list of an epoch changed"
M4 = "M4 spares became members before the wait was over"
TOLERANCE_S = 0.05  # of a wait: the timer of a loop is not exact
NODES_S = 60.0  # after a change of a node, members may move away from it at any time
EXCHANGED = "members"  # the trigger of a restart in which spares become members


@dataclass(slots=True)
class _Group:
    """What is known of one JobSet.

    Args:
        lists: of each epoch that ran, its members.
        has_list: the status has a place for members.
        sizes: every number that a version of the JobSet has allowed.
        synced_s: when S was written.
        exchanged: the epochs that ended so that spares become members.
        announced_s: when a slot announced an epoch first.
    """

    lists: dict[int, Members] = field(default_factory=dict)
    has_list: bool = False
    sizes: set[int] = field(default_factory=set)
    synced_s: float = 0.0
    exchanged: set[int] = field(default_factory=set)
    announced_s: dict[tuple[Slot, int], float] = field(default_factory=dict)


class MemberRules:
    """The rules of groups with spares.

    Args:
        breaks: takes a rule and how it was broken.
    """

    def __init__(self, breaks: Callable[[str, str], None]) -> None:
        self._breaks = breaks
        self._groups: dict[str, _Group] = defaultdict(_Group)
        self._left_s = float("-inf")  # a node was closed to Pods, or opened again

    def of(self, jobset: str, epoch: int) -> Members | None:
        """Return who runs in an epoch; None where the JobSet has no spares, or that epoch no list."""
        return self._groups[jobset].lists.get(epoch)

    def synced_s(self, jobset: KubeObject) -> float:
        """Return when S was written."""
        return self._groups[jobset["metadata"]["uid"]].synced_s

    def announced_s(self, jobset: KubeObject, members: Members) -> float:
        """Return when the last member announced its epoch first."""
        announced = self._groups[jobset["metadata"]["uid"]].announced_s
        return max(announced.get((slot, members.epoch), 0.0) for slot in self.slots(jobset, members))

    def note_announced(self, jobset: str, slot: Slot, epoch: int) -> None:
        """Note an announcement."""
        self._groups[jobset].announced_s.setdefault((slot, epoch), asyncio.get_running_loop().time())

    def slots(self, jobset: KubeObject, members: Members) -> list[Slot]:
        """Return the slots that a list names."""
        (replicated,) = jobset["spec"]["replicatedJobs"]
        name, units = f"{jobset['metadata']['name']}-{replicated['name']}", members.slots()
        if members.pods:
            return [(f"{name}-{unit}", str(index)) for unit in units for index in range(members.pods)]
        return [(f"{name}-0", str(unit)) for unit in units]

    def note_node(self, node: KubeObject) -> None:
        """Note that Pods may have to leave a node."""
        if node["spec"].get("unschedulable") or node["spec"].get("taints"):
            self._left_s = asyncio.get_running_loop().time()

    def observe(self, jobset: KubeObject, before: tuple[int, int], after: tuple[int, int], *, exact: bool) -> None:
        """Judge a version of a JobSet.

        Args:
            jobset: with the annotation and the status that are judged.
            before: S and D of the version before.
            after: S and D of this one.
            exact: the controllers' clocks are right.
        """
        group = self._groups[jobset["metadata"]["uid"]]
        text = own_status(jobset).get(wire.MEMBERS_FIELD)
        members = read_members(text)
        group.has_list |= text is not None and not (members is not None and members.everyone)
        if not group.has_list:
            return  # no spares: a list says only from which step all go on
        group.sizes |= sizes_of(jobset)
        now_s, (synced, deprecated) = asyncio.get_running_loop().time(), after
        # The write that ends the epoch may also begin the next one, where all have announced that meanwhile.
        if deprecated > before[1] and deprecated == before[0] and _trigger(jobset) == EXCHANGED:
            group.exchanged.add(deprecated)
            left_s = group.synced_s + policy_of(jobset).wait_s - now_s
            if exact and left_s > TOLERANCE_S and now_s - self._left_s > NODES_S:
                self._breaks(M4, f"epoch {deprecated} ended {left_s:.3f} s too early")
        if synced > before[0]:
            group.synced_s = now_s
            if synced > deprecated:
                self._judge_list(group, synced, members, text)
            elif before[0] in group.exchanged:
                group.exchanged.add(synced)  # it is skipped, and the restart goes on
        elif members is not None and members.epoch == synced and group.lists.get(synced, members) != members:
            self._breaks(M3, f"{group.lists[synced]} became {members}")

    def has_exchanged(self, jobset: KubeObject, synced: int) -> bool:
        """Say whether the epoch before S ended so that spares become members."""
        return synced - 1 in self._groups[jobset["metadata"]["uid"]].exchanged

    def started(self, jobset: str, pod: str, slot: Slot, epoch: int, played: PlayedRank | None) -> None:
        """Judge the start of a worker."""
        group = self._groups[jobset]
        if not group.has_list:
            return
        members = group.lists.get(epoch)
        rank = place_of(members, slot) if members is not None else None
        if members is None or rank is None:
            self._breaks(M2, f"{pod} starts in epoch {epoch}, whose list is {members}")
        elif played is None or (played.rank, played.size) != (rank, members.pods_in_all):
            self._breaks(M2, f"{pod} starts in epoch {epoch} as {played}, whose list is {members}")

    def _judge_list(self, group: _Group, synced: int, members: Members | None, text: object) -> None:
        if members is None or members.epoch != synced or members.skipped:
            self._breaks(M1, f"S became {synced} with the list {text!r}")
            return
        group.lists[synced] = members
        if members.size not in group.sizes:
            self._breaks(M1, f"S became {synced} with {members.size} members, allowed are {sorted(group.sizes)}")


def policy_of(jobset: KubeObject) -> MemberPolicy:
    """Return how many members a JobSet should have; all where its numbers do not fit its Pods, or its Jobs."""
    units, given = _units(jobset), _given(jobset)
    most = given.get("max", units)
    sizes = Sizes(given.get("min", most), most, given.get("step", 1))
    return MemberPolicy(sizes if fits(jobset) else Sizes(units, units), given.get("wait", WAIT_S))


def fits(jobset: KubeObject) -> bool:
    """Say whether a JobSet has a unit for each of as many members as it asks for."""
    units = _units(jobset)
    return int(_given(jobset).get("max", units)) <= units


def _units(jobset: KubeObject) -> int:
    """Return how many Jobs there are, or of one Job the Pods."""
    job = jobset["spec"]["replicatedJobs"][0]
    replicas = int(job.get("replicas", 1))
    return replicas if replicas > 1 else int(job["template"]["spec"]["parallelism"])


def _given(jobset: KubeObject) -> dict[str, Any]:
    return MEMBERS.read(jobset["metadata"].get("annotations") or {}) or {}


def sizes_of(jobset: KubeObject) -> set[int]:
    """Return the numbers of members that a version of a JobSet allows."""
    sizes = policy_of(jobset).sizes
    return set(range(sizes.least, sizes.most + 1, sizes.step))


def _trigger(jobset: KubeObject) -> str:
    return str(((jobset.get("status") or {}).get(wire.LAST_GROUP_RESTART) or {}).get("trigger") or "")
