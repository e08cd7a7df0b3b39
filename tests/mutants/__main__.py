"""Hunt the planted bugs, print the table, and fail when the campaign misses one."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.mutants.catalogue import AS_IT_IS, MUTANTS
from tests.mutants.hunt import Bounds
from tests.mutants.mutant import Mutant
from tests.mutants.run import Hunt, hunt, hunt_all
from tests.mutants.table import line, write


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 when a mutant survives, or when a seed that catches one fails on the code as it is."""
    options = _parser().parse_args(arguments)
    began_s = time.monotonic()
    found: dict[str, Hunt] = {}
    for number, hunted in enumerate(hunt_all(options.only, Bounds(), options.processes), 1):
        found[hunted.mutant.name] = hunted
        print(f"{number:3} {line(hunted)}", flush=True)
    hunts = [found[mutant.name] for mutant in options.only]
    caught = sum(hunted.is_caught for hunted in hunts)
    false = _false_alarm(hunts)
    print(f"{caught} of {len(hunts)} caught in {time.monotonic() - began_s:.0f} s")
    if false:
        print(f"the code as it is fails too, with {false}")
        return 1
    if options.write:
        write(hunts)
    return 0 if caught == len(hunts) else 1


def _false_alarm(hunts: Sequence[Hunt]) -> str:
    """Run every catching case on the real code; return the text of a failure there, "" for none."""
    cases = [hunted.found.case for hunted in hunts if hunted.found.case is not None]
    if not cases:
        return ""
    control = hunt(AS_IT_IS, Bounds(), cases).found
    return "" if control.runs == len(cases) and not control.rule else f"{control.case}: {control.what}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--only", type=_named, default=MUTANTS, metavar="TEXT,TEXT", help="mutants whose names hold one of the texts"
    )
    parser.add_argument("--processes", type=_count, default=os.cpu_count() or 1, metavar="N", help="default: all cores")
    parser.add_argument("--write", action="store_true", help="put the table into docs/planted-bugs.md")
    return parser


def _named(text: str) -> tuple[Mutant, ...]:
    parts = text.split(",")
    chosen = tuple(mutant for mutant in MUTANTS if any(part in mutant.name for part in parts))
    if not chosen:
        names = "\n  ".join(mutant.name for mutant in MUTANTS)
        raise argparse.ArgumentTypeError(f"expected parts of these names, saw {text!r}:\n  {names}")
    return chosen


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, saw {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
