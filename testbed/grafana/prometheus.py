"""
Run Prometheus, the program of Debian's package, for as long as a block lasts.

It listens on loopback, keeps its data in the folder it is given, and is ended by its process id.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.ports import LOOPBACK, free_ports
from testbed.waiting import until_ended

READY_S_MAX: Final = 60.0  # it takes one second; the machine may be busy
ANSWER_S_MAX: Final = 30.0
POLL_S: Final = 0.1
END_S_MAX: Final = 20.0  # it writes its head block when it ends


class PrometheusError(Exception):
    """Prometheus did not start, or refused a query; the message has its output."""


class Prometheus:
    """A running Prometheus.

    Args:
        url: its address.
        log: the file of its output.
    """

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log

    async def instant(self, expr: str, at_s: float) -> list[Any]:
        """Return the series of an expression at a moment.

        Raises:
            PrometheusError: it is not PromQL, or cannot be evaluated.
        """
        result: list[Any] = (await self._get("query", query=expr, time=f"{at_s:.3f}"))["result"]
        return result

    async def over_time(self, expr: str, start_s: float, end_s: float, step_s: float) -> list[Any]:
        """Return the series of an expression over a range; raises what `instant` does."""
        span = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        result: list[Any] = (await self._get("query_range", query=expr, **span))["result"]
        return result

    async def rules(self) -> list[Any]:
        """Return every rule, with its health and, of an alert, its state."""
        return [rule for group in (await self._get("rules"))["groups"] for rule in group["rules"]]

    async def targets(self) -> list[Any]:
        """Return the scraped targets, with their health."""
        found: list[Any] = (await self._get("targets"))["activeTargets"]
        return found

    async def until_ready(self, process: asyncio.subprocess.Process) -> None:
        """Wait until it answers queries."""
        async with asyncio.timeout(READY_S_MAX):
            while process.returncode is None:
                try:
                    await asyncio.to_thread(_read, f"{self.url}/-/ready")
                except OSError:
                    await asyncio.sleep(POLL_S)
                else:
                    return
        raise PrometheusError(f"expected Prometheus to run, saw exit code {process.returncode}: {self._said()}")

    async def _get(self, endpoint: str, **parameters: str) -> Any:
        url = f"{self.url}/api/v1/{endpoint}?{urllib.parse.urlencode(parameters)}"
        try:
            answer = json.loads(await asyncio.to_thread(_read, url))
        except urllib.error.HTTPError as error:
            raise PrometheusError(json.loads(error.read()).get("error", str(error))) from error
        return answer["data"]

    def _said(self) -> str:
        return self._log.read_text()[-2000:]


@asynccontextmanager
async def prometheus(program: str, folder: Path, config: dict[str, Any]) -> AsyncIterator[Prometheus]:
    """Run `program` with a configuration; its data and log go to `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={LOOPBACK}:{port}",
            "--log.level=warn",
            stdout=out,
            stderr=out,
        )
    try:
        running = Prometheus(f"http://{LOOPBACK}:{port}", log)
        await running.until_ready(process)
        yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await until_ended(process, END_S_MAX)


def _read(url: str) -> bytes:
    """Return the body of an answer; any status but 2xx raises, and so does no answer."""
    with urllib.request.urlopen(url, timeout=ANSWER_S_MAX) as answer:  # noqa: S310 - http, always
        body: bytes = answer.read()
        return body
