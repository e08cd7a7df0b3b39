"""The herd benchmark's plumbing: its rows, and the input that it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.herd import summary
from benchmarks.herd_variants import CAPACITY, VARIANTS, WITH_APF, WITHOUT, Round, Variant

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


def rounds(**special: list[Round]) -> dict[Variant, list[Round]]:
    """Return three equal rounds of each variant, but for the named ones."""
    named = {"capacity": CAPACITY, "with_apf": WITH_APF, "without": WITHOUT}
    return {variant: [measured(4.0)] * 3 for variant in VARIANTS} | {
        named[name]: some for name, some in special.items()
    }


def test_the_summary_takes_medians_and_ratios_to_capacity() -> None:
    """One slow round moves no figure; rejections are per group, and per agent beside."""
    found = summary(
        10,
        16,
        rounds(
            with_apf=[measured(5.0), measured(4.4), measured(90.0)],
            without=[measured(6.0, 1), measured(5.0, 2), measured(7.0, 3)],
        ),
    )
    assert found["agents"] == 10
    assert found["capacity_seconds"] == 4.0
    assert (found["seconds_with_apf"], found["rejected_with_apf"], found["ratio_with_apf"]) == (5.0, 0.0, 1.25)
    assert (found["seconds_without"], found["rejected_without"], found["rejected_without_per_agent"]) == (6.0, 2.0, 0.2)
    assert found["counts_agree"]
    assert [row["variant"] for row in found["rows"]] == [variant.name for variant in VARIANTS]
    (slow,) = (row for row in found["rows"] if row["seconds_max"] == 90.0)
    assert (slow["seconds_min"], slow["server_cpu_ms_per_agent"], slow["requests_per_agent"]) == (4.4, 10.0, 3.0)


def test_counts_that_differ_are_told() -> None:
    """When the client and the server count different rejections, the summary says so."""
    assert not summary(10, 16, rounds(without=[measured(5.0, 2), measured(5.0, 2, by_server=3)]))["counts_agree"]
