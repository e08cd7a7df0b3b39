"""
`inplace-agent wait`: block until the agent of this Pod has lifted the barrier, seen from inside the worker's container.

Why, when a startup probe holds the worker back already: kubelet may report a replaced sidecar as started before its
probe ran (kubernetes/kubernetes#141155), and a worker that starts then joins a group that is not there yet. Plain
blocking sockets and few imports, because it stands in front of every start.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping

from agent.arguments import WaitOptions, find_program
from agent.config import HEALTH_PATH, METRICS_PATH, OUR_PATH, OUR_PORT
from agent.environment import Environment
from agent.exit_code import NOT_EXECUTABLE, NOT_FOUND, ExitCode
from common.typed import Any, Final

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
    for problem in read.problems:
        say(f"{problem}; exit {ExitCode.CONFIG.value}")
    if read.problems:
        return ExitCode.CONFIG
    where = f"http://{f'[{address}]' if ':' in address else address}:{port}{path}"
    state, seen = wait_until_lifted(address, port, path, options.timeout_s, where)
    if state is None:
        say(f"expected the barrier at {where} to lift within {options.timeout_s:g} s, saw {seen}; exit {NOT_LIFTED}")
        return NOT_LIFTED
    return execute(options.command, env, state) if options.command else 0


def wait_until_lifted(
    address: str, port: int, path: str, timeout_s: float | None, where: str
) -> tuple[dict[str, Any] | None, str]:
    """Ask until the barrier is lifted; return the agent's answer (None after `timeout_s`) and what was seen last."""
    began_s = said_s = time.monotonic()
    while True:
        left_s = PATIENCE_S if timeout_s is None else max(0.0, began_s + timeout_s - time.monotonic())
        state, seen = ask(address, port, path, hold_s=int(min(left_s, PATIENCE_S)))
        if state is not None and state.get("lifted") is True:
            return state, seen
        now_s = time.monotonic()
        if timeout_s is not None and now_s - began_s >= timeout_s:
            return None, seen
        if now_s - said_s >= PATIENCE_S:
            said_s = now_s
            say(f"waiting for {where} since {now_s - began_s:.0f} s: {seen}")
        time.sleep(POLL_S)


def ask(address: str, port: int, path: str, *, hold_s: int) -> tuple[dict[str, Any] | None, str]:
    """Ask once; return the agent's JSON, None when it was no agent that answered, and what was seen in words.

    The agent may hold its answer for `hold_s`, so that it comes with the lift.
    """
    fields = ("host: barrier", "connection: close", f"prefer: wait={hold_s}")
    try:
        with socket.create_connection((address, port), timeout=ANSWER_S_MAX + hold_s) as connection:
            connection.sendall("\r\n".join((f"GET {path} HTTP/1.1", *fields, "\r\n")).encode("ascii"))
            answer = b""
            while (piece := connection.recv(4096)) and len(answer) < ANSWER_BYTES_MAX:
                answer += piece
    except OSError as error:
        return None, f"no agent there yet ({error.strerror or error})"
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        state = json.loads(body)
        if isinstance(state, dict) and "lifted" in state:
            return state, f"the barrier is up: {body.decode()}"
    except ValueError:
        pass
    return None, f"an answer that is not the agent's: {head[:60]!r}"


def execute(command: tuple[str, ...], env: Mapping[str, str], state: dict[str, Any]) -> int:
    """Become the command, with the epoch in its environment; return only when that cannot be."""
    epoch = state.get("epoch")
    own = {"INPLACE_EPOCH": str(epoch or ""), "INPLACE_RESTART_COUNT": str((epoch or 1) - 1)}
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # CPython ignores these, and a command would inherit that
        signal.signal(number, signal.SIG_DFL)
    path = find_program(command[0], env)
    if path is None:
        say(f"expected a command that exists, saw {command[0]!r}; exit {NOT_FOUND}")
        return NOT_FOUND
    try:
        os.execve(path, command, {**env, **own})  # noqa: S606 - the command comes from the manifest
    except OSError as error:
        say(f"cannot execute {path!r}: {error.strerror}; exit {NOT_EXECUTABLE}")
        return NOT_EXECUTABLE


def say(text: str) -> None:
    """Print one line for whoever reads the container's log."""
    print(f"inplace-agent wait: {text}", file=sys.stderr, flush=True)
