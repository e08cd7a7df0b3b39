"""The agent as kubelet runs it: a process, with an environment and a service account on disk."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trustme

from testbed.ports import free_ports
from tests.agent.scripted_server import ScriptedServer

ROOT = Path(__file__).parents[2]
# A supervisor ends the processes that a dead supervisor of its Pod left. Tests in parallel need different Pods.
NAMESPACE = f"ns-{os.getpid()}"
COMMAND = (sys.executable, "-m", "inplace.agent")


def modules_loaded_by(code: str) -> set[str]:
    """Return the modules that an interpreter has after this code, with nothing loaded before it."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}; print(*sys.modules)"
    done = subprocess.run((sys.executable, "-IS", "-c", code), capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def environment(folder: Path, server: ScriptedServer, **more: str) -> dict[str, str]:
    """Return the environment of an agent that talks to `server` over plain HTTP, by a kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    return _names() | {"KUBECONFIG": str(kubeconfig)} | more


def environment_in_cluster(folder: Path, server: ScriptedServer, authority: trustme.CA) -> dict[str, str]:
    """Return the environment of a Pod, with its service account on disk; the server speaks TLS."""
    (folder / "token").write_text("t")
    (folder / "namespace").write_text(NAMESPACE)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    return _names() | {
        "INPLACE_SERVICE_ACCOUNT_DIR": str(folder),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(server.port),
    }


def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    """Return a server's TLS settings with a certificate for 127.0.0.1 from `authority`."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    return tls


def _names() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "NAMESPACE": NAMESPACE,
        "POD_NAME": "train-w-0-0",
        "JOBSET_NAME": "train",
        "BARRIER_ADDRESS": "127.0.0.1",
        "BARRIER_PORT": str(free_ports(1)[0]),
    }


@asynccontextmanager
async def process(env: dict[str, str], *command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the agent, and kill it when the block ends. Where the block fails, pytest shows what the agent printed."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*(command or COMMAND), env=env, stdout=pipe, stderr=pipe)
    try:
        yield child
    finally:
        code = child.returncode
        if code is None:
            child.kill()
        output, errors = await child.communicate()
        print(f"the agent: exit code {code}\n{output.decode()}{errors.decode()}", file=sys.stderr)


async def finished(child: asyncio.subprocess.Process) -> tuple[int, list[dict[str, object]]]:
    """Wait for the exit, at most 10 s; return the code and the log's lines."""
    async with asyncio.timeout(10):
        _, errors = await child.communicate()
    assert child.returncode is not None
    return child.returncode, [json.loads(line) for line in errors.decode().splitlines()]
