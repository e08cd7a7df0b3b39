"""ML Flashpoint: a part in a folder of /dev/shm each step; PyTorch's distributed checkpoint to storage.

Its transfer service, which copies parts to a peer, is C++ and not here: after a lost Pod the storage is read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
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

import inplace
from tests.frameworks.libraries.loop import State, train


class Memory:
    """Flashpoint's saver and loader of one rank, without replication.

    Args:
        base: the folder of its checkpoints.
        ranks: which save together.
        barrier: returns when all of them have called it; then the older step goes.
    """

    def __init__(self, base: Path, ranks: _DistWrapper, barrier: Callable[[], None]) -> None:
        self._base, self._ranks = base, ranks
        objects, replication = CheckpointObjectManager(), ReplicationManager()
        who: dict[str, Any] = {"global_rank_getter": ranks.get_rank, "local_rank_getter": lambda: 0}
        self._saver = DefaultMLFlashpointCheckpointSaver(
            global_barrier_func=barrier, ckpt_obj_manager=objects, replication_manager=replication, **who
        )
        self._loader = DefaultMLFlashpointCheckpointLoader(
            objects,
            replication,
            broadcast_object_list_func=dist.broadcast_object_list,
            all_gather_object_func=dist.all_gather_object,
            world_size_getter=dist.get_world_size,
            **who,
        )
        manager: Future[Any] = Future()
        manager.set_result(SimpleNamespace(dict=dict, Event=threading.Event))  # all is written in this process
        self._writer = MemoryStorageWriter(self._saver, manager)

    def read(self, step: int, state: State) -> bool:
        """Fill the state from a step; return whether it is there."""
        part = self._part(step)
        if not Path(part.data).is_dir():
            return False
        reader = MemoryStorageReader(part.data, self._loader)
        dcp.load(state, checkpoint_id=part.data, storage_reader=reader, no_dist=True)
        return True

    def write(self, step: int, state: State) -> None:
        """Write a step, with the other ranks."""
        part = self._part(step)
        self._writer.reset(part.data)
        buckets, metadata, *_ = generate_plan(part, state, self._writer, DefaultSavePlanner(), self._ranks)
        write_data(part, self._writer, buckets, replicate_after_write=False)
        finish_write(part, self._writer, metadata, self._ranks)
        self._saver.finalize_checkpoint(part)

    def _part(self, step: int) -> CheckpointContainerId:
        return CheckpointContainerId(str(self._base / CheckpointContainerId.format_version_container(step)))


class Keeper:
    """The two places of one rank's checkpoints."""

    def __init__(self, state: State) -> None:
        rank = dist.get_rank()
        self._state = {f"{name}-of-{rank}": tensor for name, tensor in state.items()}  # no part is another rank's too
        self._shared = Path(os.environ["CHECKPOINT_DIR"])
        ranks = _DistWrapper(None, use_dist=True, coordinator_rank=0)
        self._memory = Memory(Path(os.environ["FLASHPOINT_BASE"]), ranks, self._barrier)
        self._step = 0

    def restore(self) -> int:
        """Load the step of the barrier, from memory if it is there; else the newest on storage."""
        step = inplace.resume_step()
        if step is None:
            step = max((int(path.parent.name) for path in self._shared.glob("*/.metadata")), default=0)
        if step and not self._memory.read(step, self._state):
            dcp.load(self._state, checkpoint_id=self._shared / str(step), no_dist=True)
        return step

    def save(self, step: int, *, shared: bool) -> None:
        """Write the part to memory, with the others; Flashpoint then removes the step before."""
        self._step = step
        self._memory.write(step, self._state)
        if shared:
            dcp.save(self._state, checkpoint_id=self._shared / str(step))
            inplace.saved(step, shared=True)

    def wait(self) -> None:
        """Return: `save` has written all."""

    def _barrier(self) -> None:
        """Tell of this rank's part, which is whole, BEFORE the barrier: AFTER it the step before is removed."""
        inplace.saved(self._step, keep=2)
        dist.barrier()


if __name__ == "__main__":
    train(Keeper)
