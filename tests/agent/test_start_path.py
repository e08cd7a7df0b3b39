"""The start's budget: imports and time until the announcement leaves, and after."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trustme

from tests.agent.process import ROOT, environment_in_cluster, finished, process, server_tls
from tests.agent.scripted_server import ScriptedServer, jobset
from tests.agent.supervisor_rig import status_of

FORBIDDEN = frozenset(
    {
        "aiohttp",
        "anyio",
        "argparse",
        "asyncio",
        "concurrent.futures",
        "dataclasses",
        "datetime",
        "decimal",
        "email",
        "h11",
        "hashlib",
        "http.client",
        "inspect",
        "ipaddress",
        "kubernetes_asyncio",
        "logging",
        "msgspec",
        "pathlib",
        "prometheus_client",
        "random",
        "structlog",
        "subprocess",
        "tempfile",
        "tenacity",
        "typing",
        "typing_extensions",
        "urllib.parse",
        "urllib.request",
        "yaml",
    }
)
MODULES_MAX = 123  # 120 on CPython 3.11; 75 of them come with ssl, socket and json, 13 are our packages
RATIO_MAX = 9.5  # of the interpreter's own CPU time; 5 to 7, of which bare ssl, socket and json take 3 to 4
RSS_MB_MAX = 27.0  # at the barrier; 24.8 with 3.11.7 of pyenv, 21 of them for the interpreter with asyncio and ssl
RSS_SCRAPED_MB_MAX = 40.0  # after /metrics loaded prometheus_client
RUNS = 3  # the least of this many starts counts: a busy machine only adds time

# Runs the agent, and prints CPU time and modules when the PATCH is handed to TLS.
DRIVER = """
import sys, time
sys.path[:0] = {paths}
import json, ssl
write = ssl.SSLObject.write
def spy(self, data):
    if bytes(data[:6]) == b"PATCH ":
        print(json.dumps([time.process_time(), sorted(sys.modules)]), flush=True)
    return write(self, data)
ssl.SSLObject.write = spy
from inplace.agent.main import main
sys.exit(main())
"""
SITE = next(path for path in sys.path if path.endswith("site-packages"))
COMMAND = (sys.executable, "-IS", "-c", DRIVER.format(paths=[str(ROOT), SITE]))  # as in the image


async def start_once(folder: Path) -> tuple[float, set[str], list[dict[str, object]]]:
    """Run one start, from exec to the group's restart; return CPU seconds and modules at the PATCH, and the log."""
    authority = trustme.CA()
    script = (jobset(1, 0), jobset(1, 1))
    async with ScriptedServer(lists=[jobset(0)], watches=[script], tls=server_tls(authority)) as server:
        env = environment_in_cluster(folder, server, authority)
        async with process(env, *COMMAND) as child:
            assert child.stdout is not None
            cpu_s, modules = json.loads(await child.stdout.readline())
            code, lines = await finished(child)
    assert code == 88
    return cpu_s, set(modules), lines


@pytest.mark.asyncio
async def test_the_announcement_leaves_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    """In a Pod with TLS few modules are loaded BEFORE the PATCH, none of them forbidden; structlog comes AFTER it."""
    _, modules, lines = await start_once(tmp_path)
    assert lines, "structlog wrote nothing"
    assert modules & FORBIDDEN == set()
    assert len(modules) <= MODULES_MAX, sorted(modules)


@pytest.mark.slow  # slow because it measures CPU time, which differs between machines
@pytest.mark.asyncio
async def test_the_announcement_costs_a_few_times_the_interpreter(tmp_path: Path) -> None:
    """CPU time from exec to the PATCH is a bounded multiple of an empty Python program's."""
    agents_s = [(await start_once(tmp_path))[0] for _ in range(RUNS)]
    nothings_s = [await asyncio.to_thread(cpu_s_of_nothing) for _ in range(RUNS)]
    assert min(agents_s) / min(nothings_s) <= RATIO_MAX


@pytest.mark.asyncio
async def test_a_waiting_agent_is_small(tmp_path: Path) -> None:
    """Resident memory is bounded, at the barrier and after the metrics were read."""
    authority = trustme.CA()
    async with ScriptedServer(lists=[jobset(0)], tls=server_tls(authority)) as server:
        env = environment_in_cluster(tmp_path, server, authority)
        async with process(env, *COMMAND) as child:
            assert child.stderr is not None
            while b"announcement_accepted" not in await child.stderr.readline():
                pass
            waiting_mb = rss_mb(child.pid)
            answer = await asyncio.to_thread(scrape, env["BARRIER_PORT"])
            scraped_mb = rss_mb(child.pid)
    assert b"inplace_agent_epoch 1" in answer
    assert waiting_mb <= RSS_MB_MAX
    assert scraped_mb <= RSS_SCRAPED_MB_MAX


def cpu_s_of_nothing() -> float:
    """Return the CPU seconds of an interpreter that only starts."""
    nothing = (sys.executable, "-IS", "-c", "import time; print(time.process_time())")
    return float(subprocess.run(nothing, capture_output=True, check=True).stdout)


def scrape(port: str) -> Any:
    """Read the agent's metrics."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read()


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    return int(status_of(pid, "VmRSS").split()[0]) / 1024
