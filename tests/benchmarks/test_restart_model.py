from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from random import Random
from statistics import median
from types import MappingProxyType
from typing import Any

import pytest

from benchmarks.model_bound import emptied_s
from benchmarks.model_group import NO_SLOTS, Mode
from benchmarks.model_server import Agenda, Cores, Level, Server, default_level, shipped_level
from benchmarks.restart_at_scale import REJECTED_MAX, UPSTREAM, curves, judged, measure, recreated_s
from benchmarks.restart_model import Restarting
from inplace.simulator.profile import Profile, read_profile

LAB = read_profile("lab")
BIG = read_profile("big")


def with_numbers(profile: Profile, **numbers: float) -> Profile:
    """Return the profile with other numbers; two underscores stand for the dot."""
    named = {name.replace("__", "."): value for name, value in numbers.items()}
    return replace(profile, numbers=MappingProxyType({**profile.numbers, **named}))


@pytest.mark.parametrize("mode", ["sidecar", "guarded", "supervisor", "upstream"])
@pytest.mark.parametrize("profile", [LAB, BIG])
def test_no_run_beats_the_bound(profile: Profile, mode: Mode) -> None:
    """No run of the model is faster than the bound, and the bound is at least the nodes' part."""
    for seed in range(5):
        for apf in (False, True):
            run = Restarting(profile, 60, mode, apf, seed=seed).run()
            assert run.kubelet_s <= run.bound_s < run.total_s


def test_one_seed_gives_one_run() -> None:
    """The same seed gives the same restart, another seed gives another."""
    first, again, other = (Restarting(BIG, 50, seed=seed).run() for seed in (1, 1, 2))
    assert first == again
    assert first.total_s != other.total_s


def test_a_bound_is_what_a_line_needs() -> None:
    """Work that arrives at once needs the sum of its times; work that arrives late needs its own time."""
    assert emptied_s([0.0, 0.0, 0.0], 2.0) == 6.0
    assert emptied_s([0.0, 0.0, 9.0], 2.0) == 11.0


def test_every_pod_asks_and_is_counted_once() -> None:
    """With nothing rejected, phases come in the protocol's order and end with the last lift."""
    run = Restarting(BIG, 200, apf=True).run()
    at_s = [run.phases[name] for name in ("seen", "deprecated", "first_announced", "last_announced", "synced")]
    assert at_s == sorted(at_s)
    assert run.rejected == 0
    assert run.phases["synced"] < run.phases["last_lifted"] < run.total_s


def test_a_group_is_rejected_by_a_small_server_and_queued_by_deploy_apf() -> None:
    """1,000 agents without slots overflow the default level of two cores; deploy/apf queues every one."""
    without = Restarting(LAB, 1_000, slots=NO_SLOTS).run()
    assert without.rejected > 100
    assert Restarting(LAB, 1_000, apf=True).run().rejected == 0


def test_the_agents_constants_keep_the_promise_where_it_is_tightest() -> None:
    """1,000 agents that begin together on two cores are rejected 0.2 times each at most; without slots, many more."""
    for seed in (1, 2):
        tightest, pods = read_profile("lab-herd"), 1_000
        with_slots = Restarting(tightest, pods, seed=seed, looks=False).run()
        assert with_slots.rejected / pods <= REJECTED_MAX
        without = Restarting(tightest, pods, slots=NO_SLOTS, seed=seed, looks=False).run()
        assert without.rejected / pods > 2 * REJECTED_MAX


def test_a_look_is_a_slot_where_one_is_needed() -> None:
    """1,000 sidecars beat upstream's on a large server; on four cores few are rejected, and many without slots."""
    pods, small = 1_000, read_profile("small")
    assert Restarting(BIG, pods).run().total_s < 0.8 * Restarting(BIG, pods, "upstream").run().total_s
    assert Restarting(small, pods).run().rejected / pods <= REJECTED_MAX
    assert Restarting(small, pods, slots=NO_SLOTS).run().rejected / pods > 1.5 * REJECTED_MAX


def test_a_slow_controller_shows() -> None:
    """The controller's one core is a queue: with 10 ms for each event, 500 Pods take 5 s longer."""
    slow = with_numbers(BIG, controller__event_cpu_s=0.01)
    assert Restarting(slow, 500, "supervisor").run().total_s > 5.0
    assert Restarting(slow, 500, "supervisor").run().bound_s > 5.0


def test_a_level_holds_what_the_deployed_one_says() -> None:
    """The shipped level is read from deploy/apf: 30 of 275 shares of 600 seats, a quarter lent, 4 x 4,000 places."""
    assert shipped_level(LAB) == Level(50, 66, 16_000)
    assert default_level(LAB) == Level(56, 245, 300)


def test_a_server_rejects_what_has_no_place() -> None:
    """With one seat and one place in the queue, of three requests at once one is served, one waits, one gets 429."""
    agenda = Agenda()
    server = Server(agenda, Cores(1), Level(1, 1, 1), lend_s=0.0)
    done: list[float] = []
    refused: list[float] = []
    for _ in range(3):
        server.ask(0.0, 1.0, 0.5, done.append, lambda _, after_s: refused.append(after_s))
    agenda.run()
    assert done == [1.5, 3.0]
    assert refused == [1.0]
    assert server.rejected == 1


def test_who_waits_too_long_is_rejected() -> None:
    """A request that waits 15 s in a queue is rejected."""
    agenda = Agenda()
    server = Server(agenda, Cores(1), Level(1, 1, 5), lend_s=0.0)
    done: list[float] = []
    refused: list[float] = []
    for _ in range(3):
        server.ask(0.0, 10.0, 0.0, done.append, lambda at_s, _: refused.append(at_s))
    agenda.run()
    assert done == [10.0, 20.0]
    assert refused == [15.0]


def test_recreation_is_calibrated_to_the_published_figure() -> None:
    """5,000 Pods take the 2m10s of the JobSet proposal, within 2 %."""
    assert recreated_s(BIG, 5_000) == pytest.approx(130, rel=0.02)


def test_the_report_has_its_keys_and_says_that_it_is_modelled() -> None:
    """The command prints one JSON object with what was promised, and the profile with every source."""
    command = [sys.executable, "-m", "benchmarks.restart_at_scale", "--pods", "50", "--seeds", "1", "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["kind"] == "modelled"
    assert found["profile"]["apiserver.cores"]["source"]
    row_keys = {"pods", "mode", "apf", "total_s", "kubelet_s", "bound_s", "rejected"}
    assert all(row_keys <= row.keys() for row in found["rows"])
    assert {(row["mode"], row["apf"]) for row in found["rows"]} == {
        (mode, apf) for mode in ("guarded", "sidecar", "supervisor") for apf in (False, True)
    }
    assert all({"name", "pods", "total_s"} <= each.keys() for each in found["baselines"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pods", "0"], "expected a number of Pods from 1 to 50000, saw '0'"),
        (["--pods", "many"], "saw 'many'"),
        (["--profile", "none"], "expected a profile (big, far"),
        (["--seeds", "x"], "invalid"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(arguments: list[str], said: str) -> None:
    """Zero Pods, a profile that is not there and a seed count that is no number end with exit code 2 and the reason."""
    command = [sys.executable, "-m", "benchmarks.restart_at_scale", *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 2
    assert said in ended.stderr


def test_a_missed_promise_is_said() -> None:
    """A figure that misses its bound is reported as missed."""
    row = {"pods": 5_000, "mode": "supervisor", "apf": False, "total_s": 2.0, "rejected": 4_000}
    others = [row | {"mode": mode, "total_s": 3.0, "rejected": 0} for mode in ("guarded", "sidecar")]
    others = [each | {"kubelet_s": 2.5, "bound_s": 2.5} for each in others]
    baselines = [{"name": UPSTREAM, "pods": 5_000, "total_s": 1.5}]
    assert missed({"rows": [row, *others], "baselines": []}) == [
        "supervisor, 5,000 Pods: seconds in all",
        "429s per agent without deploy/apf, worst row",
    ]
    row |= {"total_s": 0.9, "rejected": 0}
    assert missed({"rows": [row, *others], "baselines": baselines}) == [
        f"{mode}, default limits: times upstream's, worst size" for mode in ("guarded", "sidecar")
    ]


def missed(found: dict[str, Any]) -> list[str]:
    """Return the promises that are not kept."""
    return [words.rpartition(":")[0] for words, ok in judged(found) if not ok]


@pytest.mark.parametrize("profile", [LAB, BIG])
def test_a_guard_saves_looks_of_kubelet(profile: Profile) -> None:
    """Without slots, groups of guarded sidecars are back before groups of plain ones."""

    def total_s(mode: Mode) -> float:
        return median(Restarting(profile, 50, mode, apf=True, seed=seed).run().total_s for seed in range(9))

    assert total_s("guarded") < 0.9 * total_s("sidecar")


def test_the_chart_draws_every_way() -> None:
    """Each curve has a point for each size."""
    found = measure(BIG, (20, 40), seeds=1)
    assert [len(curve.points) for curve in curves(found)] == [2] * 6


def test_the_least_luck_is_no_network_delay_below_the_profiles() -> None:
    """Draws never lie below what the bound assumes."""
    delay, rng = BIG.delays["network.one_way"], Random(1)
    assert min(delay.draw(rng) for _ in range(1_000)) >= 0.0002
