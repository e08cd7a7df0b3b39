"""
A worker that keeps a step in /dev/shm with DLRover and with ML Flashpoint, leaks LEAK_MB there, and dies.

It notes what it found first: the step that each library loads from memory (0 is none), the inode of DLRover's file, and
all bytes in /dev/shm. The leak is one of Python's shared memory, without the tracker that would remove it.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType
from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer
from ml_flashpoint.adapter.pytorch.custom_state_dict_saver import finish_write, generate_plan, write_data
from ml_flashpoint.adapter.pytorch.memory_storage_reader import MemoryStorageReader
from ml_flashpoint.adapter.pytorch.memory_storage_writer import MemoryStorageWriter
from ml_flashpoint.checkpoint_object_manager.checkpoint_object_manager import CheckpointObjectManager
from ml_flashpoint.core.checkpoint_id_types import CheckpointContainerId
from ml_flashpoint.core.checkpoint_loader import DefaultMLFlashpointCheckpointLoader
from ml_flashpoint.core.checkpoint_saver import DefaultMLFlashpointCheckpointSaver
from ml_flashpoint.replication.replication_manager import ReplicationManager
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.utils import _DistWrapper

SHM = Path("/dev/shm")
BASE = SHM / "mlf-checkpoints" / "job"


class Flashpoint:
    """Flashpoint's saver and loader of one rank alone."""

    def __init__(self) -> None:
        objects, replication, manager = CheckpointObjectManager(), ReplicationManager(), Future[Any]()
        manager.set_result(SimpleNamespace(dict=dict, Event=threading.Event))
        ranks: dict[str, Any] = {"global_rank_getter": lambda: 0, "local_rank_getter": lambda: 0}
        self._saver = DefaultMLFlashpointCheckpointSaver(
            global_barrier_func=lambda: None, ckpt_obj_manager=objects, replication_manager=replication, **ranks
        )
        self._loader = DefaultMLFlashpointCheckpointLoader(
            objects,
            replication,
            broadcast_object_list_func=None,  # the ranks agree by the barrier, and there is one
            all_gather_object_func=None,
            world_size_getter=lambda: 1,
            **ranks,
        )
        self._writer = MemoryStorageWriter(self._saver, manager)

    def load(self, step: int, state: dict[str, torch.Tensor]) -> int:
        """Fill the state from this step; return what it then says, 0 if the step is not there."""
        part = BASE / CheckpointContainerId.format_version_container(step)
        if not part.is_dir():
            return 0
        reader = MemoryStorageReader(str(part), self._loader)
        dcp.load(state, checkpoint_id=str(part), storage_reader=reader, no_dist=True)
        return int(state["weights"][0])

    def save(self, step: int, state: dict[str, torch.Tensor]) -> None:
        """Write a step, and let the library remove the one before."""
        part = CheckpointContainerId(str(BASE / CheckpointContainerId.format_version_container(step)))
        alone = _DistWrapper(None, use_dist=False, coordinator_rank=0)
        self._writer.reset(part.data)
        buckets, metadata, *_ = generate_plan(part, state, self._writer, DefaultSavePlanner(), alone)
        write_data(part, self._writer, buckets, replicate_after_write=False)
        finish_write(part, self._writer, metadata, alone)
        if removing := self._saver.finalize_checkpoint(part):
            removing.wait()


def leak(size: int) -> None:
    """Leave shared memory of this size."""
    memory = SharedMemory(create=True, size=size)
    resource_tracker.unregister(memory._name, "shared_memory")  # type: ignore[attr-defined]
    assert memory.buf is not None
    memory.buf[:] = bytes(size)


def main() -> None:
    """Note, keep, leak and die."""
    logging.disable(logging.WARNING)  # both say much, and nobody reads it while the test runs
    size = sum(path.stat().st_size for path in SHM.rglob("*") if path.is_file())
    file = SHM / f"{os.environ['TORCHELASTIC_RUN_ID']}_ckpt_shm_0"
    inode = file.stat().st_ino if file.exists() else 0
    epoch, state = int(os.environ["INPLACE_EPOCH"]), {"weights": torch.zeros(1 << 18)}
    flashpoint, dlrover = Flashpoint(), DdpCheckpointer(os.environ["CHECKPOINT_DIR"])
    loaded = dlrover.load_checkpoint()
    said = f"{int(loaded['weights'][0]) if loaded else 0} {flashpoint.load(epoch - 1, state)} {inode} {size}\n"
    state["weights"].fill_(epoch)
    dlrover.save_checkpoint(epoch, dict(state), storage_type=StorageType.MEMORY)
    flashpoint.save(epoch, state)
    leak(int(os.environ["LEAK_MB"]) * 10**6)
    (Path(os.environ["NOTES"]) / f"epoch-{epoch}").write_text(said)
    os._exit(1)


if __name__ == "__main__":
    main()
