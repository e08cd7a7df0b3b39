"""
The training loop of Orbax's scripts, with JAX and gloo; as in `loop`, the state says which step it is, and whose part.

The devices are a mesh of replicas x data: each replica has the whole state, each of its processes a part of it.
"""

from __future__ import annotations

import os
import time
from typing import Final, Protocol

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import inplace
from inplace.examples.jax_train import SAVED, Settings, end_now, meet, say
from tests.frameworks.libraries.words import MIXED, SHARED_EVERY, STEP_S, WEIGHTS

PART: Final = 16
State = dict[str, jax.Array]


class Keeper(Protocol):
    """What a script of Orbax has to say."""

    def __init__(self, mesh: Mesh, empty: State) -> None:
        """Make the manager."""

    def restore(self, state: State) -> tuple[int, State]:
        """Return the step from which all go on, and its state; 0 and `state` if there is none."""

    def save(self, step: int, state: State, *, shared: bool) -> None:
        """Save the state after a step."""

    def wait(self) -> None:
        """Return when all that `save` began is complete."""


def train(keeper_of: type[Keeper], *, replicas: bool) -> None:
    """Train until told to save or to end; as many replicas as processes, or one."""
    inplace.ready()
    try:
        _train(keeper_of, replicas=replicas)
    except Exception as error:  # noqa: BLE001 - a lost peer: whatever it is, the group restarts
        say(f"{type(error).__name__}: {str(error)[:200]}")
        end_now(1)


def _train(keeper_of: type[Keeper], *, replicas: bool) -> None:
    settings = Settings.from_env(os.environ)
    meet(settings)
    shape = (settings.world, 1) if replicas else (1, settings.world)
    mesh = Mesh(np.array(jax.devices()).reshape(shape), ("replica", "data"))
    everywhere, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    put, adds = jax.make_array_from_process_local_data, 1 if replicas else settings.rank + 1
    state = {"weights": put(everywhere, np.zeros(WEIGHTS)), "part": put(split, np.zeros(PART))}
    own = put(split, np.full(PART, float(adds)))
    step_of = jax.jit(lambda state, own: {"weights": state["weights"] + 1, "part": state["part"] + own})
    keeper = keeper_of(mesh, state)
    step, state = keeper.restore(state)
    for name, value in state.items():
        found = np.asarray(value.addressable_data(0))
        if not (found == step * (adds if name == "part" else 1)).all():
            say(f"MIXED: expected {name} of step {step}, saw {found[:2]}")
            end_now(MIXED)
    multihost_utils.assert_equal(np.int32(step), "expected all processes to go on from one step")
    say(f"rank={settings.rank} world={settings.world} epoch={settings.epoch} goes on from step {step}")
    while True:
        began_s = time.monotonic()
        inplace.progress(step)
        asked = bool(multihost_utils.process_allgather(np.int32(inplace.save_requested())).any())
        state = step_of(state, own)
        step += 1
        loss = float(state["weights"].addressable_data(0)[0])
        say(f"step={step} loss={loss:.6f} epoch={settings.epoch} rank={settings.rank}")
        keeper.save(step, state, shared=asked or step % SHARED_EVERY == 0)
        if asked:
            keeper.wait()
            multihost_utils.sync_global_devices("saved")  # AFTER it all have saved: the first that ends ends all
            say(f"saved step={step} epoch={settings.epoch} rank={settings.rank}")
            end_now(SAVED)
        time.sleep(max(0.0, began_s + STEP_S - time.monotonic()))
