"""
Run one container instance as a local process tree.

Guarantees: when `wait()` returns, no process of the instance is left, also none that left its process group or was
orphaned: each carries the instance's marker in its environment. A PID namespace gives a container the same guarantee.
Needs Linux: pidfd and /proc.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from inplace.common.kube.clock import Clock
from inplace.simulator.cluster import reaper
from inplace.simulator.cluster.container_log import ContainerLog
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.runtime import StartError

MARKER = "INPLACE_CONTAINER"
_CHUNK_BYTES = 65536
_LINE_BYTES_MAX = 4096  # a longer line is shown to observers in pieces
_SWEEP_S = 0.005
_SWEEPS_MAX = 400  # 2 s; a process that survives SIGKILL longer hangs in the kernel


class LocalProcess:
    """A running container instance.

    Args:
        command: argv; looked up in env's PATH.
        marker: unique text for this instance.
        pod_ip: the address at which its ports are probed.
        log: takes its whole output.
        on_line: called with every line.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        marker: str,
        pod_ip: str,
        log: ContainerLog,
        on_line: Callable[[bytes], None],
        clock: Clock,
    ) -> None:
        self._marker = f"{MARKER}={marker}"
        self._env = dict(env) | {MARKER: marker}
        self._cwd = cwd
        self._pod_ip = pod_ip
        self._log = log
        self._on_line = on_line
        self._clock = clock
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._pipe, write_end = os.pipe()
        try:
            self._popen = _spawn(command, self._env, cwd, write_end)
        except StartError:
            os.close(self._pipe)
            log.close()
            raise
        finally:
            os.close(write_end)
        os.set_blocking(self._pipe, False)
        self._pidfd = os.pidfd_open(self._popen.pid)
        self._loop.add_reader(self._pipe, self._read)
        self._loop.add_reader(self._pidfd, self._reap)

    @property
    def ended(self) -> bool:
        """Return whether the main process is gone."""
        return self._ended.done()

    async def wait(self) -> int:
        """Return the exit code once every process of the instance is gone."""
        code = await asyncio.shield(self._ended)
        for _ in range(_SWEEPS_MAX):
            left = reaper.marked(self._marker)
            if not left:
                break
            reaper.kill(left)
            await self._clock.sleep(_SWEEP_S)
        return code

    async def stop(self, grace_s: float) -> None:
        """Send SIGTERM to the main process, as a runtime does, and SIGKILL to all of them after `grace_s`."""
        if grace_s > 0:
            self.signal(signal.SIGTERM)
        try:
            async with self._clock.timeout(max(grace_s, 0.0)):
                await self.wait()
        except TimeoutError:
            self.kill()
            await self.wait()

    def signal(self, number: int) -> None:
        """Send a signal to the main process."""
        if not self._ended.done():
            signal.pidfd_send_signal(self._pidfd, number)

    def signal_child(self, number: int) -> None:
        """Send a signal to the main process's oldest child that leads a session: a guard's worker.

        Raises:
            LookupError: there is no such child.
        """
        main = self._popen.pid
        text = "" if self._ended.done() else Path(f"/proc/{main}/task/{main}/children").read_text()
        leaders = [pid for pid in map(int, text.split()) if os.getsid(pid) == pid]
        if not leaders:
            raise LookupError(f"expected process {main} to have a worker, saw the children {text or 'none'}")
        os.kill(leaders[0], number)

    def kill(self) -> None:
        """Send SIGKILL to the process group; `wait` kills processes that left the group."""
        if not self._ended.done():
            os.killpg(self._popen.pid, signal.SIGKILL)

    def kill_now(self) -> None:
        """Kill and reap without an event loop; for the end of the program."""
        if not self._ended.done():
            self.kill()
            self._reap()
        reaper.kill(reaper.marked(self._marker))

    async def probe(self, probe: Probe) -> bool:
        """Probe once."""
        if probe.path is not None:
            return await answers(self._pod_ip, probe.port, probe.path, timeout_s=probe.timeout_s, clock=self._clock)
        if probe.command is None:
            return await accepts(self._pod_ip, probe.port, timeout_s=probe.timeout_s, clock=self._clock)
        return await self._run_probe(list(probe.command), probe.timeout_s)

    async def _run_probe(self, command: list[str], timeout_s: float) -> bool:
        """Run an exec probe with the container's marker, environment and folder."""
        try:
            popen = _spawn(command, self._env, self._cwd, subprocess.DEVNULL)
        except StartError:
            return False
        pidfd = os.pidfd_open(popen.pid)
        done: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(pidfd, _resolve, done)
        try:
            async with self._clock.timeout(timeout_s):
                await done
        except TimeoutError:
            return False
        finally:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
            if popen.poll() is None:
                os.killpg(popen.pid, signal.SIGKILL)
            popen.wait()
        return popen.returncode == 0

    def _read(self) -> bool:
        """Move output to the log, and call `on_line` with whole lines; say whether there was any."""
        try:
            chunk = os.read(self._pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._pipe)
            return False
        self._log.write(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[-_LINE_BYTES_MAX:]
        for line in lines:
            self._on_line(line)
        return True

    def _reap(self) -> None:
        """Record the main process's exit code and kill its group, as the end of PID 1 does in a container."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # BEFORE the reaping, which frees the number
        status = self._popen.wait()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._pidfd)
            self._drain()
        os.close(self._pidfd)
        os.close(self._pipe)
        self._log.close()
        if not self._ended.done() and not self._loop.is_closed():
            self._ended.set_result(status if status >= 0 else 128 - status)

    def _drain(self) -> None:
        """Read the ended process's last output from the pipe."""
        while self._read():
            pass
        if self._rest:
            self._on_line(self._rest)
        self._loop.remove_reader(self._pipe)


def _resolve(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _spawn(command: Sequence[str], env: Mapping[str, str], cwd: Path, output: int) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own.

    Raises:
        StartError: the command cannot be executed.
    """
    if not command:
        raise StartError("expected a command: a local process has no image that could supply one")
    try:
        return subprocess.Popen(
            list(command),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output == subprocess.DEVNULL else output,
            start_new_session=True,
        )
    except OSError as error:
        raise StartError(f"cannot execute {command[0]!r}: {error.strerror}") from error


_STATUS_LINE_BYTES_MAX = 1024


async def answers(host: str, port: int, path: str, *, timeout_s: float, clock: Clock) -> bool:
    """Return whether a GET succeeds, as for a kubelet: with any status from 200 to 399, within the timeout."""
    try:
        async with clock.timeout(timeout_s):
            status = await _status(host, port, path)
    except (OSError, TimeoutError, ValueError, asyncio.LimitOverrunError):
        return False
    return 200 <= status < 400


async def accepts(host: str, port: int, *, timeout_s: float, clock: Clock) -> bool:
    """Return whether a connection succeeds."""
    try:
        async with clock.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _status(host: str, port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection(host, port, limit=_STATUS_LINE_BYTES_MAX)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: kube-probe/1.37\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n".encode()
        )
        line = await reader.readline()
        version, code, *_ = line.split(None, 2) if line.count(b" ") else (b"", b"")
        if not version.startswith(b"HTTP/1."):
            raise ValueError(f"expected an HTTP status line, saw {line[:40]!r}")
        return int(code)
    finally:
        writer.close()
