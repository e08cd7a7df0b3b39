"""
Measure what a kept compiled step saves at a start of examples/jax_train.py: the table of docs/with-jax.md.

    python -m testbed.frameworks.jax_programs

Four processes on this machine, without agents. For the example's network and for one of 60 layers: seconds from the
processes' start to the first step, without PROGRAM_DIR, and with what an earlier start left there.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from testbed.frameworks.ranks import rank_variables
from testbed.frameworks.venv import environment
from testbed.ports import free_ports

WORLD = 4
STARTS = 5
START_S_MAX = 120.0

SCRIPT = """
import jax.numpy as jnp
from inplace.examples import jax_train

def loss_of(weights, x, y, parts):
    hidden = jnp.tanh(x @ weights["w1"] + weights["b1"])
    for layer in range(LAYERS):
        hidden = jnp.tanh(hidden @ jnp.sin(weights["w1"].T @ weights["w1"] + layer))
    return jnp.sum(parts * (hidden @ weights["w2"] + weights["b2"] - y) ** 2)

if LAYERS:
    jax_train.loss_of = loss_of
jax_train.main()
"""


def start_s(layers: int, programs: Path | None) -> float:
    """Start four processes; return the seconds until their first step, and let them end."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="inplace-jax-programs-") as scratch:
        began_s, processes = time.monotonic(), []
        for rank in range(WORLD):
            env = rank_variables(rank, world=WORLD, port=port, checkpoints=Path(scratch) / str(rank))
            env |= {"STEPS": "1", "PROGRAM_DIR": "" if programs is None else str(programs / str(rank))}
            command = [str(environment("jax") / "bin" / "python3"), "-c", f"LAYERS = {layers}\n{SCRIPT}"]
            output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            processes.append(subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.DEVNULL, text=True))
        assert processes[0].stdout is not None
        # A step ends when all processes have given their share to it.
        stepped_s = [time.monotonic() - began_s for line in processes[0].stdout if line.startswith("step=1 ")]
        assert [process.wait(START_S_MAX) for process in processes] == [0] * WORLD
    (stepped,) = stepped_s
    return stepped


def main() -> None:
    """Print the table; the starts with and without alternate, because other programs use the machine too."""
    for layers in (0, 60):
        with tempfile.TemporaryDirectory(prefix="inplace-jax-programs-") as folder:
            start_s(layers, Path(folder))
            pairs = [(start_s(layers, None), start_s(layers, Path(folder))) for _ in range(STARTS)]
        without, kept = (median(column) for column in zip(*pairs, strict=True))
        name = f"{layers} layers" if layers else "the example"
        print(f"{name}: start to first step {without:.2f} s without, {kept:.2f} s with the kept step", flush=True)


if __name__ == "__main__":
    main()
