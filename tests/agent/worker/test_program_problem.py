"""A command that cannot be executed: its run ends at once, each try counts, and the reason is told by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from inplace.agent.worker.program_problem import program_problem
from inplace.common.wire.last_line import told_line_of
from inplace.common.wire.names import LAST_LINE
from inplace.common.wire.run_tail import tail_file
from tests.agent.test_guard import agent_at, guarded
from tests.agent.test_process_depth import pod

ELF = Path("/bin/sh").resolve().read_bytes()[:4096]
FOREIGN = 183 if os.uname().machine != "aarch64" else 62


def script(text: bytes, mode: int = 0o755) -> Callable[[Path], None]:
    """Return what makes a file."""

    def make(path: Path) -> None:
        path.write_bytes(text)
        path.chmod(mode)

    return make


CASES = {
    "a carriage return": (script(b"#!/bin/sh\r\nexec true\r\n"), "its first line ends with a carriage return"),
    "no first line": (script(b"exec true\n"), "its first line does not begin with #!"),
    "no x bit": (script(b"#!/bin/sh\n", 0o644), "it is not executable (mode 0644); chmod +x it"),
    "no interpreter": (
        script(b"#!/usr/bin/python9 -u\n"),
        "its first line names '/usr/bin/python9', which does not exist",
    ),
    "an interpreter that is none": (script(b"#!/etc/passwd\n"), "names '/etc/passwd', which is not executable"),
    "an empty first line": (script(b"#! \n"), "its first line names no interpreter"),
    "nothing": (script(b""), "it is empty"),
    "a byte order mark": (script(b"\xef\xbb\xbf#!/bin/sh\n"), "it begins with a byte order mark"),
    "a folder": (lambda path: path.mkdir(), "it is a folder"),
    "no file": (lambda _: None, "there is no such file"),
    "another machine": (script(ELF[:18] + FOREIGN.to_bytes(2, "little") + ELF[20:]), "it is a program for "),
    "another C library": (script(ELF.replace(b"/lib64/ld-linux", b"/lib64/ld-none-")), "it needs '/lib64/ld-none-"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reason_names_the_file_and_what_is_wrong(tmp_path: Path, case: str) -> None:
    """In one line, whatever the kernel's word is."""
    make, words = CASES[case]
    path = tmp_path / "train"
    make(path)
    with pytest.raises(OSError) as failed:  # noqa: PT011 - the kernel's own
        os.posix_spawn(str(path), [str(path)], {})
    said = program_problem(str(path), {"PATH": "/usr/bin"}, failed.value)
    assert said.startswith(f"cannot execute {str(path)!r}: ")
    assert words in said
    assert "\n" not in said


def test_a_program_that_path_does_not_have() -> None:
    """And one whose name came with a carriage return."""
    error = FileNotFoundError(2, "No such file or directory")
    assert program_problem("python9", {"PATH": "/bin"}, error).endswith("PATH (/bin) has no such program")
    assert "its name ends with a carriage return" in program_problem("train\r", {"PATH": "/bin"}, error)


def test_env_is_asked_for_a_program_that_is_not_there(tmp_path: Path) -> None:
    """`#!/usr/bin/env python9` can be executed; a folder without the right to search it cannot."""
    path = tmp_path / "train"
    script(b"#!/usr/bin/env -S A=1 python9 -u\n")(path)
    said = program_problem(str(path), {"PATH": "/usr/bin"}, PermissionError(13, "Permission denied"))
    assert "asks for 'python9', which PATH does not have" in said


@pytest.mark.asyncio
@pytest.mark.parametrize("case", ["a carriage return", "no first line", "no x bit", "no file"])
async def test_each_try_is_an_epoch_of_the_group(tmp_path: Path, case: str) -> None:
    """Beside a guard that stays: no container is started again; the failure has the reason."""
    make, words = CASES[case]
    path = tmp_path / "train"
    make(path)
    async with pod(tmp_path, [str(path)]) as group:
        for epoch in (1, 2, 3):
            announced = await group.annotations()
            assert announced["jobset.sigs.k8s.io/epoch"] == str(epoch)
            told = told_line_of(announced.get(LAST_LINE, ""), epoch - 1)
            assert (told is not None and words in told.line) is (epoch > 1)
            assert told is None or told.line.startswith("cannot execute ")
            group.views.show(epoch, epoch - 1)
        assert (group.agent.returncode, group.guard.child.returncode) == (None, None)


@pytest.mark.asyncio
async def test_a_guard_of_depth_containers_tells_it(tmp_path: Path) -> None:
    """The lift comes first, then the death of that epoch; the container ends with a shell's code."""
    path = tmp_path / "train"
    script(b"#!/bin/sh\r\n")(path)
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, [str(path)]) as group:
        agent.lift(3)
        code, said = await group.finished()
        assert agent.deaths == [(3, 127)]
    assert code == 127
    assert "its first line ends with a carriage return" in said
    assert b"its first line ends with a carriage return" in (tmp_path / "progress" / tail_file(0)).read_bytes()
