"""
A worker that keeps a step in /dev/shm with DLRover and with ML Flashpoint, leaks LEAK_MB there, and dies.

It notes what it found first: the step that each library loads from memory (0 is none), the inode of DLRover's file, and
all bytes in /dev/shm. The leak is one of Python's shared memory, without the tracker that would remove it.
"""

from __future__ import annotations

import logging
import os
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import torch
from dlrover.trainer.torch.flash_checkpoint.checkpointer import StorageType
from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer
from torch.distributed.checkpoint.utils import _DistWrapper

from tests.frameworks.libraries.with_flashpoint import Memory

SHM = Path("/dev/shm")
BASE = SHM / "mlf-checkpoints" / "job"


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
    flashpoint = Memory(BASE, _DistWrapper(None, use_dist=False, coordinator_rank=0), lambda: None)
    dlrover = DdpCheckpointer(os.environ["CHECKPOINT_DIR"])
    loaded = dlrover.load_checkpoint()
    found = int(state["weights"][0]) if flashpoint.read(epoch - 1, state) else 0
    said = f"{int(loaded['weights'][0]) if loaded else 0} {found} {inode} {size}\n"
    state["weights"].fill_(epoch)
    dlrover.save_checkpoint(epoch, dict(state), storage_type=StorageType.MEMORY)
    flashpoint.write(epoch, state)
    leak(int(os.environ["LEAK_MB"]) * 10**6)
    (Path(os.environ["NOTES"]) / f"epoch-{epoch}").write_text(said)
    os._exit(1)


if __name__ == "__main__":
    main()
