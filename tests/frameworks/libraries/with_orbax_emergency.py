"""Orbax's emergency checkpoints: each replica but the first keeps the steps in memory, the first writes to storage."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import orbax.checkpoint as ocp
from absl import flags
from jax.sharding import Mesh
from orbax.checkpoint import multihost
from orbax.checkpoint.experimental.emergency import checkpoint_manager as emergency

import inplace
from tests.frameworks.libraries.jax_loop import State, train
from tests.frameworks.libraries.words import SHARED_EVERY


class Keeper:
    """The manager; it agrees by itself on a step that some replica, or the storage, has whole."""

    def __init__(self, mesh: Mesh, empty: State) -> None:
        multihost.initialize_runtime_to_distributed_ids()
        multihost.initialize_distributed_to_device_ids()
        local = Path(inplace.keep_dir() or "/tmp") / "orbax"
        local.mkdir(exist_ok=True)
        self._manager = emergency.CheckpointManager(
            local,
            os.environ["CHECKPOINT_DIR"],
            mesh,
            jax.tree.map(ocp.utils.to_shape_dtype_struct, empty),
            options=emergency.CheckpointManagerOptions(
                local=emergency.LocalCheckpointOptions(save_interval_steps=1, max_to_keep=2),
                persistent=emergency.PersistentCheckpointOptions(save_interval_steps=SHARED_EVERY, max_to_keep=2),
            ),
        )

    def restore(self, state: State) -> tuple[int, State]:
        """Load the newest step that the manager finds, with the other processes."""
        step = self._manager.latest_step()
        if not step:
            return 0, state
        return step, self._manager.restore(step).state

    def save(self, step: int, state: State, *, shared: bool) -> None:
        """Begin to write to memory, and to storage when its interval says so, or a stop is near."""
        self._manager.save(step, args=ocp.args.Composite(state=ocp.args.PyTreeSave(state)), force=shared)

    def wait(self) -> None:
        """Return when the memory, or the storage, has the step."""
        self._manager.wait_until_finished()


if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()  # Orbax reads a flag of absl's, which a script without absl.app never parses
    train(Keeper, replicas=True)
