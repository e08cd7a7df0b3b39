"""The table of planted bugs, for the terminal and for docs/planted-bugs.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.planted.campaign import ROOT, Bounds, Hunt

PAGE: Final = ROOT / "docs" / "planted-bugs.md"
HEADING: Final = "## Planted bugs"
OURS: Final = "our own"

_MOST: Final = Bounds()
_INTRODUCTION: Final = f"""
To show that the campaign can fail, `make mutants` plants each of these bugs in a process of its own. It runs the
campaign until a property breaks: {_MOST.seeds_first} ordinary seeds, then {_MOST.directed} seeds of the faults
that the bug needs (the table names them), {_MOST.plans} perturbed situations, and ordinary seeds up to
{_MOST.seeds}. The column *runs* says how many runs that took. The run that catches a bug must pass on the real
code. `tests/planted` has the bugs. `python -m simulator.campaign run --seed N` replays a seed, with `--faults` if the
table names faults.
"""


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


def markdown(hunts: Sequence[Hunt]) -> str:
    """Return the section of the page."""
    caught = sum(hunt.is_caught for hunt in hunts)
    modelled = sum(bool(hunt.bug.model) for hunt in hunts)
    rows = [
        f"| {hunt.bug.name} | {hunt.bug.area.value} | {hunt.bug.model or OURS} "
        f"| {hunt.found.rule or '**not caught**'} | {case(hunt)} | {hunt.found.runs} |"
        for hunt in hunts
    ]
    return "\n".join(
        [
            HEADING,
            _INTRODUCTION,
            f"{caught} of {len(hunts)} are caught; {modelled} are modelled on bugs of other projects.",
            "",
            "| mistake | where | modelled on | caught by | in | runs |",
            "|---|---|---|---|---|---:|",
            *rows,
            "",
        ]
    )


def write(hunts: Sequence[Hunt]) -> None:
    """Replace the page's section."""
    text = PAGE.read_text() if PAGE.exists() else "# Would a bug be found?\n"
    before, _, rest = text.partition(HEADING)
    _, heading, after = rest.partition("\n## ")
    PAGE.write_text(before.rstrip() + "\n\n" + markdown(hunts) + (heading + after if heading else ""))
