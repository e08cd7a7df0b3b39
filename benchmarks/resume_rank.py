"""
The rank of benchmarks.resume: an example's training script whose checkpoints have so many bytes more.

FRAMEWORK is jax or torch. PADDING_MB of 10^6 bytes are copied into a file beside each checkpoint BEFORE it is written,
into one of two in turn, as a script with two buffers does. A rank that goes on copies them back, if they are those of
the step; else it has none. Each write says how long it took.
"""

from __future__ import annotations

import importlib
import mmap
import os
import time
from pathlib import Path
from typing import Any, Final

BUFFERS: Final = 2
STEP_BYTES: Final = 8
PAGE_BYTES: Final = 4096


class Padding:
    """The bytes beside the checkpoints of one folder."""

    def __init__(self, folder: Path, size: int) -> None:
        self._maps = []
        for number in range(BUFFERS):
            with (folder / f"padding-{number}").open("a+b") as file:
                if os.fstat(file.fileno()).st_size != size:
                    os.truncate(file.fileno(), size)
                self._maps.append(mmap.mmap(file.fileno(), size))

    def write(self, slot: int, step: int, state: bytearray) -> None:
        """Copy a step's bytes."""
        state[:STEP_BYTES] = step.to_bytes(STEP_BYTES, "little")
        self._maps[slot % BUFFERS][:] = state

    def read(self, slot: int, step: int, state: bytearray) -> bool:
        """Copy a step's bytes back; say whether they are there."""
        stored = self._maps[slot % BUFFERS]
        if int.from_bytes(stored[:STEP_BYTES], "little") != step:
            return False
        memoryview(state)[:] = memoryview(stored)
        return True


def main() -> None:
    """Train as the example does."""
    example: Any = importlib.import_module(f"inplace.examples.{os.environ['FRAMEWORK']}_train")
    state_bytes = bytearray(int(os.environ["PADDING_MB"]) * 10**6)
    every = int(os.environ["CHECKPOINT_EVERY"])
    keep_dir = os.environ.get("INPLACE_KEEP_DIR") or "-"

    class Padded(example.Checkpoints):  # type: ignore[misc]
        """The example's checkpoints, larger."""

        def __init__(self, folder: Path, *more: Any) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            super().__init__(folder, *more)
            self._padding = Padding(folder, len(state_bytes))
            self._kind, self._every = ("local", 1) if str(folder).startswith(keep_dir) else ("shared", every)

        def write(self, step: int, state: Any) -> None:
            """Write the padding and the state, and say how long it took."""
            began_s, began_cpu_s = time.monotonic(), time.thread_time()
            self._padding.write(step // self._every, step, state_bytes)
            super().write(step, state)
            ms, cpu_ms = (time.monotonic() - began_s) * 1e3, (time.thread_time() - began_cpu_s) * 1e3
            example.say(f"wrote {self._kind} step={step} in {ms:.1f} ms, {cpu_ms:.1f} ms of CPU")

        def newest(self, step: int | None = None) -> Any:
            """Read a step, if its padding is there."""
            if step is None:  # a first start; memory that was never written would be copied too quickly
                state_bytes[::PAGE_BYTES] = b"\1" * len(range(0, len(state_bytes), PAGE_BYTES))
            elif not self._padding.read(step // self._every, step, state_bytes):
                step = 0
            return super().newest(step)

    example.Checkpoints = Padded
    example.main()


if __name__ == "__main__":
    main()
