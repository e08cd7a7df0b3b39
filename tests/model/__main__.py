"""Explore the protocol, then prove that planted bugs are caught; exit 1 when either fails."""

from __future__ import annotations

import argparse
import sys

from tests.model.configurations import FULL, QUICK
from tests.model.member_configurations import MEMBERS_FULL, MEMBERS_QUICK
from tests.model.report import explorations, run
from tests.model.resume import RESUME_FULL, RESUME_QUICK
from tests.model.units import UNITS_FULL, UNITS_QUICK
from tests.planted.checked import CHECKED


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small bounds, under a minute")
    quick: bool = parser.parse_args().quick
    explored = explorations(
        QUICK if quick else FULL,
        (*MEMBERS_QUICK, *UNITS_QUICK) if quick else (*MEMBERS_FULL, *UNITS_FULL),
        RESUME_QUICK if quick else RESUME_FULL,
    )
    results, bugs = run(explored, [bug for bug in CHECKED if not (quick and bug.slow)])
    broken = [result for result in results if result.rule]
    missed = [name for name, result in bugs.items() if not result.rule]
    print(f"\nrules broken: {len(broken)}, planted bugs caught: {len(bugs) - len(missed)} of {len(bugs)}")
    return 1 if broken or missed else 0


if __name__ == "__main__":
    sys.exit(main())
