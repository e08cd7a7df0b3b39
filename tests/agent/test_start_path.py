"""The import budget: what may be loaded when the announcement leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import trustme

from tests.agent.process import environment_in_cluster, finished, process, server_tls
from tests.agent.scripted_server import ScriptedServer, jobset

pytestmark = pytest.mark.asyncio

FORBIDDEN = frozenset(
    {
        "aiohttp",
        "anyio",
        "argparse",
        "asyncio",
        "concurrent.futures",
        "datetime",
        "decimal",
        "email",
        "h11",
        "hashlib",
        "http.client",
        "ipaddress",
        "kubernetes_asyncio",
        "logging",
        "msgspec",
        "pathlib",
        "prometheus_client",
        "structlog",
        "subprocess",
        "tempfile",
        "tenacity",
        "typing_extensions",
        "urllib.parse",
        "urllib.request",
        "yaml",
    }
)
MODULES_MAX = 215  # 195 on CPython 3.11.7, of which asyncio, ssl and h11 bring 160

# Runs the agent and prints sys.modules when the PATCH is handed to TLS.
DRIVER = """
import json, ssl, sys
write = ssl.SSLObject.write
def spy(self, data):
    if bytes(data[:6]) == b"PATCH ":
        print(json.dumps(sorted(sys.modules)), flush=True)
    return write(self, data)
ssl.SSLObject.write = spy
from agent.main import main
sys.exit(main())
"""


async def test_the_announcement_leaves_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    """In a Pod, with TLS: at the PATCH no forbidden module is loaded, and few others; structlog comes after it."""
    authority = trustme.CA()
    script = (jobset(1, 0), jobset(1, 1))
    async with ScriptedServer(lists=[jobset(0)], watches=[script], tls=server_tls(authority)) as server:
        env = environment_in_cluster(tmp_path, server, authority)
        async with process(env, sys.executable, "-c", DRIVER) as child:
            assert child.stdout is not None
            modules = set(json.loads(await child.stdout.readline()))
            code, lines = await finished(child)
    assert code == 88
    assert lines, "structlog wrote nothing"
    assert modules & FORBIDDEN == set()
    assert len(modules) <= MODULES_MAX, sorted(modules)
