"""
Complete `kubectl inplace`: kubectl runs `kubectl_complete-inplace` from the PATH with the words of the line.

It prints one candidate a line and then a directive, as Cobra's programs do.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from contextlib import redirect_stdout, suppress
from typing import Final

from inplace.cli.main import app

FILES: Final = 0  # the directives: go on with names of files,
NO_FILES: Final = 4  # or do not


def main() -> None:
    """Print what could come at the end of the line."""
    words = sys.argv[1:] or [""]
    os.environ |= {
        "_INPLACE_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(["inplace", *words[:-1]]) + f" {words[-1]}",
        "COMP_CWORD": str(len(words)),
    }
    printed = io.StringIO()
    with redirect_stdout(printed), suppress(SystemExit):  # which is how typer ends a completion
        app(prog_name="inplace")
    found = printed.getvalue().split()
    print(*found, f":{NO_FILES if found else FILES}", sep="\n")
