"""Files in the folder that a worker can write to: nothing is followed, waited for, or taken from somebody else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from inplace.agent.report.phases import PhaseFile
from inplace.agent.settings.epoch_file import EpochFile
from inplace.agent.shared_file import read_shared, write_shared
from inplace.common.protocol.link import Failed, Hello, Lifted, Started, line_of
from tests.agent.link.test_agent_end import connected
from tests.agent.test_guard import agent_at

SECRET = "2\n"  # what a followed link would show as an epoch


def plant(kind: str, path: Path) -> Path:
    """Put something in a file's place; return a file of the agent's that a link may lead to."""
    victim = path.parent / "private"
    victim.write_text(SECRET)
    victim.chmod(0o600)
    match kind:
        case "link":
            path.symlink_to(victim)
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "endless":
            path.write_text("1" * 10_000)
        case "a stranger's":
            path.write_text("2")
            os.chown(path, 12345, 12345)
    return victim


KINDS = ["link", "pipe", "device", "folder", "endless"]
if os.geteuid() == 0:
    KINDS.append("a stranger's")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_an_own_file_is_read(tmp_path: Path, kind: str) -> None:
    """At once, and with words; each of the agent's files."""
    for name in ("epoch", "epoch.ran", "epoch.phases"):
        folder = tmp_path / name
        folder.mkdir()
        plant(kind, folder / name)
    assert EpochFile(str(tmp_path / "epoch" / "epoch")).recall()[0] is None
    assert "cannot read" in str(EpochFile(str(tmp_path / "epoch" / "epoch")).recall()[1])
    assert EpochFile(str(tmp_path / "epoch.ran" / "epoch")).recall_run()[0] is None
    assert PhaseFile(str(tmp_path / "epoch.phases" / "epoch.phases")).recall() == ({}, "", None, None)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "folder"])
@pytest.mark.parametrize("suffix", ["", ".new"])
def test_what_is_written_replaces_it(tmp_path: Path, kind: str, suffix: str) -> None:
    """A link's target keeps its content and its mode; then the file can be read."""
    path = tmp_path / "epoch"
    victim = plant(kind, Path(f"{path}{suffix}"))
    write_shared(str(path), b"3")
    assert (read_shared(str(path), 64), stat.S_IMODE(path.stat().st_mode)) == (b"3", 0o644)
    assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == (SECRET, 0o600)


@pytest.mark.asyncio
async def test_the_sockets_mode_is_set_without_its_name(tmp_path: Path) -> None:
    """A link in place of the new socket does not open its target to everybody."""
    victim = plant("link", tmp_path / "link.new")
    async with agent_at(tmp_path / "link"):
        pass
    assert stat.S_IMODE((tmp_path / "link").stat().st_mode) == 0o666
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


@pytest.mark.asyncio
async def test_a_death_in_another_epoch_is_passed_on_to_nobody(tmp_path: Path) -> None:
    """Whoever connects tells of the epoch that was lifted, or is refused."""
    async with agent_at(tmp_path / "link") as agent:
        agent.lift(3)
        for message in (Failed(2, 1), Failed(2_000_000_000, 1), Started(4)):
            async with connected(tmp_path) as (reader, writer):
                writer.write(line_of(Hello()) + line_of(message))
                words = (Hello(), Lifted(3))
                assert (await reader.read()).split(b"\n")[:-1] == [line_of(one).strip() for one in words]
    assert (agent.deaths, len(agent.log.of("link_refused"))) == ([], 3)
