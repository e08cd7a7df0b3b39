from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from inplace.simulator.cluster.timings import Latency, Tailed
from inplace.simulator.profile import DELAYS, NUMBERS, RECORDED, Profile, ProfileError, read_profile, shipped


def written(folder: Path, text: str) -> Profile:
    """Return the profile that a cluster owner wrote."""
    path = folder / "mine.toml"
    path.write_text(text)
    return read_profile(str(path))


def test_every_shipped_profile_has_every_quantity_and_its_source() -> None:
    """At least five profiles are shipped, and each of their numbers has a source."""
    assert len(shipped()) >= 5
    for name in shipped():
        profile = read_profile(name)
        assert profile.description
        assert set(profile.sources) == {*NUMBERS, *DELAYS}
        assert all(len(source) > 10 for source in profile.sources.values())


def test_a_cluster_owners_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    """A quantity that a file does not name comes from the lab's profile, with the lab's source."""
    mine = written(tmp_path, '[apiserver.cores]\nvalue = 96\nsource = "ours"\n')
    lab = read_profile("lab")
    assert mine["apiserver.cores"] == 96
    assert mine.sources["apiserver.cores"] == "ours"
    assert {**mine.numbers, "apiserver.cores": 0} == {**lab.numbers, "apiserver.cores": 0}
    assert mine.delays == lab.delays


def test_what_was_measured_stands_in_one_place() -> None:
    """The controller's cost of an event is the recorded median, with the command that measured it."""
    record = json.loads((RECORDED / "controller.json").read_text())
    assert read_profile("big")["controller.event_cpu_s"] == record["measured"]["controller.event_cpu_s"][1]
    assert record["command"] in read_profile("big").sources["controller.event_cpu_s"]


def test_the_cluster_draws_from_the_profile(tmp_path: Path) -> None:
    """The embedded cluster's timings are the profile's delays."""
    mine = written(
        tmp_path, '[kubelet.container_start]\nmedian_s = 1.0\np99_s = 4.0\nmax_s = 9.0\nsource = "our nodes"\n'
    )
    assert mine.timings().container_start == Tailed(1.0, 4.0, 9.0)
    assert mine.timings().api == Latency(0.0001, 0.0005)
    assert mine.timings().supervised_exit == mine.delays["supervisor.stop"]


def test_a_tail_has_the_quantiles_that_it_names() -> None:
    """Half of the draws lie below the median, one in a hundred beyond p99, none beyond the greatest."""
    rng, delay = Random(1), Tailed(1.0, 4.0, 5.0)
    draws = sorted(delay.draw(rng) for _ in range(20_000))
    assert draws[10_000] == pytest.approx(1.0, rel=0.03)
    assert draws[19_800] == pytest.approx(4.0, rel=0.05)
    assert draws[-1] == 5.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[apiserver.cores]\nvalue = 0\nsource = 'x'", "expected value = a whole number from 1 to 512"),
        ("[apiserver.cores]\nvalue = 2.5\nsource = 'x'", "expected value = a whole number from 1 to 512"),
        ("[apiserver.cores]\nvalue = true\nsource = 'x'", "expected value = a whole number from 1 to 512"),
        ("[apiserver.cores]\nuniform_s = [1, 2]\nsource = 'x'", "expected value = a whole number"),
        ("[apiserver.cores]\nvalue = 4", "with a source"),
        ("[apiserver.cores]\nvalue = 4\nsource = ' '", "with a source"),
        ("[apiserver.corse]\nvalue = 4\nsource = 'x'", "expected one of apiserver.servers, apiserver.cores"),
        ("cores = 4", "expected a group of quantities"),
        ("[apiserver]\ncores = 4", "with a source"),
        ("[agent.start]\nuniform_s = [2, 1]\nsource = 'x'", "expected rising seconds"),
        ("[agent.start]\nuniform_s = [-1, 1]\nsource = 'x'", "expected rising seconds"),
        ("[agent.start]\nuniform_s = [0, 601]\nsource = 'x'", "from 0 to 600"),
        ("[agent.start]\nuniform_s = [1]\nsource = 'x'", "expected uniform_s = [low, high]"),
        ("[agent.start]\nmedian_s = 0\np99_s = 1\nmax_s = 1\nsource = 'x'", "expected a median_s above 0"),
        ("[agent.start]\nmedian_s = 1\np99_s = 2\nsource = 'x'", "expected uniform_s = [low, high], or median_s"),
        ("[agent.start]\nuniform_s = ['a', 1]\nsource = 'x'", "expected uniform_s = [low, high], or median_s"),
        ("[fairness.seats]\nvalue = 10\nsource = 'x'", "expected at most fairness.seats (10)"),
        ("[controller.event_cpu_s]\nrecorded = 'herd.json'", "expected controller.event_cpu_s in recorded/herd.json"),
        ("[controller.event_cpu_s]\nrecorded = 'none.json'", "expected controller.event_cpu_s in recorded/none.json"),
        ("= 4", "expected a readable TOML file"),
    ],
)
def test_an_impossible_profile_is_refused_with_what_is_allowed(tmp_path: Path, text: str, said: str) -> None:
    """A profile with an impossible number, an unknown quantity or a missing source is refused."""
    with pytest.raises(ProfileError) as refused:
        written(tmp_path, text)
    assert said in str(refused.value)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    """An unknown profile name is refused with the known names."""
    with pytest.raises(ProfileError, match="big, far, lab"):
        read_profile("bigg")
