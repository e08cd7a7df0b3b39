"""
The training loop of the libraries' scripts, with PyTorch and gloo: a step that any mistake in a checkpoint shows.

Each step adds 1 to every weight, as a mean over the ranks, and RANK + 1 to this rank's own part. So the state says
which step it is, and whose: a script that restored another step or another rank's part ends with MIXED.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

import inplace
from inplace.examples.torch_train import SAVED, address_of, end_now, say, wait_for_master
from tests.frameworks.libraries.words import MIXED, SHARED_EVERY, STEP_S, WEIGHTS

PEER_S_MAX: Final = 60
State = dict[str, Any]


class Keeper(Protocol):
    """What a library's script has to say."""

    def __init__(self, state: State) -> None:
        """Take the state that is saved and restored; its tensors stay the same objects."""

    def restore(self) -> int:
        """Fill the state from a checkpoint; return its step, 0 if there is none."""

    def save(self, step: int, *, shared: bool) -> None:
        """Save the state after a step, in memory, and if `shared` also where every Pod reads it."""

    def wait(self) -> None:
        """Return when all that `save` began is complete."""


def train(keeper_of: type[Keeper], *, parts: bool = True) -> None:
    """Train until told to save or to end; with `parts` each rank has one of its own, else all have the same state."""
    torch.set_num_threads(1)  # the ranks of one machine share its cores
    rank, epoch = int(os.environ["RANK"]), os.environ.get("INPLACE_EPOCH", "0")
    os.environ["MASTER_ADDR"] = address_of(os.environ["MASTER_ADDR"], os.environ.get("INPLACE_HOSTS_FILE", ""))
    if rank:
        wait_for_master(PEER_S_MAX)
    dist.init_process_group("gloo", timeout=timedelta(seconds=PEER_S_MAX))
    world = dist.get_world_size()
    mine, adds = (f"part-{rank}", rank + 1) if parts else ("part", 1)
    state: State = {"weights": torch.zeros(WEIGHTS), mine: torch.zeros(16)}
    keeper = keeper_of(state)
    step = keeper.restore()
    if not (bool((state["weights"] == step).all()) and bool((state[mine] == step * adds).all())):
        say(f"MIXED: expected the state of step {step}, saw {state['weights'][:2]} and {state[mine][:2]}")
        end_now(MIXED)
    say(f"rank={rank} world={world} epoch={epoch} goes on from step {step}")
    while True:
        began_s = time.monotonic()
        inplace.progress(step)
        told = torch.tensor([1.0, float(inplace.save_requested()), step])
        dist.all_reduce(told)
        if told[2] != step * world:
            say(f"MIXED: expected all ranks at step {step}, saw their sum {told[2]:g}")
            end_now(MIXED)
        asked = bool(told[1])
        state["weights"] += told[0] / world
        state[mine] += adds
        step += 1
        say(f"step={step} loss={state['weights'][0]:.6f} epoch={epoch} rank={rank}")
        keeper.save(step, shared=asked or step % SHARED_EVERY == 0)
        if asked:
            keeper.wait()
            dist.barrier()  # AFTER it all have saved: the first that ends is the end of all
            say(f"saved step={step} epoch={epoch} rank={rank}")
            end_now(SAVED)
        time.sleep(max(0.0, began_s + STEP_S - time.monotonic()))
