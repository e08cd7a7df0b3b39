"""Whatever lies in a progress folder: a look is quick, leaves the folder never, and sees this epoch's ranks alone."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inplace.agent.progress.entries import ENTRIES_MAX, FOLDERS_MAX
from inplace.agent.progress.folder import NAME_CHARACTERS_MAX, PATTERN_RANK, ProgressFiles, ProgressFolder, rank_name
from inplace.agent.progress.rank_files import open_folder, read_start
from inplace.agent.settings.paths import problem_of_pattern
from inplace.common.bare.record import replace
from inplace.common.protocol.rank import RankLook
from inplace.common.protocol.stall import RANKS_MAX, Look

EPOCH = 7
LOOK_S_MAX = 1.0  # some milliseconds; a busy machine
MANY = 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return an empty folder."""
    path = tmp_path / "progress"
    path.mkdir()
    return path


@pytest.fixture
def folder(path: Path) -> ProgressFolder:
    """Return it as the agent's, in which an epoch began."""
    folder = ProgressFolder(str(path))
    assert folder.begin(EPOCH) == ""
    return folder


def seen(look: Look) -> dict[str, int | None]:
    """Return the step of each rank that changed."""
    assert look.problem == ""
    return {rank.name: rank.step for rank in look.ranks if rank.changed}


def timeless(look: Look) -> Look:
    """Return a look without the times of files."""
    return replace(look, ranks=tuple(replace(rank, modified_s=None, first=None, first_s=None) for rank in look.ranks))


def test_a_rank_s_first_step_has_a_file_of_its_own(path: Path, folder: ProgressFolder) -> None:
    """Its number and its time, however late the first look comes; the next epoch starts without it."""
    (path / ".rank-3").write_text(f"v1 {EPOCH} 5 77\n")
    os.utime(path / ".rank-3", (100.0, 100.25))
    (path / "rank-3").write_text(f"v1 {EPOCH} 45 77\n")
    os.utime(path / "rank-3", (100.0, 110.5))
    (rank,) = folder.look().ranks
    assert (rank.step, rank.modified_s, rank.first, rank.first_s) == (45, 110.5, 5, 100.25)
    assert folder.begin(EPOCH + 1) == ""
    assert list(path.iterdir()) == []


@pytest.mark.parametrize("left", [None, f"v1 {EPOCH - 1} 2 77\n", "v1 - - 77\n", "words", "x" * 100])
def test_without_that_file_the_first_step_is_the_first_seen(
    path: Path, folder: ProgressFolder, left: str | None
) -> None:
    """Another program's file, a full disk, an older epoch's."""
    if left is not None:
        (path / ".rank-3").write_text(left)
    for step in (5, 6):
        (path / "rank-3").write_text(f"v1 {EPOCH} {step} 77\n")
        os.utime(path / "rank-3", (100.0, 100.0 + step))
        (rank,) = folder.look().ranks
        assert (rank.step, rank.modified_s, rank.first, rank.first_s) == (step, 100.0 + step, 5, 105.0)


def test_a_rank_changes_once_for_each_write(path: Path, folder: ProgressFolder) -> None:
    """A new file, a new step, a touch, a rename over it are changes; nothing else is."""
    assert seen(folder.look()) == {}
    (path / "rank-3").write_text(f"v1 {EPOCH} 5 77\n")
    assert timeless(folder.look()) == Look(EPOCH, (RankLook("rank-3", changed=True, step=5, pid=77),))
    assert timeless(folder.look()) == Look(EPOCH, (RankLook("rank-3", changed=False, step=5, pid=77),))
    (path / "rank-3").write_text(f"v1 {EPOCH} 6 77 checkpoint 600\n")
    assert timeless(folder.look()).ranks == (RankLook("rank-3", True, 6, True, 77, "checkpoint", 600),)
    os.utime(path / "rank-3", (1, 1))  # into 1970: any other time is a change
    assert seen(folder.look()) == {"rank-3": 6}
    (path / "rank-3.new").write_text("7\n")
    assert seen(folder.look()) == {}, "not complete yet"
    (path / "rank-3.new").rename(path / "rank-3")
    assert seen(folder.look()) == {"rank-3": 7}
    assert seen(folder.look()) == {}
    (path / "rank-3").unlink()
    assert folder.look().ranks == ()


def test_same_time_and_size_but_another_step_is_a_change(path: Path, folder: ProgressFolder) -> None:
    """A clock that stands still, or a file system with coarse times, hides no step."""
    for step in (1, 2):
        (path / "0").write_text(f"{step}\n")
        os.utime(path / "0", (1_000, 1_000))
        assert seen(folder.look()) == {"0": step}


def test_progress_of_the_last_epoch_never_counts(path: Path, folder: ProgressFolder) -> None:
    """Files of `inplace.progress` are removed; others count once they change; another epoch's name never does."""
    for name in ("rank-0", "pid-77", "of-our-own"):
        (path / name).write_text(f"v1 {EPOCH} 1000 77\n")
    (path / "other").write_text("1000\n")
    assert len(seen(folder.look())) == 4

    assert folder.begin(EPOCH + 1) == ""
    assert {file.name for file in path.iterdir()} == {"of-our-own", "other"}
    assert timeless(folder.look()) == Look(EPOCH + 1)
    os.utime(path / "of-our-own")  # a process of the old epoch, or somebody's touch
    assert timeless(folder.look()) == Look(EPOCH + 1)
    os.utime(path / "other")
    assert seen(folder.look()) == {"other": 1000}
    (path / "of-our-own").write_text(f"v1 {EPOCH + 1} 3 78\n")
    assert seen(folder.look()) == {"of-our-own": 3}
    (path / "rank-0").write_text(f"v1 {EPOCH} 1001 77\n")
    (path / "rank-1").write_text("v1 - 4 78\n")  # a standby's, which learned its epoch by a pipe
    assert seen(folder.look()) == {"rank-1": 4}


def test_without_in_place_restart_only_files_without_epoch_count(path: Path) -> None:
    """The worker's INPLACE_EPOCH is empty then."""
    folder = ProgressFolder(str(path))
    assert folder.begin(None) == ""
    (path / "rank-0").write_text("v1 - 4 78\n")
    (path / "rank-1").write_text("v1 3 4 78\n")
    assert timeless(folder.look()) == Look(None, (RankLook("rank-0", True, 4, pid=78),))


def test_a_dead_process_s_rank_has_ended(path: Path) -> None:
    """Where process ids are the agent's own, a rank that was killed is not waited for."""
    folder = ProgressFolder(str(path), is_alive=lambda pid: pid != 78)
    folder.begin(EPOCH)
    (path / "rank-0").write_text(f"v1 {EPOCH} 4 77\n")
    (path / "rank-1").write_text(f"v1 {EPOCH} 4 78\n")
    (path / "rank-2").write_text(f"v1 {EPOCH} 4 79 ended\n")
    assert [rank.ended for rank in folder.look().ranks] == [False, True, True]


def plant_link(path: Path) -> None:
    """Link to a file outside."""
    (path.parent / "outside").write_text("5\n")
    (path / "rank-0").symlink_to(path.parent / "outside")


def plant_pipe(path: Path) -> None:
    """Make a pipe without a writer."""
    os.mkfifo(path / "rank-0")


def plant_socket(path: Path) -> None:
    """Bind a socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path / "s"))


def plant_folder(path: Path) -> None:
    """Make a folder with a file of progress in it."""
    (path / "rank-0").mkdir()
    (path / "rank-0" / "rank-0").write_text("5\n")


def plant_device(path: Path) -> None:
    """Make a file that never ends, where this user may."""
    try:
        os.mknod(path / "rank-0", 0o020666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("mknod needs root")


@pytest.mark.parametrize("plant", [plant_link, plant_pipe, plant_socket, plant_folder, plant_device])
def test_what_is_no_file_is_no_rank(path: Path, folder: ProgressFolder, plant: Callable[[Path], None]) -> None:
    """Links, pipes, sockets, folders and devices are passed over, at a look and at the next epoch, without waiting."""
    plant(path)
    (path / "rank-1").write_text("5\n")
    began_s = time.monotonic()
    assert seen(folder.look()) == {"rank-1": 5}
    assert folder.begin(EPOCH + 1) == ""
    assert time.monotonic() - began_s < LOOK_S_MAX
    assert not (path.parent / "outside").exists() or (path.parent / "outside").read_text() == "5\n"


def test_a_file_becomes_a_link_between_two_glances(path: Path, folder: ProgressFolder) -> None:
    """A file that changed is opened without following: a link in its place is not read."""
    (path / "rank-0").write_text("5\n")
    assert seen(folder.look()) == {"rank-0": 5}
    (path / "rank-0").unlink()
    (path / "rank-0").symlink_to("/etc/hostname")
    assert folder.look().ranks == ()


@pytest.mark.parametrize("size", [65, 1 << 20])
def test_a_large_file_lives_at_an_unknown_step(path: Path, folder: ProgressFolder, size: int) -> None:
    """64 bytes are read of it; as long as it grows it is alive, as a log is."""
    (path / "log").write_bytes(b"5".ljust(size))
    assert seen(folder.look()) == {"log": None}
    with (path / "log").open("ab") as log:
        log.write(b"x")
    assert seen(folder.look()) == {"log": None}


def test_a_file_that_may_not_be_read_lives(path: Path, folder: ProgressFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another user's file the modification time is enough."""

    def refuse(name: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if name == "rank-0":
            raise PermissionError(13, "Permission denied")
        return opened(name, flags, mode, dir_fd=dir_fd)

    opened = os.open
    monkeypatch.setattr(os, "open", refuse)
    (path / "rank-0").write_text("5\n")
    assert seen(folder.look()) == {"rank-0": None}
    assert seen(folder.look()) == {}
    os.utime(path / "rank-0", (1, 1))
    assert seen(folder.look()) == {"rank-0": None}


def test_at_most_so_many_ranks_are_watched(path: Path, folder: ProgressFolder) -> None:
    """At the bound all, one more is left out and said; who was a rank first stays one, whatever else comes."""
    for rank in range(RANKS_MAX):
        (path / f"r{rank}").write_text("5\n")
    look = folder.look()
    assert (len(look.ranks), look.left_out) == (RANKS_MAX, 0)
    for name in ("a", "rank-0"):
        (path / name).write_text("5\n")
    look = folder.look()
    assert look.left_out == 2
    assert [rank.name for rank in look.ranks] == [f"r{rank}" for rank in range(RANKS_MAX)]


def test_ranks_of_our_own_come_first_when_there_are_too_many(path: Path, folder: ProgressFolder) -> None:
    """In the order of their numbers."""
    for rank in range(RANKS_MAX):
        (path / f"0-{rank}").write_text("5\n")
    for rank in (10, 9):
        (path / f"rank-{rank}").write_text("5\n")
    assert [rank.name for rank in folder.look().ranks][:3] == ["rank-9", "rank-10", "0-0"]


def test_links_take_no_rank_s_place(path: Path, folder: ProgressFolder) -> None:
    """They are not even looked at beyond their own names."""
    (path.parent / "outside").write_text("5\n")
    for number in range(RANKS_MAX):
        (path / f"rank-{number}").symlink_to(path.parent / "outside")
    (path / "zz").write_text("5\n")
    assert timeless(folder.look()) == Look(EPOCH, (RankLook("zz", True, 5),))


def test_a_file_that_changed_once_stays_a_rank(path: Path) -> None:
    """Also when somebody gives it its old time back."""
    (path / "other").write_text("5\n")
    old_ns = (path / "other").stat().st_mtime_ns
    folder = ProgressFolder(str(path))
    folder.begin(EPOCH)
    for time_ns in (1, old_ns):
        os.utime(path / "other", ns=(time_ns, time_ns))
        assert seen(folder.look()) == {"other": 5}


def test_what_takes_a_file_s_place_before_it_is_read_is_not_read(path: Path) -> None:
    """Between the glance and the reading: a link is not followed, a pipe not waited for."""
    plant_link(path)
    os.mkfifo(path / "piped")
    with open_folder(str(path)) as opened:
        with pytest.raises(OSError, match="symbolic links"):
            read_start(opened, "rank-0", 64)
        assert read_start(opened, "piped", 64) == b""


def test_files_from_before_take_no_rank_s_place(path: Path) -> None:
    """Any number of them that a look covers."""
    for number in range(3 * RANKS_MAX):
        (path / f"old-{number}").write_text("5\n")
    folder = ProgressFolder(str(path))
    assert folder.begin(EPOCH) == ""
    (path / "zz").write_text("5\n")
    assert timeless(folder.look()) == Look(EPOCH, (RankLook("zz", True, 5),))


@pytest.mark.slow
def test_a_hundred_thousand_files_cost_a_bounded_look(path: Path) -> None:
    """The rest is left out, and said; what was there before the worker still never counts."""
    for number in range(MANY):
        (path / f"{number}").touch()
    folder = ProgressFolder(str(path))
    began_s = time.monotonic()
    folder.begin(EPOCH)
    look = folder.look()
    assert time.monotonic() - began_s < LOOK_S_MAX
    assert (look.ranks, look.problem, look.left_out) == ((), "", 1)
    for number in range(MANY):
        os.utime(path / f"{number}", (1, 1))
    look = folder.look()
    assert len(look.ranks) == RANKS_MAX
    assert look.left_out == ENTRIES_MAX - RANKS_MAX + 1


def test_a_crowded_folder_is_seen_in_part(path: Path) -> None:
    """One entry beyond the bound: a look says that it left something out, and believes no file that may be old."""
    for number in range(ENTRIES_MAX + 1):
        (path / f"{number}").touch()
    folder = ProgressFolder(str(path))
    folder.begin(EPOCH)
    for number in range(100):
        (path / f"{number}").unlink()
    look = folder.look()
    assert (look.ranks, look.left_out) == ((), 0), "a file that was left out before is seen now, and is old"


PROBLEMS = {"missing": "No such file", "file": "Not a directory", "link": "Not a directory", "loop": "Not a directory"}


@pytest.mark.parametrize("slash", ["", "/", "//"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_folder_that_is_none_is_a_problem_in_words(tmp_path: Path, name: str, slash: str) -> None:
    """Missing, a file, a link elsewhere: nothing is read or removed there, and the reason is said."""
    (tmp_path / "file").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "rank-0").write_text("5\n")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    folder = ProgressFolder(str(tmp_path / name) + slash)
    assert (folder.begin(EPOCH) == "") == (name == "missing")
    if name == "missing":
        (tmp_path / name).rmdir()  # `begin` has made it
    assert PROBLEMS[name] in folder.look().problem
    assert (tmp_path / "elsewhere" / "rank-0").exists()


def test_a_folder_is_made_for_ranks_of_any_user(tmp_path: Path) -> None:
    """As /tmp is; one that is there stays as it is; what comes into it after `begin` is new."""
    path = tmp_path / "progress"
    folder = ProgressFolder(str(path))
    assert folder.begin(EPOCH) == ""
    assert path.stat().st_mode & 0o7777 == 0o1777
    path.chmod(0o755)
    assert folder.begin(EPOCH) == ""
    assert path.stat().st_mode & 0o7777 == 0o755
    (path / "x").touch()
    assert seen(folder.look()) == {"x": None}


@pytest.mark.parametrize("name", ["rank-1", "a" * NAME_CHARACTERS_MAX, "0/train.log"])
def test_a_plain_name_is_the_rank_s(name: str) -> None:
    """It is used as it is."""
    assert rank_name(name) == name


@pytest.mark.parametrize("name", ["a b", "a" * 65, "a\nb", "\udcff", "ü", "a\x1b[2J"])
def test_any_other_name_becomes_a_safe_one(name: str) -> None:
    """Bounded, printable, and two files keep two names."""
    safe = rank_name(name)
    assert len(safe) <= NAME_CHARACTERS_MAX
    assert safe.isascii()
    assert safe.isprintable()
    assert " " not in safe
    assert safe != rank_name(name + "x")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return folders of logs, two of which a pattern matches."""
    for name in ("0", "1", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text("begins\n")
    (tmp_path / "linked").symlink_to(tmp_path / "0")
    return tmp_path


def test_files_of_a_pattern_are_one_rank(logs: Path) -> None:
    """A line in any of them is progress of all; what was there before, links and hidden folders are not."""
    files = ProgressFiles(f"{logs}/*/train.log")
    assert files.begin(EPOCH) == ""
    assert timeless(files.look()) == Look(EPOCH)
    for name, changed in ((".hidden", False), ("1", True), ("0", True)):
        with (logs / name / "train.log").open("a") as log:
            log.write("more\n")
        assert [rank.changed for rank in files.look().ranks] == [True] * changed
    assert files.look().ranks == (RankLook(PATTERN_RANK, changed=False),)
    (logs / "2").mkdir()
    (logs / "2" / "train.log").write_text("41\n")
    assert files.look().ranks == (RankLook(PATTERN_RANK, changed=True, step=41),)


def test_a_file_by_its_name_needs_no_wildcard(logs: Path) -> None:
    """One file alone, also a number of somebody's own."""
    files = ProgressFiles(f"{logs}/step")
    assert files.begin(EPOCH) == ""
    (logs / "step").write_text("12\n")
    assert seen(files.look()) == {PATTERN_RANK: 12}


def test_so_many_folders_are_opened_for_one_look(tmp_path: Path) -> None:
    """At the bound all, one more is left out and said."""
    files = ProgressFiles(f"{tmp_path}/*/step")
    for number in range(FOLDERS_MAX):
        (tmp_path / f"{number}").mkdir()
    assert files.look().left_out == 0
    (tmp_path / "more").mkdir()
    assert files.look().left_out == 1


@pytest.mark.parametrize("pattern", ["/logs/*/train.log", "/logs/rank[0-9]?.txt", "/a/*/*/*/step", "/step"])
def test_a_pattern_may_be(pattern: str) -> None:
    """Wildcards in up to four names."""
    assert problem_of_pattern(pattern) == ""


@pytest.mark.parametrize(
    "pattern", ["", "logs/*", "/logs/", "/logs//x", "/**/x", "/*/*/*/*/x", "/" + "x" * 512, "/a\0b", "/"]
)
def test_a_pattern_that_may_not_be_is_refused_in_words(pattern: str) -> None:
    """What was expected, and the start of what was seen."""
    problem = problem_of_pattern(pattern)
    assert problem.startswith("expected ")
    assert "saw " in problem
    assert len(problem) < 200


def test_what_a_running_worker_wrote_counts(path: Path) -> None:
    """Its own ranks' files as they are, but not those of another epoch; a stranger's file once it changes."""
    (path / "rank-0").write_text(f"v1 {EPOCH} 5 77\n")
    (path / "rank-1").write_text(f"v1 {EPOCH - 1} 5 78\n")
    (path / "steps").write_text("5\n")
    folder = ProgressFolder(str(path))
    assert folder.begin(EPOCH, runs=True) == ""
    assert seen(folder.look()) == {"rank-0": 5}
    (path / "steps").write_text("16\n")
    assert seen(folder.look()) == {"steps": 16}


def test_files_of_a_pattern_are_a_running_worker_s(path: Path) -> None:
    """They are one rank together, so a log that stopped before there was a limit is silent from now on."""
    (path / "0.log").write_text("loss 3.5\n")
    files = ProgressFiles(f"{path}/*.log")
    assert files.begin(EPOCH, runs=True) == ""
    assert seen(files.look()) == {PATTERN_RANK: None}
    assert seen(files.look()) == {}
