"""
Say which Kubernetes, Kueue and Trainer the tests build and run: the newest, or the older ones that WORLD names.

A folder's go.mod pins the newest. `WORLD=1.36` takes the folder's 1.36.mod in its place, with 1.36.sum.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

MOD: Final = f"{os.environ.get('WORLD') or 'go'}.mod"
SOURCES: Final = (MOD, f"{MOD[:-4]}.sum")
"""The files of a folder that pin this world's versions."""

FLAGS: Final = () if MOD == "go.mod" else (f"-modfile={MOD}",)
"""What `go` has to be told to read them."""


def pinned(file: Path, module: str) -> str:
    """Return the version of a module that a go.mod file pins, such as v1.37.2."""
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", file.read_text(), re.MULTILINE)
    assert found is not None, f"{file} names no {module}"
    return found[1]
