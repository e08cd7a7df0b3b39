"""Hunt the planted bugs, print what found them, and fail when one is missed."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tests.model.report import run
from tests.planted.bug import CAMPAIGN, MODEL, STORIES, Bug
from tests.planted.campaign import AS_IT_IS, Bounds, Hunt, hunt, hunt_all
from tests.planted.catalogue import BUGS
from tests.planted.mistake import planted
from tests.planted.table import line, write
from tests.stories.story import red

FINDERS = (CAMPAIGN, MODEL, STORIES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 when a bug survives, or when a seed that catches one fails on the code as it is."""
    options = _parser().parse_args(arguments)
    if options.list:
        for bug in options.only:
            print(f"{bug.name:84} {', '.join(bug.finders)}")
        return 0
    found = {by: [bug for bug in options.only if by in bug.finders] for by in options.by}
    missed = _by_campaign(found.get(CAMPAIGN, []), options.processes, writes=options.write)
    if checked := found.get(MODEL):
        missed += [name for name, result in run([], checked)[1].items() if not result.rule]
    for bug in found.get(STORIES, []):
        with planted(*bug.mistakes):
            told = red(bug.stories)
        print(f"{bug.name:84} {told or 'NOT CAUGHT'}", flush=True)
        missed += [] if told else [bug.name]
    print(f"not caught: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


def _by_campaign(bugs: Sequence[Bug], processes: int, *, writes: bool) -> list[str]:
    """Hunt with the campaign; return what it missed, and what fails without a bug."""
    began_s = time.monotonic()
    found: dict[str, Hunt] = {}
    for number, hunted in enumerate(hunt_all(bugs, Bounds(), processes), 1):
        found[hunted.bug.name] = hunted
        print(f"{number:3} {line(hunted)}", flush=True)
    hunts = [found[bug.name] for bug in bugs]
    missed = [hunted.bug.name for hunted in hunts if not hunted.is_caught]
    if bugs:
        print(f"{len(hunts) - len(missed)} of {len(hunts)} caught in {time.monotonic() - began_s:.0f} s")
    if false := _false_alarm(hunts):
        missed.append(f"the code as it is fails too, with {false}")
    elif writes:
        write(hunts)
    return missed


def _false_alarm(hunts: Sequence[Hunt]) -> str:
    """Run every catching case on the real code; return the text of a failure there, "" for none."""
    cases = [hunted.found.case for hunted in hunts if hunted.found.case is not None]
    if not cases:
        return ""
    control = hunt(AS_IT_IS, Bounds(), cases).found
    return "" if control.runs == len(cases) and not control.rule else f"{control.case}: {control.what}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__, allow_abbrev=False)
    parser.add_argument("--by", type=_finders, default=FINDERS, metavar="NAME,NAME", help=f"of {', '.join(FINDERS)}")
    parser.add_argument(
        "--only", type=_named, default=BUGS, metavar="TEXT,TEXT", help="bugs whose names hold one of the texts"
    )
    parser.add_argument("--list", action="store_true", help="say who finds which, and hunt nothing")
    parser.add_argument("--processes", type=_count, default=os.cpu_count() or 1, metavar="N", help="default: all cores")
    parser.add_argument("--write", action="store_true", help="put the campaign's results into docs/planted-bugs.md")
    return parser


def _finders(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if not set(chosen) <= set(FINDERS):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(FINDERS)}, saw {text!r}")
    return chosen


def _named(text: str) -> tuple[Bug, ...]:
    parts = text.split(",")
    chosen = tuple(bug for bug in BUGS if any(part in bug.name for part in parts))
    if not chosen:
        names = "\n  ".join(bug.name for bug in BUGS)
        raise argparse.ArgumentTypeError(f"expected parts of these names, saw {text!r}:\n  {names}")
    return chosen


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, saw {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
