"""The table of planted bugs, for the terminal and for docs/planted-bugs.md.

`python -m tests.planted.table` writes the page anew from the catalogue; it keeps the results of hunts, which take long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.planted.campaign import ROOT, Bounds, Hunt
from tests.planted.catalogue import HUNTED

PAGE: Final = ROOT / "docs" / "planted-bugs.md"
HEADING: Final = "## Planted bugs"
OURS: Final = "our own"
MISSED: Final = "**not caught**"
NOT_HUNTED: Final = ("**not hunted yet**", "-", "-")

_MOST: Final = Bounds()
_INTRODUCTION: Final = f"""
To show that the campaign can fail, `make mutants` plants each of these bugs in a process of its own. It runs the
campaign until a property breaks: {_MOST.seeds_first} ordinary seeds, then {_MOST.directed} seeds of the faults
that the bug needs (the table names them), {_MOST.plans} perturbed situations, and ordinary seeds up to
{_MOST.seeds}. The column *runs* says how many runs that took. The run that catches a bug must pass on the real
code. `tests/planted` has the bugs. `python -m simulator.campaign run --seed N` replays a seed, with `--faults` if the
table names faults.
"""
_HEAD: Final = "| mistake | where | modelled on | caught by | in | runs |\n|---|---|---|---|---|---:|\n"


def line(hunt: Hunt) -> str:
    """Return one row for the terminal."""
    caught = f"{hunt.found.rule[:48]:48} {case(hunt)}" if hunt.is_caught else f"NOT CAUGHT {hunt.found.what}"
    return f"{hunt.bug.name:74} {hunt.bug.area.value:16} {hunt.found.runs:4} {hunt.seconds:6.1f} s  {caught}"


def case(hunt: Hunt) -> str:
    """Name the case that caught the bug."""
    match hunt.found.case:
        case {"seed": seed, "faults": faults}:
            return f"seed {seed} of {', '.join(faults)}"
        case {"seed": seed}:
            return f"seed {seed}"
        case {"plan": plan}:
            return str(plan["situation"]) + ", perturbed"
        case {"situation": situation}:
            return str(situation)
    return "-"


def page(text: str, hunts: Sequence[Hunt] = ()) -> str:
    """Return the page with a row for each bug of the catalogue: these hunts' results, and of other bugs the text's."""
    before, _, old = text.partition(HEADING)
    cells = [row.strip("| ").split(" | ") for row in old.splitlines() if row.startswith("| ")]
    results = {name: result for name, _, _, *result in cells}
    results |= {one.bug.name: [one.found.rule or MISSED, case(one), str(one.found.runs)] for one in hunts}
    rows = [[bug.name, bug.area.value, bug.model or OURS, *results.get(bug.name, NOT_HUNTED)] for bug in HUNTED]
    caught = sum(row[3] not in (MISSED, NOT_HUNTED[0]) for row in rows)
    theirs = sum(row[2] != OURS for row in rows)
    said = f"{caught} of {len(rows)} are caught; {theirs} are modelled on bugs of other projects."
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{before}{HEADING}\n{_INTRODUCTION}\n{said}\n\n{_HEAD}{table}"


def write(hunts: Sequence[Hunt] = ()) -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(), hunts))


if __name__ == "__main__":
    write()
