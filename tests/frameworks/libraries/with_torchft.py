"""torchft: each replica group restarts in place alone, and takes the newest state from a group that trains on.

REPLICA is the group's number. The lighthouse (TORCHFT_LIGHTHOUSE) runs elsewhere. Where all groups are new, for example
after a suspend, the newest file on storage is loaded.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

import inplace
from inplace.examples.torch_train import SAVED, end_now, say
from tests.frameworks.libraries.words import MIXED, SHARED_EVERY, STEP_S, WEIGHTS

TIMEOUT = timedelta(seconds=10)


def main() -> None:
    """Train until told to save or to end; each step adds 1 to every weight."""
    torch.set_num_threads(1)
    replica, epoch = os.environ["REPLICA"], os.environ.get("INPLACE_EPOCH", "0")
    folder, weights = Path(os.environ["CHECKPOINT_DIR"]), torch.zeros(WEIGHTS)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT),
        state_dict=lambda: {"weights": weights},
        load_state_dict=lambda state: weights.copy_(state["weights"]),
        min_replica_size=1,
        timeout=TIMEOUT,
        quorum_timeout=TIMEOUT,
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        replica_id=f"replica-{replica}",
        hostname="127.0.0.1",
    )
    if files := sorted(folder.glob("step-*.pt")):
        state = torch.load(files[-1])
        weights.copy_(state["weights"])
        manager.load_state_dict(state["manager"])
    went_on = False
    while True:
        began_s = time.monotonic()
        manager.start_quorum()
        told = torch.ones(1)
        manager.allreduce(told).wait()  # the mean of the groups
        if not manager.should_commit():
            continue
        weights += told[0].round()
        step = manager.current_step()
        if not bool((weights == step).all()):
            say(f"MIXED: expected the state of step {step}, saw {weights[:2]}")
            end_now(MIXED)
        if not went_on:
            say(f"rank={replica} world={manager.num_participants()} epoch={epoch} goes on from step {step - 1}")
            went_on = True
        inplace.progress(step)
        say(f"step={step} loss={float(weights[0]):.6f} epoch={epoch} rank={replica}")
        asked = inplace.save_requested()  # of this group alone: the others keep its state
        if replica == "0" and (asked or step % SHARED_EVERY == 0):
            new = folder / "new"
            torch.save({"weights": weights, "manager": manager.state_dict()}, new)
            new.replace(folder / f"step-{step:09}.pt")
        if asked:
            end_now(SAVED)
        time.sleep(max(0.0, began_s + STEP_S - time.monotonic()))


if __name__ == "__main__":
    main()
