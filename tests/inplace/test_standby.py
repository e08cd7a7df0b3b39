"""`inplace.ready` in a script: what it returns, and what it does when nobody is at the other end."""

from __future__ import annotations

import json
import os
import socket

import pytest

import inplace
from inplace import standby
from inplace.agent.worker import standby as agents
from tests.inplace.test_rank_file import run

RANKS = [
    ({}, (0, None, "")),
    ({"INPLACE_EPOCH": "", "RANK": "3", "MASTER_ADDR": "a"}, (0, 3, "a")),
    ({"INPLACE_EPOCH": "7", "JAX_PROCESS_ID": "2", "COORDINATOR": "b", "MASTER_ADDR": "a"}, (7, 2, "b")),
    ({"JOB_COMPLETION_INDEX": "5"}, (0, 5, "")),
    ({"JOB_COMPLETION_INDEX": "5", "JOB_INDEX": "0"}, (0, 5, "")),
    ({"JOB_COMPLETION_INDEX": "1", "JOB_INDEX": "2", "PODS_PER_JOB": "4"}, (0, 9, "")),
    ({"JOB_COMPLETION_INDEX": "1", "JOB_INDEX": "2"}, (0, None, "")),
    ({"INPLACE_EPOCH": "x", "RANK": "-1", "JAX_PROCESS_ID": "99999999999"}, (0, None, "")),
]


def test_both_sides_have_the_same_words() -> None:
    """The module stands alone, so the variable's name is written twice; a release fits into what is read."""
    assert standby.VARIABLE == agents.VARIABLE
    assert len(standby.STEPPED) + 11 <= agents.MESSAGE_BYTES_MAX
    assert inplace.ready is standby.ready


@pytest.mark.parametrize(("env", "expected"), RANKS)
def test_ready_says_what_the_environment_says(
    env: dict[str, str], expected: tuple[int, int | None, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of an agent it returns at once; what is no number is unknown."""
    for name in (*(name for known, _ in RANKS for name in known), standby.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name, text in env.items():
        monkeypatch.setenv(name, text)
    start = inplace.ready()
    assert (start.epoch, start.rank, start.coordinator) == expected


def test_ready_alone_loads_nothing_but_this_package() -> None:
    """Where no agent wants to know, the line costs an import of nothing heavy."""
    code = "import sys, json, inplace; before = set(sys.modules); inplace.ready(); "
    done = run(code + "print(json.dumps(sorted(set(sys.modules) - before)))")
    assert done.stderr == ""
    loaded = {name.removeprefix("inplace.") for name in json.loads(done.stdout)}
    assert loaded <= {"__future__", "time", "last_words", "line_file", "rank_file", "rank_numbers", "resume", "standby"}


@pytest.mark.parametrize("value", ["tell:9999:1", "tell:x:y", "tell", "tell:0:0", "later:3:4", ":::"])
def test_a_worker_whose_descriptor_is_not_there_trains(value: str) -> None:
    """A program below the worker, or a script that closed it: nothing is written to another file, and nobody waits."""
    assert run("import inplace; inplace.ready(); inplace.progress(1); print(1)", INPLACE_STANDBY=value).stdout == "1\n"


def test_a_descriptor_that_is_another_socket_now_is_left_alone() -> None:
    """A number is used again after a close: the inode says that it is not the agent's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        value = f"tell:{theirs.fileno()}:{os.fstat(theirs.fileno()).st_ino + 1}"
        assert (
            run("import inplace; print(inplace.ready().epoch)", theirs.fileno(), INPLACE_STANDBY=value).stdout == "0\n"
        )
        ours.setblocking(False)
        theirs.close()
        assert ours.recv(64) == b""


@pytest.mark.parametrize(
    ("value", "code"), [("wait:9999:1", standby.NOT_WAITING), ("wait", standby.NOT_WAITING), ("{}", standby.NOT_NEEDED)]
)
def test_a_standby_that_cannot_wait_ends(value: str, code: int) -> None:
    """Its descriptor is closed, or the agent is gone: it never trains, and its exit handlers cannot hold it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        ours.close()
        value = value.format(f"wait:{theirs.fileno()}:{os.fstat(theirs.fileno()).st_ino}")
        done = run("import inplace; inplace.ready(); print('trains')", theirs.fileno(), INPLACE_STANDBY=value)
    assert (done.returncode, done.stdout) == (code, "")
    assert ("inplace: a standby ends: expected" in done.stderr) == (code == standby.NOT_WAITING)


def test_a_standby_whose_wait_is_interrupted_ends() -> None:
    """A signal's handler raises, and the script catches that: it does not go on without a release."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = """
import inplace, signal
def late(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    inplace.ready()
except BaseException:
    pass
print("trains")
"""
    with ours, theirs:
        value = f"wait:{theirs.fileno()}:{os.fstat(theirs.fileno()).st_ino}"
        done = run(code, theirs.fileno(), INPLACE_STANDBY=value)
    assert (done.returncode, done.stdout) == (standby.NOT_WAITING, "")
    assert "interrupted by KeyboardInterrupt" in done.stderr
