"""What the libraries' scripts have in common."""

from __future__ import annotations

from typing import Final

SHARED_EVERY: Final = 10  # steps between two checkpoints on shared storage
STEP_S: Final = 0.1
WEIGHTS: Final = 1 << 16
MIXED: Final = 70  # the exit code of a rank that restored another state than that of its step
