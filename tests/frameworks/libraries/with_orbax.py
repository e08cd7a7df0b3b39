"""Orbax's CheckpointManager: all processes write their parts to shared storage, in the background."""

from __future__ import annotations

import os

import orbax.checkpoint as ocp
from jax.sharding import Mesh

import inplace
from tests.frameworks.libraries.jax_loop import State, train


class Keeper:
    """The manager, and the step that it is writing."""

    def __init__(self, _: Mesh, __: State) -> None:
        self._manager = ocp.CheckpointManager(
            os.environ["CHECKPOINT_DIR"], options=ocp.CheckpointManagerOptions(max_to_keep=2)
        )
        self._saving: int | None = None

    def restore(self, state: State) -> tuple[int, State]:
        """Load the step of the barrier, else the newest."""
        step = inplace.resume_step() or self._manager.latest_step()
        if not step:
            return 0, state
        return step, self._manager.restore(step, args=ocp.args.StandardRestore(state))

    def save(self, step: int, state: State, *, shared: bool) -> None:
        """Begin to write all parts, and tell of the step before, when it is committed."""
        if self._saving and not self._manager.is_saving_in_progress():
            self.wait()
        if shared:
            self.wait()
            self._manager.save(step, args=ocp.args.StandardSave(state))
            self._saving = step

    def wait(self) -> None:
        """Tell of the step that is on storage: with all parts, once the manager has committed it."""
        self._manager.wait_until_finished()
        if self._saving:
            inplace.saved(self._saving, shared=True)
            self._saving = None


if __name__ == "__main__":
    train(Keeper, replicas=False)
