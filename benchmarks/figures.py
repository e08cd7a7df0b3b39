"""
The options and the report of every benchmark: rows of repeated figures, with median, spread and ratios.

A row is one way to do a thing (`agent`, `upstream`), a figure is a name with its unit last (`ms`, `rss_mb`), and each
round adds one sample. A ratio is the median of the ratios of samples that were taken side by side, where two rows have
equally many: what disturbs the machine disturbs both.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any, Final

_DIGITS: Final = 4


@dataclass(slots=True)
class Figures:
    """What a benchmark measured.

    Args:
        about: what was measured, and how often.
        compared: pairs of rows; the report divides the first by the second.
        most: bounds by (row, figure), of its median, and by ("row / row", figure), of a ratio.
        means: figures whose mean is reported, because the kernel counts them in steps of 10 ms.
    """

    about: str
    compared: Sequence[tuple[str, str]] = ()
    most: Mapping[tuple[str, str], float] = field(default_factory=dict)
    means: Collection[str] = ()
    rows: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, row: str, figures: Mapping[str, float]) -> None:
        """Add one sample to each of these figures of a row."""
        for figure, sample in figures.items():
            self.rows.setdefault(row, {}).setdefault(figure, []).append(sample)

    def middle(self, row: str, figure: str) -> float:
        """Return a figure's median, or its mean."""
        return (mean if figure in self.means else median)(self.rows[row][figure])

    def ratios(self) -> dict[str, dict[str, float | None]]:
        """Return the ratios of each pair of which both rows were measured; None where the second row's figure is 0."""
        return {
            f"{row} / {other}": {
                name: self._ratio(row, other, name) for name in self.rows[row] if name in self.rows[other]
            }
            for row, other in self.compared
            if row in self.rows and other in self.rows
        }

    def _ratio(self, row: str, other: str, figure: str) -> float | None:
        ours, theirs = self.rows[row][figure], self.rows[other][figure]
        if figure not in self.means and len(ours) == len(theirs) and all(theirs):
            return median(a / b for a, b in zip(ours, theirs, strict=True))
        under = self.middle(other, figure)
        return self.middle(row, figure) / under if under else None

    def missed(self) -> list[str]:
        """Return each bound that was measured and is missed."""
        found: dict[str, Mapping[str, float | None]] = {
            row: {figure: self.middle(row, figure) for figure in figures} for row, figures in self.rows.items()
        }
        found |= self.ratios()
        return [
            f"{row}: expected {figure} of at most {most:g}, saw {_short(value)}"
            for (row, figure), most in self.most.items()
            if figure in found.get(row, {})
            if (value := found[row][figure]) is None or value > most
        ]

    def report(self) -> dict[str, Any]:
        """Return the object that --json prints."""
        return {
            "about": self.about,
            "rows": {
                row: {
                    figure: {
                        "mean" if figure in self.means else "median": _rounded(self.middle(row, figure)),
                        "min": _rounded(min(samples)),
                        "max": _rounded(max(samples)),
                        "samples": len(samples),
                    }
                    for figure, samples in figures.items()
                }
                for row, figures in self.rows.items()
            },
            "ratios": {
                pair: {figure: None if value is None else _rounded(value) for figure, value in ratios.items()}
                for pair, ratios in self.ratios().items()
            },
            "missed": self.missed(),
        }

    def text(self) -> str:
        """Return the report for people: one line for each figure."""
        lines = [self.about]
        for row, figures in self.rows.items():
            for figure, samples in figures.items():
                spread = f" ({_short(min(samples))} to {_short(max(samples))})" if len(samples) > 1 else ""
                lines.append(f"{row:36} {figure:28} {_short(self.middle(row, figure))}{spread}")
        for pair, ratios in self.ratios().items():
            known = {figure: value for figure, value in ratios.items() if value is not None}
            lines += [f"{pair:36} {figure:28} {_short(value)}x" for figure, value in known.items()]
        return "\n".join(lines + [f"MISSED  {words}" for words in self.missed()])

    def show(self, options: argparse.Namespace) -> None:
        """Print the report, as one JSON object with --json."""
        print(json.dumps(self.report()) if options.json else self.text(), flush=True)


def flags(doc: str | None, **numbers: int) -> argparse.ArgumentParser:
    """Return a benchmark's parser: --json, and an option with this default for each whole number of at least 1."""
    spec = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(
        prog=f"python -m {spec.name}" if spec is not None else None,
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    for name, default in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=at_least_1, default=default, help=f"default: {default}")
    return parser


def at_least_1(text: str) -> int:
    """Return an option's whole number.

    Raises:
        argparse.ArgumentTypeError: it is none, or 0.
    """
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, saw {text!r}")
    return int(text)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _short(value: float | None) -> str:
    """Return some digits of a number for people."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
