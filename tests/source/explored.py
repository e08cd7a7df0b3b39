"""
Print a digest of the source files that the model checker (`python -m tests.model`) loads.

What the checker proved holds for every tree with the same digest.

    python -m tests.source.explored [--files]
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import tests.model.__main__  # noqa: F401 - it loads the files that are to be listed

REPOSITORY: Final = Path(__file__).resolve().parents[2]


def explored() -> Sequence[str]:
    """Return the repository's files that are loaded here, sorted, without what only training scripts use."""
    files = {Path(file).resolve() for module in sys.modules.values() if (file := getattr(module, "__file__", None))}
    ours = [file.relative_to(REPOSITORY) for file in files if file.is_relative_to(REPOSITORY)]
    return sorted(str(file) for file in ours if ".venv" not in file.parts and file.parts[0] != "inplace")


def main() -> None:
    """Print the digest, or the files."""
    parser = argparse.ArgumentParser(prog="python -m tests.source.explored", description=__doc__)
    parser.add_argument("--files", action="store_true", help="print the files instead")
    if parser.parse_args().files:
        print(*explored(), sep="\n")
        return
    digest = hashlib.sha256()
    for file in explored():
        digest.update(f"{file} {hashlib.sha256((REPOSITORY / file).read_bytes()).hexdigest()}\n".encode())
    print(digest.hexdigest()[:16])


if __name__ == "__main__":
    main()
