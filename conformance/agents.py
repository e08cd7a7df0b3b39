"""
What an agent must do: the suite plays the controller, kubelet's environment and the probe.

An agent is a process of this machine. It finds a service account where a Pod has one, which is a folder of a mount
namespace of its own. Source: kubernetes-sigs/jobset keps/467-in-place-restart and cmd/in-place-restart-agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conformance.group import ATTEMPT, DISABLED, POLL_S, QUIET_S, CaseFailedError, Group, pod_spec
from inplace.common.kube.resources import PODS, SERVICE_ACCOUNTS

NOBODYS: Final = "conformance.example/suite"  # spec.managedBy: no controller acts
RESTART_CODE: Final = 117  # asked for, so that no other end looks like it
PATH: Final = "/barrier-is-down"
TOKEN_S: Final = 3600
OWN: Final = {"conformance.example/mine": "stays"}  # an annotation of somebody else
# $0 has the files; /run is covered, because /var/run leads there on most machines. Only this process sees it.
MOUNTED: Final = (
    "mount -t tmpfs tmpfs /run && D=/var/run/secrets/kubernetes.io/serviceaccount && mkdir -p $D && cp $0/* $D/ && "
    'exec "$@"'
)


@dataclass(frozen=True, slots=True)
class Agents:
    """How an agent is started.

    Args:
        command: its words.
        host, port: of the API server.
        ca_pem: its authority's certificate.
    """

    command: tuple[str, ...]
    host: str
    port: int
    ca_pem: str

    @asynccontextmanager
    async def running(self, group: Group, pod: str) -> AsyncIterator[Agent]:
        """Run an agent for a Pod; end it with the block."""
        port = _free_port()
        with tempfile.TemporaryDirectory(prefix="kep467-") as folder:
            await self._write_account(group, Path(folder))
            process = await asyncio.create_subprocess_exec(
                *("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--"),
                *("/bin/sh", "-c", MOUNTED, folder, *self.command),
                env=self._environment(group, pod, port),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                yield Agent(process, port, group, pod)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def _write_account(self, group: Group, folder: Path) -> None:
        body = {"spec": {"expirationSeconds": TOKEN_S}}
        path = SERVICE_ACCOUNTS.path(group.namespace, "agent", subresource="token")
        answer = json.loads((await group.client.raw("POST", path, body=body)).body)
        (folder / "token").write_text(answer["status"]["token"])
        (folder / "namespace").write_text(group.namespace)
        (folder / "ca.crt").write_text(self.ca_pem)

    def _environment(self, group: Group, pod: str, port: int) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "KUBERNETES_SERVICE_HOST": self.host,
            "KUBERNETES_SERVICE_PORT": str(self.port),
            "NAMESPACE": group.namespace,
            "POD_NAME": pod,
            "JOBSET_NAME": group.name,
            "STARTUP_PROBE_PATH": PATH,
            "STARTUP_PROBE_PORT": str(port),
            "IN_PLACE_RESTART_EXIT_CODE": str(RESTART_CODE),
        }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent that runs."""

    process: asyncio.subprocess.Process
    port: int
    group: Group
    pod: str

    async def announces(self, attempt: int) -> None:
        """Wait until its Pod shows this attempt."""

        async def shown() -> bool:
            return (await self.annotations()).get(ATTEMPT) == str(attempt)

        await self.group.soon(shown, f"the annotation {ATTEMPT}: {attempt}", self._seen)

    async def annotations(self) -> dict[str, str]:
        """Return those of its Pod."""
        pod = await self.group.client.get(PODS, self.group.namespace, self.pod)
        return dict(pod["metadata"].get("annotations") or {})

    async def lifts(self) -> None:
        """Wait until the barrier answers 200."""
        await self.group.soon(self.is_lifted, "a barrier that answers 200", self._seen)

    async def begins(self) -> None:
        """Take it, of a new JobSet, through its first barrier."""
        await self.announces(0)
        await self.group.write_status(current=0)
        await self.lifts()

    async def stays_closed(self) -> None:
        """Look for QUIET_S that the barrier does not answer 200."""
        until_s = time.monotonic() + QUIET_S
        while time.monotonic() < until_s:
            if await self.is_lifted():
                raise CaseFailedError("expected a closed barrier, saw 200")
            await asyncio.sleep(POLL_S)

    async def is_lifted(self) -> bool:
        """Ask the barrier once, as kubelet's probe does."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        try:
            writer.write(f"GET {PATH} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n".encode())
            return (await reader.readline()).split(b" ")[1:2] == [b"200"]
        except OSError:
            return False
        finally:
            writer.close()

    async def ends(self, code: int) -> None:
        """Wait until the process ends with a code."""
        try:
            async with asyncio.timeout(self.group.patience_s):
                found = await self.process.wait()
        except TimeoutError:
            raise CaseFailedError(
                f"expected exit code {code} within {self.group.patience_s:g} s, saw a process that runs"
            ) from None
        if found != code:
            raise CaseFailedError(f"expected exit code {code}, saw {found}")

    async def _seen(self) -> str:
        code = self.process.returncode
        return f"annotations {await self.annotations()}, " + ("it runs" if code is None else f"exit code {code}")


async def _pod(group: Group, **how: object) -> str:
    """Create the JobSet, which nobody manages, and one Pod; return its name."""
    await group.create(managed_by=NOBODYS, **how)  # type: ignore[arg-type]
    name = f"{group.name}-w-0-0"
    await group.client.create(
        PODS, group.namespace, {"metadata": {"name": name, "annotations": OWN}, "spec": pod_spec()}
    )
    return name


async def the_first_attempt_is_0(agents: Agents, group: Group) -> None:
    """A Pod of a JobSet without an attempt announces 0, and its barrier is closed."""
    async with agents.running(group, await _pod(group)) as agent:
        await agent.announces(0)
        await agent.stays_closed()


async def the_barrier_lifts_at_its_attempt(agents: Agents, group: Group) -> None:
    """It answers 200 once its attempt is current."""
    async with agents.running(group, await _pod(group)) as agent:
        await agent.begins()


async def a_previous_attempt_ends_it(agents: Agents, group: Group) -> None:
    """It exits with the code it was given once its attempt is a previous one, also behind its barrier."""
    async with agents.running(group, await _pod(group)) as agent:
        await agent.begins()
        await group.write_status(current=0, previous=0)
        await agent.ends(RESTART_CODE)


async def it_ends_before_its_barrier_lifts(agents: Agents, group: Group) -> None:
    """An attempt that is current and previous at the same look is a previous one: the barrier does not lift."""
    async with agents.running(group, await _pod(group)) as agent:
        await agent.announces(0)
        await group.write_status(current=0, previous=0)
        await agent.ends(RESTART_CODE)


async def it_goes_on_after_the_current_attempt(agents: Agents, group: Group) -> None:
    """A process that starts while an attempt is current announces the next one."""
    pod = await _pod(group)
    await group.write_status(current=4, previous=3)
    async with agents.running(group, pod) as agent:
        await agent.announces(5)
        await agent.stays_closed()
        await group.write_status(current=5, previous=4)
        await agent.lifts()


async def a_second_process_announces_the_next_attempt(agents: Agents, group: Group) -> None:
    """What kubelet starts after the exit announces one more than the first process."""
    pod = await _pod(group)
    async with agents.running(group, pod) as agent:
        await agent.begins()
        await group.write_status(current=0, previous=0)
        await agent.ends(RESTART_CODE)
    async with agents.running(group, pod) as agent:
        await agent.announces(1)
        await group.write_status(current=1, previous=0)
        await agent.lifts()


async def a_worker_that_died_alone_is_told(agents: Agents, group: Group) -> None:
    """An agent that is killed with its container announces the next attempt when it starts again."""
    pod = await _pod(group)
    async with agents.running(group, pod) as agent:
        await agent.begins()
    async with agents.running(group, pod) as agent:
        await agent.announces(1)
        await agent.stays_closed()


async def other_annotations_stay(agents: Agents, group: Group) -> None:
    """It leaves the annotations of others on its Pod as they are."""
    async with agents.running(group, await _pod(group)) as agent:
        await agent.announces(0)
        if not OWN.items() <= (found := await agent.annotations()).items():
            raise CaseFailedError(f"expected {OWN} to stay, saw {found}")


async def it_can_be_switched_off(agents: Agents, group: Group) -> None:
    """With the annotation disable-in-place-restart on the JobSet it lifts its barrier and announces nothing."""
    async with agents.running(group, await _pod(group, annotations={DISABLED: "true"})) as agent:
        await agent.lifts()
        if ATTEMPT in (found := await agent.annotations()):
            raise CaseFailedError(f"expected no {ATTEMPT}, saw {found}")


async def it_waits_for_its_jobset(agents: Agents, group: Group) -> None:
    """An agent that starts before its JobSet can be read waits for it."""
    name = f"{group.name}-early"
    await group.client.create(PODS, group.namespace, {"metadata": {"name": name}, "spec": pod_spec()})
    async with agents.running(group, name) as agent:
        await agent.stays_closed()
        await group.create(managed_by=NOBODYS)
        await agent.announces(0)


async def it_ends_when_it_is_told(agents: Agents, group: Group) -> None:
    """SIGTERM ends it with 143."""
    async with agents.running(group, await _pod(group)) as agent:
        await agent.announces(0)
        agent.process.send_signal(signal.SIGTERM)
        await agent.ends(128 + signal.SIGTERM)


CASES: Final[Mapping[str, Callable[[Agents, Group], Awaitable[None]]]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        the_first_attempt_is_0,
        the_barrier_lifts_at_its_attempt,
        a_previous_attempt_ends_it,
        it_ends_before_its_barrier_lifts,
        it_goes_on_after_the_current_attempt,
        a_second_process_announces_the_next_attempt,
        a_worker_that_died_alone_is_told,
        other_annotations_stay,
        it_can_be_switched_off,
        it_waits_for_its_jobset,
        it_ends_when_it_is_told,
    )
}
