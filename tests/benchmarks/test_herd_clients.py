"""The herd benchmark's plumbing: its rows, and the input that it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.herd import CAPACITY, WITH_APF, WITHOUT, Round, figures_of

POOR = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
from benchmarks.herd_clients import raise_file_limit
raise_file_limit(150)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
raise_file_limit(3100)
"""


def test_a_low_limit_of_open_files_is_refused_in_words() -> None:
    """The message names the needed limit, the current one and how to raise it; a sufficient limit is accepted."""
    ended = subprocess.run(
        [sys.executable, "-c", POOR], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == "200\n"
    assert "at least 3100 open files, saw 200" in ended.stderr
    assert "ulimit" in ended.stderr


def measured(seconds: float, rejected: int = 0, by_server: int | None = None) -> Round:
    """Return a round of ten agents."""
    server = rejected if by_server is None else by_server
    return Round(seconds, seconds / 2, rejected, server, 30 + rejected, 0.1, 0.05, 56)


def test_a_start_is_compared_with_the_servers_capacity() -> None:
    """One slow round moves no figure; CPU and requests are per agent."""
    figures = figures_of(10, 3, 16)
    for variant, seconds in ((WITH_APF, (5.0, 4.4, 90.0)), (CAPACITY, (4.0, 4.0, 4.0))):
        for each in seconds:
            figures.add(variant.name, measured(each).figures(10))
    row = figures.rows[WITH_APF.name]
    assert (figures.middle(WITH_APF.name, "s"), row["server_cpu_ms_per_agent"][0]) == (5.0, 10.0)
    assert row["requests_per_agent"] == [3.0, 3.0, 3.0]
    assert figures.ratios()[f"{WITH_APF.name} / {CAPACITY.name}"]["s"] == 1.25
    assert figures.missed() == []


def test_counts_that_differ_are_told() -> None:
    """When the client and the server count different rejections in one round, the report says so."""
    figures = figures_of(10, 2, 16)
    for by_server in (2, 3):
        figures.add(WITHOUT.name, measured(5.0, 2, by_server).figures(10))
    assert figures.missed() == [f"{WITHOUT.name}: expected miscounted of at most 0, saw 0.5"]
