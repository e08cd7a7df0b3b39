from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.herd_learning import FAST, SHOWN, alone, consecutive, judged, learning, profile_of
from benchmarks.restart_at_scale import REJECTED_MAX
from inplace.agent.announce.start_window import StartWindow
from inplace.simulator.profile import read_profile

BIG, SMALL = read_profile(FAST), read_profile("small")
PODS = 1_000


def test_a_group_of_1000_is_not_slower_than_upstreams() -> None:
    """The first restart has the default window, the second has none; both beat upstream, and nobody is rejected."""
    upstream = alone(BIG, PODS, 1, "upstream")
    first, second = learning([BIG] * 2, PODS, seeds=1)
    assert second.seconds < first.seconds - 0.5
    assert first.seconds < upstream.seconds < alone(BIG, PODS, 1).seconds
    assert first.rejected == second.rejected == 0.0


def test_a_server_that_turns_slow_rejects_few_because_agents_look() -> None:
    """96 cores become 4 between two restarts: at most 0.2 429s per agent; without the look many more."""
    history = [BIG] * 2 + [SMALL]
    assert learning(history, PODS, seeds=1)[-1].rejected <= REJECTED_MAX
    assert learning(history, PODS, seeds=1, looks=False)[-1].rejected > 1.5 * REJECTED_MAX


def test_an_overloaded_group_grows_its_windows() -> None:
    """Two cores for 1,000 sidecars: no Pod keeps a start without a window, and many go beyond the default one."""
    levels = [window.level for window in consecutive([read_profile("lab")] * 2, PODS, seed=1)[-1].windows]
    assert levels.count(0) < PODS / 5
    assert levels.count(2) + levels.count(3) > PODS / 5


def test_a_very_large_group_keeps_the_default_window() -> None:
    """From 4,000 Pods on nothing shrinks below it."""
    runs = consecutive([BIG], 4_000, seed=1)
    assert set(runs[0].windows) == {StartWindow()}


def test_a_slow_store_is_big_with_slow_commits() -> None:
    """Nothing else differs."""
    slow = profile_of("slow-store")
    assert slow.numbers == BIG.numbers
    assert {name for name in BIG.delays if slow.delays[name] != BIG.delays[name]} == {"apiserver.commit"}


def test_the_report_has_its_keys_and_says_that_it_is_modelled() -> None:
    """One JSON object: consecutive restarts on one cluster, and on those that turned slow, with their comparisons."""
    command = [sys.executable, "-m", "benchmarks.herd_learning", "--pods", "20", "--seeds", "1", "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["kind"] == "modelled"
    (steady,) = found["steady"]
    assert set(steady) == {"pods", "fixed", "learning", "upstream"}
    assert list(steady["learning"]) == [str(number) for number in SHOWN]
    assert [row["slow"] for row in found["turned_slow"]] == ["single32", "slow-store", "small", "lab"]
    assert all({"fixed", "without_look", "learning", "upstream"} <= row.keys() for row in found["turned_slow"])


def test_a_missed_promise_is_said() -> None:
    """Slower than upstream, or more 429s than promised, is not called reached."""
    cell = {"seconds": 2.0, "rejected": 0.3}
    steady = {"pods": 9, "fixed": cell, "learning": {"1": cell}, "upstream": {"seconds": 1.0, "rejected": 0.0}}
    slow = steady | {"slow": "small", "without_look": cell}
    assert [ok for _, ok in judged({"steady": [steady], "turned_slow": [slow]})] == [False] * 3


@pytest.mark.parametrize("pods", ["0", "many"])
def test_bad_input_is_refused_with_what_is_allowed(pods: str) -> None:
    """A group of no Pods ends with exit code 2 and the reason."""
    command = [sys.executable, "-m", "benchmarks.herd_learning", "--pods", pods]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "expected a number of Pods from 1 to 50000" in ended.stderr
