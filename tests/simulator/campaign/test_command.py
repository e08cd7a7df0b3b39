"""The command line: its output, and the input that it refuses."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace

import pytest

from inplace.simulator.campaign.__main__ import main
from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.run import Outcome, run_seed


def test_a_seed_prints_its_hash_and_its_faults(capsys: pytest.CaptureFixture[str]) -> None:
    """`run` prints the scenario, the trace's hash and the faults that struck."""
    assert main(["run", "--seed", "7", "--trace"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"trace hash [0-9a-f]{16}, \d+ events", printed)
    assert "worker-exit" in printed
    assert " worker   " in printed


def test_soak_counts_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """`soak` prints its seeds and the command that replays them, a line for each fault of the catalogue and the sum."""
    assert main(["soak", "--first", "7", "--seeds", "2", "--processes", "1"]) == 0
    printed = capsys.readouterr().out
    again = r"^seeds 7 to 8; .*python -m simulator.campaign soak --first 7 --seeds 2$"
    assert re.search(again, printed.splitlines()[0])
    assert all(re.search(rf"^  {name} +\d+  ", printed, re.MULTILINE) for name in CATALOGUE)
    assert "2 seeds" in printed
    assert "0 violations" in printed


def test_stalls_counts_what_was_watched(capsys: pytest.CaptureFixture[str]) -> None:
    """`stalls` says how many pauses and hangs there were, and how late hangs were found."""
    assert main(["stalls", "--seeds", "3", "--processes", "1"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"3 seeds .* 3 hangs, .* pauses up to their limit", printed)
    assert re.search(r"0 violations; a hang was found 0\.\d\d s after its limit", printed)


def test_partitions_counts_the_cuts(capsys: pytest.CaptureFixture[str]) -> None:
    """`partitions` says in how many runs a node was cut off, with leases and without."""
    assert main(["partitions", "--seeds", "2", "--processes", "1"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^with leases +2 runs, [12] with a node cut off, 0 violations$", printed, re.MULTILINE)
    assert re.search(r"^without +2 runs, [12] with a node cut off, 0 violations$", printed, re.MULTILINE)


def test_a_failure_comes_out_of_its_process() -> None:
    """A violation in a child process reaches the soak unchanged: it can be pickled."""
    failure = replace(run_seed(0, only=[]), violation=ViolationError("S1", "two epochs"))
    told: Outcome = pickle.loads(pickle.dumps(failure))  # noqa: S301
    assert told.violation is not None
    assert (str(told.violation), told.violation.rule) == ("S1: two epochs", "S1")
    assert (told.seed, told.strikes, told.hash) == (failure.seed, failure.strikes, failure.hash)


def test_a_group_of_any_size_prints_what_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    """`restart` prints hash, virtual seconds, CPU time and memory."""
    assert main(["restart", "--seed", "7", "--pods", "6", "--mode", "supervisor"]) == 0
    assert re.search(r"trace hash .*\n.*virtual seconds\n[\d.]+ s of CPU time, \d+ MiB", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "--seed", "seven"], "expected an integer of at least 0, saw 'seven'"),
        (["run", "--seed", "1", "--faults", "rain"], "expected names of api-500"),
        (["restart", "--pods", "0"], "expected an integer of at least 1, saw '0'"),
        (["soak", "--seeds", "-1"], "expected an integer of at least 1, saw '-1'"),
        (["sieve", "--situation", "rain"], "first start"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input is refused with the allowed values, and nothing runs."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err
