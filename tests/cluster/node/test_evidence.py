"""The judge of the node tests reports each broken rule, and reports nothing for a clean record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inplace.common.wire import names as wire
from testbed.node.evidence import violations
from testbed.node.history import History, Version, epochs_of

SLOTS = {1: 2}


def record(folder: Path, *, slot: str, epoch: int, born_s: float, alive_s: float, **more: int) -> None:
    """Write a worker's record."""
    life = more | {"pod": f"p{slot}", "uid": f"u{slot}", "slot": slot, "epoch": epoch, "ended": ""}
    life |= {"born_s": born_s, "alive_s": alive_s}
    (folder / f"p{slot}.{epoch}.{born_s}.life").write_text(json.dumps(life).ljust(512))


def pod(number: int, name: str, epoch: int, event: str = "MODIFIED") -> Version:
    """Return a version of a Pod that announced an epoch."""
    stored = {"metadata": {"name": f"p{name}", "uid": f"u{name}", "annotations": {wire.EPOCH: str(epoch)}}}
    return Version("Pod", event, number, 0.0, stored)


def jobset(number: int, synced: int, deprecated: int) -> Version:
    """Return a version of the JobSet."""
    stored: dict[str, Any] = {"metadata": {"name": "train", "uid": "j"}}
    stored["status"] = wire.status_of_epochs(synced, deprecated)
    return Version("JobSet", "MODIFIED", number, 0.0, stored)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the records of a clean restart of two workers."""
    for slot, death_s in (("0", 5.0), ("1", 6.0)):
        record(tmp_path, slot=slot, epoch=1, born_s=1.0, alive_s=death_s)
        record(tmp_path, slot=slot, epoch=2, born_s=7.0, alive_s=9.0)
    return tmp_path


@pytest.fixture
def history() -> History:
    """Give the server's history of that restart."""
    versions = [pod(1, "0", 1), pod(2, "1", 1), jobset(3, 1, 0), jobset(4, 1, 1)]
    versions += [pod(5, "0", 2), pod(6, "1", 2), jobset(7, 2, 1)]
    return History(Path(), "test", versions)


def broken(folder: Path, history: History, restarts_max: int = 1) -> list[str]:
    """Return the numbers of the rules that are broken."""
    found = violations(folder, history, slots=SLOTS, restarts_max=restarts_max)
    return sorted({problem.partition(":")[0] for problem in found})


def test_a_clean_restart_breaks_nothing(folder: Path, history: History) -> None:
    """A clean restart breaks no rule."""
    assert broken(folder, history) == []


def test_an_old_worker_beside_a_new_one_breaks_s1(folder: Path, history: History) -> None:
    """One heartbeat after the first start in the next epoch breaks S1."""
    record(folder, slot="2", epoch=1, born_s=1.0, alive_s=7.001)
    assert broken(folder, history) == ["S1"]


def test_a_second_start_in_an_epoch_breaks_s2(folder: Path, history: History) -> None:
    """A second start in an epoch breaks S2, also when the first worker ended long ago."""
    record(folder, slot="0", epoch=1, born_s=2.0, alive_s=3.0)
    assert broken(folder, history) == ["S2"]


def test_a_sync_before_the_last_announcement_breaks_s3(folder: Path, history: History) -> None:
    """A sync before the last announcement, in the server's order of writes, breaks S3."""
    history.versions[5], history.versions[6] = jobset(6, 2, 1), pod(7, "1", 2)
    assert broken(folder, history) == ["S3"]


def test_a_worker_of_an_epoch_that_was_never_synced_breaks_s3(folder: Path, history: History) -> None:
    """A worker in an epoch that was never synced breaks S3."""
    history.versions.pop()
    assert broken(folder, history) == ["S3"]


def test_a_status_that_goes_back_breaks_s4(folder: Path, history: History) -> None:
    """A decrease of S or of D breaks S4."""
    history.versions.append(jobset(8, 2, 0))
    assert broken(folder, history) == ["S4"]


def test_a_pod_that_goes_breaks_s5_unless_it_was_expected(folder: Path, history: History) -> None:
    """A deleted Pod breaks S5, unless the test declares the deletion."""
    history.versions.append(pod(8, "1", 2, event="DELETED"))
    assert broken(folder, history) == ["S5"]
    assert violations(folder, history, slots=SLOTS, restarts_max=1, lost={"u1"}) == []


def test_an_epoch_beyond_max_restarts_breaks_s6(folder: Path, history: History) -> None:
    """An epoch beyond maxRestarts + 1 breaks S6: epoch 2 is the first restart."""
    assert broken(folder, history, restarts_max=0) == ["S6"]


def test_a_group_that_grows_needs_the_new_slots_too(folder: Path, history: History) -> None:
    """After a resize from 2 to 3, epoch 1 needs two announcements and epoch 2 needs three."""
    found = violations(folder, history, slots={1: 2, 2: 3}, restarts_max=1)
    assert found == ["S3: epoch 2 was synced after 2 of 3 announcements"]


def test_a_rank_of_another_size_breaks_s3(folder: Path, history: History) -> None:
    """In a group with spares each worker is told its rank and how many there are."""
    for rank, size in ((1, 2), (2, 2), (1, 3)):
        record(folder, slot="1", epoch=2, born_s=7.0, alive_s=9.0, rank=rank, size=size)
        found = violations(folder, history, slots=SLOTS, restarts_max=1)
        assert found == ([] if rank < size == 2 else [f"S3: p1 ran epoch 2 as rank {rank} of {size}"])


def test_the_epochs_of_a_group_with_spares_stand_in_its_scope() -> None:
    """Those of the JobSet itself stay at never."""
    scoped = {wire.SCOPED_EPOCHS: [{"name": "workers", **wire.status_of_epochs(2, 1)}]}
    assert epochs_of({"status": wire.status_of_epochs(0, 0) | scoped}) == (2, 1)
