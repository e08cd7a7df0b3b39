"""The environment of a rank of the examples that runs on this machine, without a cluster and without an agent."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def rank_variables(rank: int, *, world: int, port: int, checkpoints: Path) -> dict[str, str]:
    """Return what examples/jax_train.py and examples/torch_train.py need, both without torchrun.

    Args:
        rank: counted from 0.
        world: how many ranks there are.
        port: of loopback, where rank 0 listens.
        checkpoints: this rank's own folder.
    """
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "INPLACE_EPOCH": "1",
        "CHECKPOINT_DIR": str(checkpoints),
        "JAX_PLATFORMS": "cpu",
        "JOB_COMPLETION_INDEX": str(rank),
        "PODS_PER_JOB": str(world),
        "COORDINATOR_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
