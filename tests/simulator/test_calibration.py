"""Simulated restarts are within the range of measured ones, as docs/simulated-numbers.md states them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from inplace.common.wire.mode import GUARDED

PAGE: Final = (Path(__file__).parents[2] / "docs" / "simulated-numbers.md").read_text()
ROWS: Final = re.findall(
    r"^\| (\d+) Pods.*`--mode (\w+)`.* \| ([\d.]+) s \(([\d.]+) to ([\d.]+)\) \| ([\d.]+) s", PAGE, re.MULTILINE
)
FROM_THE_PAGE_MAX: Final = 0.2  # the draws change with the code


def test_the_page_has_rows_of_every_way_to_restart() -> None:
    """Each mode of the demo is compared with a measurement."""
    assert {mode for _, mode, *_ in ROWS} == set(GUARDED)


@pytest.mark.slow
@pytest.mark.parametrize(("pods", "mode", "middle", "least", "most", "stated"), ROWS)
def test_a_simulated_restart_takes_as_long_as_a_measured_one(
    pods: str, mode: str, middle: str, least: str, most: str, stated: str
) -> None:
    """The median of 20 simulated restarts lies in the measured range, and near the figure that the page states."""
    options = ["--runtime", "model", "--profile", "lab", "--pods", pods, "--mode", mode, "--failures", "20", "--json"]
    command = [sys.executable, "-m", "inplace.cli", "demo", *options]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    simulated_s = median(restart["lift"] for restart in json.loads(said.splitlines()[-1])["restarts"]) / 1e3
    assert float(least) <= simulated_s <= float(most), f"measured {middle} s"
    assert simulated_s == pytest.approx(float(stated), rel=FROM_THE_PAGE_MAX)
