"""
`inplace-agent wait`: wait in the worker's container until the agent of this Pod has lifted the barrier.

The startup probe holds the worker back already, but kubelet may report a replaced sidecar as started before its probe
ran (kubernetes/kubernetes#141155). A worker that starts then joins an incomplete group.

It runs before every start of a worker, so it loads very little: the C modules below `socket` and `signal`, because
those modules make enums of the system's constants, and JSON only to explain an answer.
"""

from __future__ import annotations

import os
import sys
import time
from _signal import SIG_DFL, SIGPIPE, SIGXFSZ, signal  # type: ignore[import-not-found]
from _socket import AF_INET, AF_INET6, SOCK_STREAM, socket

from inplace.agent.barrier.address import EPOCH_HEADER, HEALTH_PATH, METRICS_PATH, OUR_PATH, OUR_PORT
from inplace.agent.report.log_line import log_line
from inplace.agent.start.arguments import WaitOptions
from inplace.agent.start.environment import Environment
from inplace.agent.worker.command import NOT_EXECUTABLE, NOT_FOUND, epoch_variables, find_program
from inplace.common.bare.typed import Any, Final, Mapping

POLL_S: Final = 0.05  # on loopback, for one agent that is not there yet, or does not hold its answer
ANSWER_S_MAX: Final = 1.0  # of one question, beyond the time for which the agent may hold its answer
ANSWER_BYTES_MAX: Final = 64 * 1024
PATIENCE_S: Final = 10.0  # says why it waits this often
NOT_LIFTED: Final = 1


def run_wait(options: WaitOptions, env: Mapping[str, str]) -> int:
    """Wait, then execute the command if there is one; return the exit code."""
    read = Environment(env)
    address = read.get("BARRIER_ADDRESS") or "127.0.0.1"
    port = read.either("BARRIER_PORT", "STARTUP_PROBE_PORT", lambda name: read.integer(name, 1, 65535), OUR_PORT)
    reserved = (METRICS_PATH, HEALTH_PATH)
    path = read.either("BARRIER_PATH", "STARTUP_PROBE_PATH", lambda name: read.path(name, reserved), OUR_PATH)
    if read.problems:
        return refused(read.problems)
    where = f"http://{f'[{address}]' if ':' in address else address}:{port}{path}"
    epoch, seen = wait_until_lifted(address, port, path, options.timeout_s, where)
    if epoch is None:
        message = f"expected the barrier at {where} to lift within {options.timeout_s:g} s, saw {seen}"
        say("error", "barrier_not_lifted", message=message, then=f"exit {NOT_LIFTED}")
        return NOT_LIFTED
    return execute(options.command, env, epoch) if options.command else 0


def refused(problems: list[str]) -> int:
    """Say what is wrong with the settings; return the exit code."""
    from inplace.agent.start.exit_code import ExitCode

    for problem in problems:
        say("error", "setting_refused", message=problem, then=f"exit {ExitCode.CONFIG.value}")
    return ExitCode.CONFIG


def wait_until_lifted(
    address: str, port: int, path: str, timeout_s: float | None, where: str
) -> tuple[int | None, str]:
    """Ask until the barrier is lifted; return its epoch (None after `timeout_s`) and the last answer."""
    began_s = said_s = time.monotonic()
    while True:
        left_s = PATIENCE_S if timeout_s is None else max(0.0, began_s + timeout_s - time.monotonic())
        epoch, seen = ask(address, port, path, hold_s=int(min(left_s, PATIENCE_S)))
        if epoch is not None:
            return epoch, seen
        now_s = time.monotonic()
        if timeout_s is not None and now_s - began_s >= timeout_s:
            return None, seen
        if now_s - said_s >= PATIENCE_S:
            said_s = now_s
            say("info", "agent_awaited", where=where, since_s=round(now_s - began_s), message=seen)
        time.sleep(POLL_S)


def ask(address: str, port: int, path: str, *, hold_s: int) -> tuple[int | None, str]:
    """Ask once; return the epoch of a lifted barrier (0 when in-place restart is off, else None) and what was seen.

    The agent may hold its answer for `hold_s`, so that it comes with the lift.
    """
    fields = ("host: barrier", "connection: close", f"prefer: wait={hold_s}")
    connection = socket(AF_INET6 if ":" in address else AF_INET, SOCK_STREAM)
    try:
        connection.settimeout(ANSWER_S_MAX + hold_s)
        connection.connect((address, port))
        connection.sendall("\r\n".join((f"GET {path} HTTP/1.1", *fields, "\r\n")).encode("ascii"))
        answer = b""
        while (piece := connection.recv(4096)) and len(answer) < ANSWER_BYTES_MAX:
            answer += piece
    except OSError as error:
        return None, f"no agent there yet ({error.strerror or error})"
    finally:
        connection.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    epoch = lifted_epoch(head)
    return (epoch, "the barrier is lifted") if epoch is not None else understand(head, body)


def lifted_epoch(head: bytes) -> int | None:
    """Return the epoch in the head of a lifted barrier's answer, None in any other."""
    status, *fields = head.split(b"\r\n")
    if status.startswith(b"HTTP/1.1 200 "):
        for field in fields:
            name, _, value = field.partition(b":")
            if name.lower() == EPOCH_HEADER.encode("ascii") and value.strip().isdigit():
                return int(value)
    return None


def understand(head: bytes, body: bytes) -> tuple[int | None, str]:
    """Read an answer that does not lift by its head: an agent's that holds back or knows no such header, or none."""
    import json

    try:
        state = json.loads(body)
        if isinstance(state, dict) and "lifted" in state:
            epoch = state.get("epoch") or 0 if state["lifted"] is True else None
            return epoch, f"the barrier is {'up' if epoch is None else 'lifted'}: {body.decode()}"
    except ValueError:
        pass
    return None, f"an answer that is not the agent's: {head[:60]!r}"


def execute(command: tuple[str, ...], env: Mapping[str, str], epoch: int) -> int:
    """Become the command, with the epoch in its environment; return only when that cannot be."""
    for number in (SIGPIPE, SIGXFSZ):  # CPython ignores these, and a command would inherit that
        signal(number, SIG_DFL)
    path = find_program(command[0], env)
    try:
        if path is not None:
            os.execve(path, command, {**env, **epoch_variables(epoch)})  # noqa: S606 - the command comes from the manifest
        problem = f"expected a command that exists, saw {command[0]!r}"
    except OSError as error:
        problem = f"cannot execute {path!r}: {error.strerror}"
    code = NOT_FOUND if path is None else NOT_EXECUTABLE
    say("error", "worker_not_started", message=problem, then=f"exit {code}")
    return code


def say(level: str, event: str, **fields: Any) -> None:
    """Print one line to the container's log."""
    print(log_line(time.time(), level, event, fields), file=sys.stderr, flush=True)
