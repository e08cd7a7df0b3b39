from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random

import pytest

from inplace.simulator.cluster.timings import Latency, Tailed, Timings
from inplace.simulator.profile import DELAYS, FOLDER, ProfileError, read_profile, shipped


def written(folder: Path, text: str) -> Timings:
    """Return the delays of a profile that a cluster owner wrote."""
    path = folder / "mine.toml"
    path.write_text(text)
    return read_profile(str(path))


def test_every_shipped_profile_is_valid_and_described() -> None:
    """Each shipped profile is read, says of which cluster it is, and differs from the lab's."""
    assert "lab" in shipped()
    for name in shipped():
        assert tomllib.loads((FOLDER / f"{name}.toml").read_text())["description"]
        assert name == "lab" or read_profile(name) != read_profile("lab")


def test_the_lab_has_every_delay_with_its_source() -> None:
    """The profile from which all others take what they do not name has a source for each delay."""
    lab = tomllib.loads((FOLDER / "lab.toml").read_text())
    sources = {
        f"{group}.{name}": table["source"]
        for group in lab.keys() - {"description"}
        for name, table in lab[group].items()
    }
    assert sources.keys() == DELAYS.keys()
    assert all(len(source) > 10 for source in sources.values())


def test_a_cluster_owners_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    """A delay that a file does not name is the lab's."""
    mine = written(
        tmp_path, '[kubelet.container_start]\nmedian_s = 1.0\np99_s = 4.0\nmax_s = 9.0\nsource = "our nodes"\n'
    )
    lab = read_profile("lab")
    assert mine.container_start == Tailed(1.0, 4.0, 9.0)
    assert mine.api == lab.api == Latency(0.0001, 0.0005)
    assert mine.supervised_exit == lab.supervised_exit


def test_kubelets_period_is_a_number(tmp_path: Path) -> None:
    """The period at which kubelet looks for dead containers is one number of seconds."""
    assert written(tmp_path, '[kubelet.relist_s]\nvalue = 10\nsource = "ours"\n').pleg_relist_s == 10.0


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
        ("[kubelet.relist_s]\nvalue = 61\nsource = 'x'", "expected value = a number from 0 to 60"),
        ("[kubelet.relist_s]\nvalue = true\nsource = 'x'", "expected value = a number from 0 to 60"),
        ("[kubelet.relist_s]\nuniform_s = [1, 2]\nsource = 'x'", "expected value = a number"),
        ("[kubelet.relist_s]\nvalue = nan\nsource = 'x'", "expected value = a number from 0 to 60"),
        ("[kubelet.relist_s]\nvalue = 4", "with a source"),
        ("[kubelet.relist_s]\nvalue = 4\nsource = ' '", "with a source"),
        ("[kubelet.relits_s]\nvalue = 4\nsource = 'x'", "expected one of kubelet.relist_s, network.one_way"),
        ("cores = 4", "expected a group of delays"),
        ("[agent]\nstart = 4", "with a source"),
        ("[agent.start]\nvalue = 1\nsource = 'x'", "expected uniform_s = [low, high], or median_s"),
        ("[agent.start]\nuniform_s = [2, 1]\nsource = 'x'", "expected rising seconds"),
        ("[agent.start]\nuniform_s = [-1, 1]\nsource = 'x'", "expected rising seconds"),
        ("[agent.start]\nuniform_s = [0, 601]\nsource = 'x'", "from 0 to 600"),
        ("[agent.start]\nuniform_s = [1]\nsource = 'x'", "expected uniform_s = [low, high]"),
        ("[agent.start]\nmedian_s = 0\np99_s = 1\nmax_s = 1\nsource = 'x'", "expected a median_s above 0"),
        ("[agent.start]\nmedian_s = 1\np99_s = 2\nsource = 'x'", "expected uniform_s = [low, high], or median_s"),
        ("[agent.start]\nuniform_s = ['a', 1]\nsource = 'x'", "expected uniform_s = [low, high], or median_s"),
        ("= 4", "expected a readable TOML file"),
    ],
)
def test_an_impossible_profile_is_refused_with_what_is_allowed(tmp_path: Path, text: str, said: str) -> None:
    """A profile with an impossible number, an unknown delay or a missing source is refused."""
    with pytest.raises(ProfileError) as refused:
        written(tmp_path, text)
    assert said in str(refused.value)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    """An unknown profile name is refused with the known names."""
    with pytest.raises(ProfileError, match="far, lab, slow-kubelets, zones"):
        read_profile("bigg")
