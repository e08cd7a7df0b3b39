"""What a Pod tells of the steps that its ranks saved, from real files: never more than every rank has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inplace.agent.announce.jobset_requests import saved_in
from inplace.agent.progress.saved_steps import PodSteps, note_run, recall, saved_steps
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.epoch_file import EpochFile
from inplace.common.protocol.bounds import INT32_MAX, STEP_MAX
from inplace.common.protocol.resume import NOTHING, Resume, Saved


class Pod:
    """One Pod's files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kept = folder / "progress", folder / "epoch.saved"
        self.folder.mkdir()
        self.memory = EpochFile(str(folder / "epoch"))

    def saves(self, rank: str, line: str) -> None:
        """Write what a rank saved."""
        (self.folder / f".{rank}.saved").write_text(f"{line}\n")

    def steps(self, rank: str, epoch: int) -> None:
        """Write a rank's progress."""
        (self.folder / rank).write_text(f"v1 {epoch} 5 77\n")

    def tells(self, epoch: int, resume: Resume | None = None) -> Saved:
        """Compute an announcement."""
        return saved_steps(str(self.folder), self.memory, epoch, resume)

    def ends(self, epoch: int, step: int, *, failed: bool = True) -> bool:
        """End a run."""
        return note_run(str(self.folder), self.memory, epoch, step, failed=failed)

    def files(self) -> set[str]:
        """Return the names of the ranks' lines."""
        return {path.name for path in self.folder.glob(".*")}


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    """Return a Pod whose ranks told nothing."""
    return Pod(tmp_path)


def local(step: int) -> Resume:
    """Return a step that each loads from its own copy."""
    return Resume(step, local=True)


def test_the_last_run_counts_as_its_ranks_say(pod: Pod) -> None:
    """What all ranks have, the newest first; of shared steps the newest."""
    pod.saves("rank-0", "v1 6 120.110 90")
    pod.saves("rank-1", "v1 6 110.100 100")
    assert pod.tells(7, None) == Saved((110,), 100)


@pytest.mark.parametrize("resume", [None, local(110), Resume(110, local=False)])
def test_an_earlier_run_counts_up_to_where_the_last_one_went_on(pod: Pod, resume: Resume | None) -> None:
    """Only if that was local; else the ranks' lines go, because this Pod may play another rank."""
    pod.saves("rank-0", "v1 6 120.110.100 90")
    assert pod.tells(7).local == (120, 110, 100)
    is_local = resume is not None and resume.local
    assert pod.tells(8, resume) == Saved((110, 100) if is_local else (), 90)
    assert pod.files() == ({".rank-0.saved"} if is_local else set())
    assert pod.tells(9, local(110)) == Saved((110, 100) if is_local else (), 90)


@pytest.mark.parametrize(("resume", "told"), [(local(110), (120, 110)), (Resume(110, local=False), (120,))], ids=str)
def test_the_own_copy_of_a_shared_step_may_be_of_another_whole(pod: Pod, resume: Resume, told: tuple[int, ...]) -> None:
    """A run of other ranks made it, or the group went back behind it since: the rank cannot know."""
    pod.saves("rank-0", "v1 7 120.110 110")
    assert pod.tells(8, resume) == Saved(told, 110)


def test_a_rank_that_told_nothing_has_nothing(pod: Pod) -> None:
    """A rank that made a step in the last run is one; one of an older run, or of another program, is none."""
    pod.saves("rank-0", "v1 6 120 -")
    pod.steps("rank-1", 5)
    (pod.folder / "other").write_text("v1 6 5 77\n")
    assert pod.tells(7).local == (120,)
    pod.saves("rank-0", "v1 7 120 -")
    pod.steps("rank-1", 7)
    assert pod.tells(8).local == ()


def test_processes_without_a_number_are_one_rank(pod: Pod) -> None:
    """Their process ids change with each run."""
    pod.saves("pod", "v1 6 120 -")
    pod.steps("pid-77", 6)
    assert pod.tells(7).local == (120,)


def test_a_line_of_a_newer_run_says_nothing(pod: Pod) -> None:
    """The group's epochs were lost."""
    pod.saves("rank-0", "v1 9 120 90")
    assert pod.tells(7) == Saved((), 90)


def test_a_shared_step_that_goes_back_is_the_last_runs(pod: Pod) -> None:
    """What is newer belongs to another line of training."""
    pod.saves("rank-0", "v1 6 - 90")
    assert pod.tells(7).shared == 90
    pod.saves("rank-0", "v1 7 - 50")
    assert pod.tells(8).shared == 50


def test_an_announcement_is_computed_once(pod: Pod) -> None:
    """Whatever becomes of the files: it is sent again by this process or the next one."""
    pod.saves("rank-0", "v1 6 120 90")
    first = pod.tells(7)
    pod.saves("rank-0", "v1 7 130 95")
    assert pod.tells(7) == first
    assert recall(pod.memory) == PodSteps(7, first)


@pytest.mark.parametrize("dies", ["before", "after"])
def test_an_agent_that_dies_on_the_way_tells_the_same(pod: Pod, dies: str) -> None:
    """Before what it computed is kept, nobody knows of it; after that, ranks' lines may or may not be gone."""
    pod.saves("rank-0", "v1 6 120.110 90")
    pod.tells(7)
    before = pod.kept.read_text()
    told = pod.tells(8, Resume(90, local=False))
    if dies == "before":
        pod.kept.write_text(before)
    pod.saves("rank-0", "v1 6 120.110 90")  # not removed yet
    assert pod.tells(8, Resume(90, local=False)) == told == Saved((), 90)
    pod.tells(9)
    pod.saves("rank-1", "v1 9 130 90")
    assert pod.tells(10).local == (130,)
    assert pod.files() == {".rank-1.saved"}


def test_on_a_full_disk_the_steps_of_earlier_runs_are_told_no_more(pod: Pod) -> None:
    """What nobody kept cannot be known to be of this line of training."""
    pod.saves("rank-0", "v1 6 120 90")
    pod.memory = EpochFile(str(pod.folder / "none" / "epoch"))
    assert pod.tells(7) == Saved((120,), 90)
    assert pod.tells(7) == Saved((120,), 90)
    assert pod.tells(8, local(120)) == Saved((), 90)


def test_two_runs_in_vain_make_a_step_unfit(pod: Pod) -> None:
    """For the Pod's life, and once; a new process goes on counting."""
    pod.saves("rank-0", "v1 6 120.110 90")
    assert pod.tells(7) == Saved((120, 110), 90)
    assert not pod.ends(7, 120)
    assert pod.tells(8, local(120)) == Saved((120, 110), 90)
    pod.memory = EpochFile(str(pod.kept).removesuffix(".saved"))
    assert pod.ends(8, 120)
    assert pod.tells(9, local(120)) == Saved((110,), 90, 120)
    assert not pod.ends(9, 110)
    assert pod.tells(10, local(110)) == Saved((110,), 90, 120)


@pytest.mark.parametrize("got", ["a step", "a save", "another step", "told to end"])
def test_a_run_that_got_further_is_not_in_vain(pod: Pod, got: str) -> None:
    """A step made, or one saved, starts the count anew; so does another resume step. Who was told to end counts not."""
    pod.saves("rank-0", "v1 6 120.110 90")
    pod.tells(7)
    assert not pod.ends(7, 120)
    if got == "a step":
        pod.steps("rank-0", 8)
    elif got == "a save":
        pod.saves("rank-0", "v1 8 130.120 90")
    assert not pod.ends(8, 110 if got == "another step" else 120, failed=got != "told to end")
    assert recall(pod.memory).runs == {"another step": 1, "told to end": 1}.get(got, 0)


@pytest.mark.parametrize("text", ["", "v1", "v1 7 - - - - 3", "v1 x - - - - 0", "v1 7 1.2 - - - 0", "v1 7 - - - - 0 1"])
def test_a_garbled_memory_is_none(pod: Pod, text: str) -> None:
    """What nobody can read says nothing."""
    pod.kept.write_text(text)
    assert recall(pod.memory) == PodSteps()


def test_the_longest_memory_is_read(pod: Pod) -> None:
    """Its bound is that of the file."""
    steps = tuple(STEP_MAX - number for number in range(4))
    pod.kept.write_text(f"v1 {INT32_MAX} {'.'.join(map(str, steps))} {STEP_MAX} {STEP_MAX} {STEP_MAX} 1")
    assert recall(pod.memory) == PodSteps(INT32_MAX, Saved(steps, STEP_MAX, STEP_MAX), STEP_MAX, 1)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "endless", "long", "socket"])
def test_a_strangers_file_says_nothing(pod: Pod, kind: str) -> None:
    """Nothing is followed or waited for; it counts as a rank that has nothing."""
    path = pod.folder / ".rank-1.saved"
    pod.saves("rank-0", "v1 6 120 -")
    (pod.folder / "real").write_text("v1 6 120 -\n")
    if kind == "link":
        path.symlink_to(pod.folder / "real")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        path.touch(mode=0o000)
    else:
        path.write_text("v1 6 120 -" + " " * 100_000 + "\n")
    assert pod.tells(7) == NOTHING


def test_a_folder_that_nobody_sees_whole_has_no_local_steps(pod: Pod) -> None:
    """A rank may be among the names that were left out."""
    pod.saves("rank-0", "v1 6 120 90")
    for number in range(2_000):
        (pod.folder / f"x{number}").touch()
    assert pod.tells(7).local == ()


def test_where_no_rank_told_of_a_step_nothing_is_written(tmp_path: Path) -> None:
    """Not even the module is needed."""
    pod = Pod(tmp_path)
    pod.steps("rank-0", 6)
    config = AgentConfig(namespace="ns", pod_name="p", jobset_name="j", progress_dir=str(pod.folder))
    for folder in ("", str(pod.folder), str(tmp_path / "none")):
        config = AgentConfig(namespace="ns", pod_name="p", jobset_name="j", progress_dir=folder)
        assert saved_in(config, pod.memory, 7, None) == NOTHING
    assert not pod.kept.exists()


runs = st.lists(
    st.fixed_dictionaries(
        {
            "saves": st.dictionaries(st.sampled_from(["rank-0", "rank-1"]), st.sets(st.integers(0, 9), max_size=3)),
            "resume": st.none() | st.builds(Resume, st.integers(0, 9), st.booleans()),
        }
    ),
    max_size=6,
)


@given(runs=runs)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_step_of_another_line_is_never_told(tmp_path_factory: pytest.TempPathFactory, runs: list[Any]) -> None:
    """Against a model that knows of each rank which steps it has in the present line of training."""
    pod = Pod(tmp_path_factory.mktemp("pod"))
    has: dict[str, set[int]] = {"rank-0": set(), "rank-1": set()}
    for epoch, run in enumerate(runs, start=1):
        resume = run["resume"] if epoch > 1 else None
        for rank, steps in has.items():
            pod.steps(rank, epoch)
            has[rank] = {step for step in steps if resume and resume.local and step <= resume.step}
        for rank, steps in run["saves"].items():
            has[rank] = steps
            pod.saves(rank, f"v1 {epoch} {'.'.join(map(str, sorted(steps, reverse=True))) or '-'} -")
        told = pod.tells(epoch + 1, resume)
        assert set(told.local) <= set.intersection(*has.values())
        if run["saves"].keys() == has.keys():
            assert set(told.local) == set.intersection(*has.values())
