"""Judge a group by what its workers wrote down, and by what the API server showed: S1 to S6 of the protocol.

Two witnesses, and neither is the product's own code. Workers record when each of their processes was born and when it
was last alive, on the machine's one monotonic clock. The watches (`history.History`) keep every version of the JobSet
and of its Pods in the order of the server.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from testbed.node.history import RELISTED, History


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """One worker process: who it was, in which epoch it ran, from when to (at least) when, and how it ended.

    In a group with spares its slot ends with the rank that it plays, as JOB_COMPLETION_INDEX does there.
    """

    pod: str
    uid: str
    slot: str
    epoch: int
    born_s: float
    alive_s: float
    ended: str
    rank: int = -1
    size: int = -1


def lives(folder: Path) -> list[WorkerRecord]:
    """Return what the workers wrote down, oldest first."""
    texts = (_settled(path) for path in folder.glob("*.life"))
    found = (WorkerRecord(**json.loads(text)) for text in texts if text)
    return sorted(found, key=lambda life: life.born_s)


def ran(folder: Path, epoch: int) -> set[str]:
    """Return the slots that ever ran an epoch; the records' names are enough, which a wait looks at often."""
    return {path.name.partition(".")[0] for path in folder.glob(f"*.{epoch}.*.life")}


def _settled(path: Path) -> str:
    """Read a record that its worker may be writing at the moment: until two looks agree."""
    text, again = "", path.read_text()
    while text != again:
        text, again = again, path.read_text()
    return text


def violations(
    folder: Path, history: History, *, slots: Mapping[int, int], restarts_max: int, lost: Iterable[str] = ()
) -> list[str]:
    """
    Return each breach of S1 to S6, in words; nothing is the proof that was wanted.

    Args:
        folder: where the workers wrote.
        history: what the API server showed meanwhile.
        slots: the group's size, N, by the first epoch that had it.
        restarts_max: maxRestarts.
        lost: UIDs of Pods that something else than an in-place restart took: a test, a node.
    """
    seen = lives(folder)
    return [
        *_two_epochs_at_once(seen),
        *_twice_in_an_epoch(seen),
        *_before_the_barrier(seen, history, slots),
        *_of_another_size(seen, slots),
        *_backwards(history),
        *_recreated(history, set(lost)),
        *_too_often(seen, restarts_max),
    ]


def _two_epochs_at_once(seen: Sequence[WorkerRecord]) -> list[str]:
    """S1: no worker of an older epoch is alive once one of a newer epoch was born."""
    broken = []
    for epoch in sorted({life.epoch for life in seen})[1:]:
        first_s = min(life.born_s for life in seen if life.epoch == epoch)
        broken += [
            f"S1: {life.pod} ran epoch {life.epoch} until {life.alive_s:.3f}, epoch {epoch} began at {first_s:.3f}"
            for life in seen
            if life.epoch < epoch and life.alive_s > first_s
        ]
    return broken


def _twice_in_an_epoch(seen: Sequence[WorkerRecord]) -> list[str]:
    """S2: a slot runs an epoch at most once."""
    return [
        f"S2: slot {slot} ran epoch {epoch} {times} times"
        for (slot, epoch), times in Counter((life.slot, life.epoch) for life in seen).items()
        if times > 1
    ]


def _before_the_barrier(seen: Sequence[WorkerRecord], history: History, slots: Mapping[int, int]) -> list[str]:
    """S3: the server had N announcements of an epoch before it had S = epoch, and no worker ran without such an S."""
    synced = history.synced()
    broken = [
        f"S3: {life.pod} ran epoch {life.epoch}, which was never synced" for life in seen if life.epoch not in synced
    ]
    for epoch, version in synced.items():
        announced = history.announced(epoch, before=version.number)
        needed = slots[max(first for first in slots if first <= epoch)]
        if len(announced) < needed and version.event != RELISTED:  # then the order of the writes is lost
            broken.append(f"S3: epoch {epoch} was synced after {len(announced)} of {needed} announcements")
    return broken


def _of_another_size(seen: Sequence[WorkerRecord], slots: Mapping[int, int]) -> list[str]:
    """S3 with spares: each worker was told a rank below the group's size, and that size."""
    return [
        f"S3: {life.pod} ran epoch {life.epoch} as rank {life.rank} of {life.size}"
        for life in seen
        if life.size >= 0 and not 0 <= life.rank < life.size == slots[max(at for at in slots if at <= life.epoch)]
    ]


def _backwards(history: History) -> list[str]:
    """S4: S and D never decrease."""
    return [
        f"S4: (S, D) went from {before} to {after}"
        for before, after in pairwise(history.epochs())
        if after[0] < before[0] or after[1] < before[1]
    ]


def _recreated(history: History, lost: set[str]) -> list[str]:
    """S5: no Pod goes that nothing else took."""
    return [f"S5: Pod {name} ({uid}) was deleted" for uid, name in history.deleted().items() if uid not in lost]


def _too_often(seen: Sequence[WorkerRecord], restarts_max: int) -> list[str]:
    """S6: epochs beyond the first are restarts, and maxRestarts of them are allowed."""
    last = max((life.epoch for life in seen), default=1)
    return [f"S6: epoch {last} ran with maxRestarts {restarts_max}"] if last - 1 > restarts_max else []
