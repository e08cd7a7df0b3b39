"""
Judge from which step the workers of an epoch go on, from the JobSet's versions and from what the Pods have saved.

    R1  no two workers of an epoch start from different steps
    R2  no worker is told a step that its Pod cannot load, or of which it has a part of another whole
    R3  no worker is told a shared step that no worker saved
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.link import Lifted
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.members import read_members
from inplace.simulator.campaign.slots import jobset_of, slot_of
from inplace.simulator.campaign.steps import Copy, SavingRank, StepStore
from inplace.simulator.cluster.timeline import own_status

R1 = "R1 two workers of one epoch start from different steps"
R2 = "R2 a worker is told a step that its Pod cannot load, or that is a part of another whole"
R3 = "R3 a worker is told a shared step that no worker saved"


@dataclass(slots=True)
class _Group:
    """What is known of one JobSet.

    Args:
        lists: of each epoch that has one; its resume step is what every worker must be told.
        made: of each epoch that goes on from the Pods' own copies, the epoch that made them.
        stripped: epochs whose list somebody took out of the status: a Pod that had told of no step then begins without
            one (docs/adr/0108).
    """

    lists: dict[int, Members] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    stripped: set[int] = field(default_factory=set)


class ResumeRules:
    """The rules of groups that save steps.

    Args:
        breaks: takes a rule and how it was broken.
    """

    def __init__(self, breaks: Callable[[str, str], None]) -> None:
        self._breaks = breaks
        self._groups: dict[str, _Group] = defaultdict(_Group)

    def observe(self, jobset: KubeObject, synced: int) -> None:
        """Take in a version of a JobSet, whose S is `synced`."""
        group = self._groups[jobset["metadata"]["uid"]]
        members = read_members(own_status(jobset).get(wire.MEMBERS_FIELD))
        if members is not None and members.epoch == synced:
            group.lists.setdefault(synced, members)
        elif synced in group.lists:
            group.stripped.add(synced)

    def start(self, store: StepStore, pod: KubeObject, epoch: int, lifted: Lifted) -> SavingRank:
        """Judge from which step a worker goes on, and let it make steps.

        Args:
            store: what the Pods have saved.
            pod: the worker's.
            epoch: in which it starts.
            lifted: what it is told.
        """
        uid, jobset = pod["metadata"]["uid"], jobset_of(pod)
        members = self._groups[jobset].lists.get(epoch)
        rank = slot_of(pod) if lifted.played is None else lifted.played.rank
        here = Copy(epoch, rank, None if members is None else members.size)
        copies = store.copies.get(uid, {})
        self.judge(jobset, pod["metadata"]["name"], lifted.step, here, copies, store.shared)
        return store.start(jobset, uid, here, lifted.step)

    def judge(
        self, jobset: str, pod: str, step: int | None, here: Copy, copies: dict[int, Copy], shared: set[int]
    ) -> None:
        """Judge the start of a worker whose steps will be like `here`."""
        group, epoch = self._groups[jobset], here.made
        members = group.lists.get(epoch)
        resume = members.resume if members is not None else None
        if step != (None if resume is None else resume.step):
            if step is not None or epoch not in group.stripped:
                self._breaks(R1, f"{pod} starts epoch {epoch} from {step}, and its list says {resume}")
        elif resume is not None and not resume.local:
            if resume.step not in shared:
                self._breaks(R3, f"{pod} starts epoch {epoch} from step {step}, and on storage are {sorted(shared)}")
        elif resume is not None:
            copy = copies.get(resume.step)
            if copy is None:
                self._breaks(R2, f"{pod} starts epoch {epoch} from step {step}, and has {sorted(copies)}")
            elif copy.rank != here.rank or (None not in (copy.size, here.size) and copy.size != here.size):
                self._breaks(R2, f"{pod} starts epoch {epoch} as {here} from step {step}, which is {copy}")
            elif group.made.setdefault(epoch, copy.made) != copy.made:
                self._breaks(R2, f"{pod} starts epoch {epoch} from {copy}, others from epoch {group.made[epoch]}'s")
