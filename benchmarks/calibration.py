"""
Compare the model of a restart with measurements, and print its errors.

    python -m benchmarks.calibration [--json]
    python -m benchmarks.calibration --write     # the table of docs/simulated-numbers.md, from simulator/recorded

`simulator/recorded` holds measurements of quiet runs with their command and machine: [least, median, most] of each
figure. The model runs the same scenario with the profile of that machine. A *fitted* figure was used to choose a number
of the profile (its source says so); only the other figures test the model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.model_group import NO_SLOTS, Mode, ModelledRestart, Slots
from benchmarks.restart_model import Restarting
from inplace.simulator.profile import NUMBERS, read_profile

RECORDED: Final = Path(__file__).parents[1] / "simulator" / "recorded"
PAGE: Final = Path(__file__).parents[1] / "docs" / "simulated-numbers.md"
_HEAD: Final = "| figure | measured (least..most) | modelled | error | |"
RUNS: Final = 15  # of each scenario; their median is compared
SLOTS_OF_THE_RECORD: Final = Slots(rate_per_s=300)


@dataclass(frozen=True, slots=True)
class Figure:
    """How the model computes one recorded figure.

    Args:
        fitted: the figure was used to choose a number of the profile.
    """

    profile: str
    pods: int
    mode: Mode
    read: Callable[[ModelledRestart], float]
    apf: bool = False
    slots: Slots = NO_SLOTS
    fitted: bool = False


def _total_s(run: ModelledRestart) -> float:
    return run.total_s


def _from_the_order_s(run: ModelledRestart) -> float:
    """Return the seconds from the moment at which all agents may begin."""
    return run.total_s - run.phases["deprecated"]


def _rejected(run: ModelledRestart) -> float:
    return run.rejected


FIGURES: Final[Mapping[tuple[str, str], Figure]] = {
    ("herd", "with_apf_s"): Figure("lab-herd", 1_000, "sidecar", _from_the_order_s, apf=True),
    ("herd", "slots_rejected"): Figure("lab-herd", 1_000, "sidecar", _rejected, slots=SLOTS_OF_THE_RECORD),
    ("herd", "no_slots_rejected"): Figure("lab-herd", 1_000, "sidecar", _rejected),
    ("node-upstream", "upstream_s"): Figure("one-node", 16, "upstream", _total_s, fitted=True),
    ("supervisor", "supervisor_s"): Figure("lab", 16, "supervisor", _total_s, fitted=True),
    ("node", "sidecar_s"): Figure("one-node", 16, "sidecar", _total_s),
    ("node", "supervisor_s"): Figure("one-node", 16, "supervisor", _total_s),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A measurement and the model's answer.

    Args:
        error: of the model's median against the measured one, as a share; negative is too fast.
    """

    record: str
    figure: str
    measured: tuple[float, float, float]
    modelled: float
    error: float
    fitted: bool


def compare(folder: Path = RECORDED, runs: int = RUNS) -> list[Comparison]:
    """Return a comparison for every recorded figure that the model knows.

    Raises:
        ValueError: a record holds a figure that no scenario computes.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        for name, measured in json.loads(path.read_text())["measured"].items():
            if name in NUMBERS:
                continue  # a number that profiles read from here
            figure = FIGURES.get((path.stem, name))
            if figure is None:
                known = ", ".join(".".join(key) for key in FIGURES)
                raise ValueError(f"{path.name}: expected figures among {known}; saw {name!r}")
            modelled = median(_modelled(figure, seed) for seed in range(1, runs + 1))
            error = modelled / measured[1] - 1.0
            found.append(Comparison(path.stem, name, tuple(measured), modelled, error, figure.fitted))
    return found


def _modelled(figure: Figure, seed: int) -> float:
    profile = read_profile(figure.profile)
    return figure.read(Restarting(profile, figure.pods, figure.mode, figure.apf, figure.slots, seed, looks=False).run())


def table(found: list[Comparison]) -> str:
    """Return the rows of docs/simulated-numbers.md."""
    rows = [_HEAD, "|---|---|---|---|---|"]
    for each in found:
        least, middle, most = each.measured
        kind = "fitted" if each.fitted else "tested"
        words = f"{each.record}: {each.figure.removesuffix('_s').replace('_', ' ')}"
        unit = " s" if each.figure.endswith("_s") else ""
        measured = f"{middle:.3g}{unit} ({least:.3g}..{most:.3g})"
        rows.append(f"| {words} | {measured} | {each.modelled:.3g}{unit} | {each.error:+.0%} | {kind} |")
    return "\n".join(rows)


def with_table(page: str, rows: str) -> str:
    """Return the page with its table replaced by this one."""
    before, head, rest = page.partition(_HEAD)
    if not head:
        raise ValueError(f"expected a table that begins with {_HEAD!r} in the page, saw none")
    return before + rows + "\n\n" + rest.partition("\n\n")[2]


def main() -> int:
    """Print the comparisons."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", action="store_true", help="put the table into docs/simulated-numbers.md")
    options = parser.parse_args()
    found = compare()
    if options.write:
        PAGE.write_text(with_table(PAGE.read_text(), table(found)))
        return 0
    print(json.dumps({"comparisons": [asdict(each) for each in found]}) if options.json else table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
