"""The phases of a restart survive the process, in the file and in the announcement."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.report.phases import PhaseFile, RestartPhases, boot_s, process_started_s
from inplace.common.protocol.bounds import STEP_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire import names as wire
from inplace.common.wire.last_progress import TEXT_BYTES_MAX as LAST_BYTES_MAX
from inplace.common.wire.last_progress import last_progress_text, parse_last_progress
from inplace.common.wire.phases import (
    MILLISECONDS_MAX,
    TEXT_BYTES_MAX,
    RestartPhase,
    moment_of,
    parse_numbers,
    parse_phases,
    phases_text,
)
from tests.agent.rig import Rig
from tests.agent.scripted_server import ScriptedServer, in_turn, jobset, refuses, until_patched

durations = st.dictionaries(st.sampled_from(RestartPhase), st.floats(-1e12, 1e12))


WALL = lambda: 1_790_000_000.123  # noqa: E731 - a clock that stands still


class Hand:
    """A clock that a test moves."""

    def __init__(self, now_s: float = 100.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@given(durations)
def test_the_text_is_read_back_and_bounded(seconds: dict[RestartPhase, float]) -> None:
    """The text of any durations fits its bound and is read back to the millisecond, within the range."""
    text = phases_text(seconds)
    assert len(text) <= TEXT_BYTES_MAX
    expected = {phase: min(max(s, 0.0), MILLISECONDS_MAX / 1000) for phase, s in seconds.items()}
    assert parse_phases(text) == pytest.approx(expected, abs=0.0005 + 1e-9)


FIRST_PHASES = ("kubelet", "view", "announce", "lift")


def test_the_longest_text_is_within_its_bound() -> None:
    """Every number at its longest: what does not fit is the last phases, never the moment or the last progress."""
    of_a_sidecar = [phase.value for phase in RestartPhase][:5]
    for work_s, rank, phases in ((None, None, of_a_sidecar), (999.9999, 9_999_999, FIRST_PHASES)):
        told = last_progress_text(LastProgress(STEP_MAX, 1e9, 9_999_999, 999.9999, work_s, rank))
        assert len(told) <= LAST_BYTES_MAX
        text = phases_text(dict.fromkeys(RestartPhase, 1e9), 9_999.999, told)
        assert TEXT_BYTES_MAX - len(",announce=9999999") < len(text) <= TEXT_BYTES_MAX
        assert {phase.value for phase in parse_phases(text)} == set(phases)
        assert parse_last_progress(text) == LastProgress(STEP_MAX, 9_999.999, 9_999_999, 999.9999, work_s, rank)
        assert re.fullmatch("v1(,[a-z]{1,16}=[0-9]{1,7}){0,16}", text), "the policy's form, in deploy/admission"
    assert len(told) == LAST_BYTES_MAX


SUPERVISED = ("announce", "barrier", "start", "down", "stop", "death")


@pytest.mark.parametrize("killed", [False, True])
def test_a_supervisor_s_text_is_whole_up_to_days(killed: bool) -> None:
    """All its phases fit: below 1,000 s each beside a step of 9 digits, below 100 s beside one of 6 after a kill."""
    names = (*SUPERVISED, *(("kubelet", "view") if killed else ()))
    seconds = {RestartPhase(name): 99.999 if killed else 999.999 for name in names}
    step, quiet_s = (999_999, 99.999) if killed else (999_999_999, 999.999)
    text = phases_text(seconds, 9_999.999, last_progress_text(LastProgress(step, quiet_s, 99_999, 99.9999)))
    assert len(text) <= TEXT_BYTES_MAX
    assert parse_phases(text) == seconds


def test_a_newer_agent_s_names_are_passed_over() -> None:
    """A controller that is older than the agent loses none of the phases that it knows."""
    assert parse_phases("v1,view=64,sight=1,at=4512078,quiet=3") == {RestartPhase.VIEW: 0.064}


@given(
    st.builds(
        LastProgress,
        st.none() | st.integers(0, STEP_MAX),
        st.floats(0.0, 1e9),
        st.none() | st.integers(1, 10**9),
        st.none() | st.floats(0.0, 1e6),
    )
)
def test_the_last_progress_is_read_back(progress: LastProgress) -> None:
    """To the millisecond and the tenth of one; what does not fit is left out with what belongs to it."""
    text = last_progress_text(progress)
    assert len(text) <= LAST_BYTES_MAX
    read = parse_last_progress("v1,view=1" + text)
    assert read is not None
    assert read.step == progress.step
    assert read.quiet_s == pytest.approx(min(progress.quiet_s, MILLISECONDS_MAX / 1000), abs=0.0005 + 1e-9)
    if read.pace_s is not None:
        assert read.made == progress.made
        assert read.pace_s == pytest.approx(progress.pace_s, abs=0.00005 + 1e-9)


@pytest.mark.parametrize("text", ["v1,quiet=", "v1,quiet=1,quiet=1", "v1,quiet=1,step=1,high=9999999", "v1,quiet=1;"])
def test_a_last_progress_that_cannot_be_is_refused(text: str) -> None:
    """The peer's error, as for the phases."""
    with pytest.raises(RemoteProtocolError, match="phases: expected"):
        parse_last_progress(text)


@given(st.floats(1.7e9, 1.9e9), st.floats(-4_900.0, 4_900.0))
def test_a_moment_is_found_again(at_s: float, apart_s: float) -> None:
    """From any other time within 2 h 46 min, half of that on each side."""
    numbers = parse_numbers(phases_text({}, at_s))
    assert moment_of(numbers, at_s + apart_s) == pytest.approx(at_s, abs=0.0011)
    assert moment_of({}, at_s) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v2",
        "v1,",
        "v1,view",
        "v1,view=",
        "v1,view=-1",
        "v1,view=1.5",
        "v1,view=\u0661",
        "v1,view=12345678",
        "v1,view=1,view=2",
        "v1,a_name=1",
        "v1,abcdefghijklmnopq=1",
        "v1,=1",
        "v1,nämlich=1",
        "v1" + "".join(f",{letter}=1" for letter in "abcdefghijklmnopq"),
        "v1 ,view=1",
        "v1,VIEW=1",
        "v1" + ",view=1" * 100_000,
        "\x00",
    ],
)
def test_garbage_is_refused_as_a_whole(text: str) -> None:
    """A text outside the grammar raises the peer's error, with the expected form and a bounded part of the text."""
    with pytest.raises(RemoteProtocolError, match="expected 'v1'") as caught:
        parse_phases(text)
    assert len(str(caught.value)) < 500


@given(st.text(max_size=200))
def test_no_text_does_anything_else(text: str) -> None:
    """Any text is read, or refused with that error."""
    with suppress(RemoteProtocolError):
        parse_phases(text)


def test_two_lives_tell_one_story(tmp_path: Path) -> None:
    """The second process's announcement has the first process's waits and the gap between the two."""
    clock, file = Hand(100.0), PhaseFile(str(tmp_path / "phases"))
    first = RestartPhases(AgentMetrics(), now_s=clock, wall_s=WALL, started_s=99.95, file=file)
    assert first.announcing(1) == "v1,view=50,at=123"
    clock.now_s = 100.012
    first.accepted()
    clock.now_s = 103.0
    first.lifted()
    clock.now_s = 500.0
    first.leave()
    clock.now_s = 501.3
    metrics = AgentMetrics()
    second = RestartPhases(metrics, now_s=clock, wall_s=WALL, started_s=501.25, file=file)
    assert second.announcing(2) == "v1,announce=12,barrier=2988,lift=3050,kubelet=1250,view=50,at=123"
    assert set(metrics.durations) == {RestartPhase.KUBELET, RestartPhase.VIEW}, "a life's histograms hold that life"


@pytest.mark.parametrize(("completes", "code"), [(True, ",code=0"), (False, "")], ids=["completed", "ended"])
def test_a_worker_s_end_goes_with_one_announcement(tmp_path: Path, code: str, *, completes: bool) -> None:
    """The next process of a sidecar tells of the worker before it; the one after that says nothing."""
    file, told = PhaseFile(str(tmp_path / "phases")), ",quiet=4031,step=1200"
    first = RestartPhases(AgentMetrics(), now_s=Hand(), wall_s=WALL, file=file)
    first.announcing(1)
    if completes:
        first.worker_ended(0)
    first.worker_stepped(told)
    first.leave()
    second = RestartPhases(AgentMetrics(), now_s=Hand(), wall_s=WALL, file=file)
    assert second.announcing(2) == f"v1,kubelet=0,view=0,at=123{code}{told}"
    second.accepted()
    second.leave()
    third = RestartPhases(AgentMetrics(), now_s=Hand(), wall_s=WALL, file=file).announcing(3)
    assert ("code" in third, "quiet" in third) == (False, False)


@pytest.mark.parametrize("told", [",quiet=1,step=x", ",quiet=1" + ",step=1" * 9, ",quiet=1 x", ",quiet=12345678"])
def test_a_last_progress_that_somebody_else_wrote_is_dropped(tmp_path: Path, told: str) -> None:
    """The worker can write this file: what deploy/admission would refuse must not reach the announcement."""
    path = tmp_path / "phases"
    path.write_text(f"v1{told} ? -")
    assert (
        RestartPhases(AgentMetrics(), now_s=Hand(), wall_s=WALL, file=PhaseFile(str(path))).announcing(2)
        == "v1,view=0,at=123"
    )


def test_an_announcement_s_text_is_frozen() -> None:
    """Building an announcement again gives the same bytes; the next epoch's has only the phases that ended since."""
    clock, metrics = Hand(), AgentMetrics()
    phases = RestartPhases(metrics, now_s=clock, wall_s=WALL)
    text = phases.announcing(3)
    clock.now_s += 5
    metrics.observe(RestartPhase.STOP, 1.0)
    assert phases.announcing(3) == text
    phases.accepted()
    assert phases.announcing(4) == "v1,stop=1000,announce=5000,at=123"


def test_a_supervisor_s_worker_is_timed() -> None:
    """A restart's announcement has its death and stop phases; the next one has the whole downtime of the worker."""
    clock, metrics = Hand(), AgentMetrics()
    phases = RestartPhases(metrics, now_s=clock, wall_s=WALL)
    phases.announcing(1)
    phases.accepted()
    phases.lifted()
    phases.worker_runs(0.004)
    assert RestartPhase.DOWN not in metrics.durations, "the first start ends no downtime"

    clock.now_s += 60.0
    phases.worker_down()
    clock.now_s += 0.5
    phases.worker_down()  # the death was recorded at the order to stop; this later call changes nothing
    phases.worker_gone()
    assert phases.announcing(2) == "v1,announce=0,barrier=0,lift=0,start=4,stop=500,death=500,at=123"
    clock.now_s += 0.02
    phases.accepted()
    clock.now_s += 0.7
    phases.lifted()
    clock.now_s += 0.003
    phases.worker_runs(0.003)
    phases.worker_down()
    phases.worker_gone()
    assert phases.announcing(3) == "v1,announce=20,barrier=700,start=3,down=1223,stop=0,death=0,at=123"


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    """With PHASES_ANNOTATION=off there is no text, and the metrics still have the durations."""
    metrics = AgentMetrics()
    phases = RestartPhases(metrics, now_s=Hand(), wall_s=WALL, annotate=False)
    assert phases.announcing(1) == ""
    assert RestartPhase.VIEW in metrics.durations


@pytest.mark.parametrize(
    "content", [b"", b"v1,view=1", b"\xff\xff", b"v1,view=x b 1", b"v1,view=1 b soon", b"x" * 5000, b"v1 b nan"]
)
def test_a_garbled_file_costs_its_numbers_only(tmp_path: Path, content: bytes) -> None:
    """The agent starts with any content of the file; a garbled file gives no durations."""
    path = tmp_path / "phases"
    path.write_bytes(content)
    phases = RestartPhases(AgentMetrics(), now_s=Hand(), wall_s=WALL, file=PhaseFile(str(path)))
    assert phases.announcing(1) == "v1,view=0,at=123"


def test_a_reboot_is_no_kubelet(tmp_path: Path) -> None:
    """After a reboot the clocks cannot be compared: the gap is left out, the durations are kept."""
    boot_id, path = tmp_path / "boot_id", str(tmp_path / "phases")
    boot_id.write_text("one\n")
    PhaseFile(path, str(boot_id)).keep({RestartPhase.BARRIER: 1.0}, "", 50.0)
    boot_id.write_text("two\n")
    phases = RestartPhases(AgentMetrics(), now_s=Hand(), wall_s=WALL, file=PhaseFile(path, str(boot_id)))
    assert phases.announcing(1) == "v1,barrier=1000,view=0,at=123"


def test_a_clock_that_went_back_measures_nothing(tmp_path: Path) -> None:
    """When the old process's end is later than the new one's start, no gap is measured."""
    path = str(tmp_path / "phases")
    PhaseFile(path).keep({}, "", 200.0)
    phases = RestartPhases(AgentMetrics(), now_s=Hand(100.0), wall_s=WALL, file=PhaseFile(path))
    assert phases.announcing(1) == "v1,view=0,at=123"


@pytest.mark.parametrize("path", ["/dev/full", "/nowhere/phases", "/proc/version"])
def test_a_disk_that_refuses_costs_its_numbers_only(path: str) -> None:
    """On a full disk, in a missing folder and on a read-only file system the agent goes on without the numbers."""
    phases = RestartPhases(AgentMetrics(), now_s=Hand(), wall_s=WALL, file=PhaseFile(path))
    phases.announcing(1)
    phases.accepted()
    phases.lifted()
    phases.leave()


def test_nothing_is_written_before_the_announcement_left(tmp_path: Path) -> None:
    """The file is written when the server has accepted the announcement, not when it is built."""
    path = tmp_path / "phases"
    phases = RestartPhases(AgentMetrics(), now_s=Hand(), wall_s=WALL, file=PhaseFile(str(path)))
    phases.announcing(1)
    assert not path.exists()
    phases.accepted()
    assert path.exists()


def test_the_process_s_start_is_the_system_s(tmp_path: Path) -> None:
    """The process's start is read from /proc, also when the command's name has brackets and blanks."""
    now_s = boot_s()
    stat = tmp_path / "stat"
    fields = ["S", *["1"] * 18, str(int((now_s - 0.5) * 100)), *["1"] * 5]
    stat.write_text(f"7 (a) b (c) {' '.join(fields)}")
    assert now_s - process_started_s(now_s, str(stat)) == pytest.approx(0.5, abs=0.011)
    for odd in ("", "7 (x) S 1", f"7 (x) {' '.join(fields).replace(fields[19], '5')}"):
        stat.write_text(odd)
        assert process_started_s(now_s, str(stat)) == now_s
    assert process_started_s(now_s, str(tmp_path / "none")) == now_s


@pytest.mark.asyncio
async def test_the_one_patch_carries_the_phases() -> None:
    """The announcement's one patch has the annotation, and a repeated patch has the same bytes."""
    rig = Rig()
    script = (until_patched(2), jobset(1, 0), jobset(1, 1))
    async with ScriptedServer(lists=[jobset(0)], watches=[script], answer=in_turn(refuses(503))) as server:
        assert await rig.run(server) == 88
    bodies = {patch.body for patch in server.requests("PATCH")}
    (annotations,) = (json.loads(body)["metadata"]["annotations"] for body in bodies)
    assert set(parse_phases(annotations[wire.PHASES])) == {RestartPhase.VIEW}
    assert set(rig.metrics.durations) == {
        RestartPhase.VIEW,
        RestartPhase.ANNOUNCE,
        RestartPhase.BARRIER,
        RestartPhase.LIFT,
    }


@pytest.mark.asyncio
async def test_the_annotation_is_off_when_told() -> None:
    """With phases_annotation=False the patch has only the protocol's two annotations."""
    rig = Rig()
    async with ScriptedServer(lists=[jobset(0)], watches=[(jobset(1, 0), jobset(1, 1))]) as server:
        await rig.run(server, phases_annotation=False)
    (annotations,) = server.annotations
    assert set(annotations) == {wire.EPOCH, wire.ATTEMPT}
