"""
The rank of benchmarks.resume: an example's training script whose checkpoints have so many bytes more.

    python -m benchmarks.resume_rank jax|torch

PADDING_MB of 10^6 bytes are written with each checkpoint, and read with it. Each says how long it took.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any

import numpy as np


def main() -> None:
    """Train as the example does."""
    framework = sys.argv[1]
    example: Any = importlib.import_module(f"inplace.examples.{framework}_train")
    padding: Any = np.ones(int(os.environ["PADDING_MB"]) * 10**6 // 8)
    if framework == "torch":
        padding = example.torch.from_numpy(padding)

    def write(self: Any, step: int, state: dict[str, Any], original: Any = example.Checkpoints.write) -> None:
        began_s = time.monotonic()
        original(self, step, dict(state) | {"padding": padding})
        kind = "local" if str(self._folder).startswith(os.environ.get("INPLACE_KEEP_DIR") or "-") else "shared"
        example.say(f"wrote {kind} step={step} in {(time.monotonic() - began_s) * 1e3:.0f} ms")

    def read(self: Any, step: int, original: Any = example.Checkpoints.read) -> Any:
        state = original(self, step)
        if state is not None:
            state.pop("padding", None)
        return state

    def newest(self: Any, original: Any = example.Checkpoints.newest) -> Any:
        found = original(self)
        state = found[1] if isinstance(found, tuple) else found
        if state is not None:
            state.pop("padding", None)
        return found

    example.Checkpoints.write, example.Checkpoints.read, example.Checkpoints.newest = write, read, newest
    example.main()


if __name__ == "__main__":
    main()
