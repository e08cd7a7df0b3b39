"""Show the demo: a live picture while it runs, and at the end a table or one JSON object."""

from __future__ import annotations

import json as json_module
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from inplace.cli.beside import beside
from inplace.cli.demo.manifest import DemoManifest
from inplace.cli.terminal.console import VisibleConsole
from inplace.cli.terminal.visible import visible
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.timeline import MOMENTS, GroupRestart, Timeline

REFRESH_S = 0.25
STALLED = "stalled"  # the trigger of a restart whose worker was stopped
BAR_WIDTH = 40
# JSON key -> attribute of GroupRestart, in the protocol's order; MOMENTS gives the words for people.
KEYS = dict(
    zip(
        ("detection", "deprecate", "exit", "restart", "announce", "sync", "lift", "first_step"),
        (attribute for _, attribute in MOMENTS),
        strict=True,
    )
)


@dataclass
class DemoView:
    """Renders one demo.

    Args:
        json: people's output goes to stderr, and `show_result` ends with one JSON object on stdout.
    """

    cluster: Cluster
    manifest: DemoManifest
    timeline: Timeline
    runtime: str
    seed: int
    json: bool

    def __post_init__(self) -> None:
        self._console = VisibleConsole(stderr=self.json, highlight=False)

    def say(self, text: str) -> None:
        """Print one line for people, whole, whatever the terminal's width."""
        self._console.print(text, soft_wrap=True, markup=False)

    def note(self, text: str) -> None:
        """Print one sentence for people at once, on stderr."""
        print(f"inplace demo: {visible(text)}", file=sys.stderr, flush=True)

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Show the live picture while the block runs; nothing when the output is no terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False) as picture:
            try:
                async with beside(partial(self._refresh, picture)):
                    yield
            finally:
                picture.update(self._picture(), refresh=True)

    def show_result(self) -> None:
        """Print the table, the budget and, when asked for, the JSON object."""
        self._console.print(_table(self._failures()))
        for restart in self._failures():
            if restart.first_silent:
                first = restart.first_silent[0]
                self.say(f"restart {restart.number}: fault in {restart.victim or '-'}; silent first: {first}")
        for restart in self.timeline.restarts:
            self.say(f"first line of epoch {restart.epoch}: {restart.first_line}")
        if self.runtime == "model":
            self.say("modelled times (simulator/cluster/timings.py), not measurements")
        requests = self._agent_requests()
        budget = ", ".join(f"{count:g} {verb}" for verb, count in requests.items())
        self.say(f"requests per agent start: {budget}")
        self.say(f"requests rejected: {self.cluster.server.requests.rejected}")
        self.say(f"pods recreated: {self.timeline.pods_recreated}")
        self.say(f"containers restarted by kubelet: {self.timeline.containers_restarted}")
        if self.json:
            print(json_module.dumps(self._result()), flush=True)

    def _failures(self) -> list[GroupRestart]:
        return self.timeline.restarts[1:]

    def _result(self) -> dict[str, Any]:
        failures = self._failures()
        totals: Counter[str] = Counter()
        for (verb, resource, family), count in self.cluster.server.requests.items():
            totals[f"{family} {verb} {resource}"] += count
        return {
            "pods": self.manifest.pods,
            "failures": len(failures),
            "runtime": self.runtime,
            "mode": self.manifest.mode,
            "seed": self.seed,
            "first_lines": [restart.first_line for restart in self.timeline.restarts],
            "restarts": [_restart_json(restart) for restart in failures],
            "pods_recreated": self.timeline.pods_recreated,
            "containers_restarted": self.timeline.containers_restarted,
            "requests": dict(sorted(totals.items())),
            "rejected": self.cluster.server.requests.rejected,
        }

    def _agent_requests(self) -> dict[str, float]:
        """Return requests per agent start: every Pod started once, and once for each restart."""
        starts = self.manifest.pods * len(self.timeline.restarts)
        counts = self.cluster.server.requests
        verbs = ("list", "patch", "watch")
        return {verb: round(counts.of(verb=verb, family="inplace-agent") / starts, 2) for verb in verbs}

    async def _refresh(self, picture: Live) -> None:
        while True:
            picture.update(self._picture(), refresh=True)
            await self.cluster.clock.sleep(REFRESH_S)

    def _picture(self) -> RenderableType:
        manifest = self.manifest
        title = Text(f"JobSet {manifest.namespace}/{manifest.name}, {manifest.pods} Pods", style="bold")
        return Group(title, self._phase(), self._pods_by_epoch(), _moments(self.timeline.current))

    def _phase(self) -> Text:
        """Say where the restart stands."""
        restart = self.timeline.current
        what = f"restart {restart.number} (fault in {restart.victim})" if restart.number else "first start"
        if restart.complete:
            return Text(f"training at epoch {restart.epoch}", style="green")
        waits_for = next((words for words, at_s in restart.moments() if at_s is None), "the first steps")
        return Text(f"{what}: waiting for: {waits_for}", style="yellow")

    def _pods_by_epoch(self) -> Table:
        """Return one bar for each epoch that some Pod announced."""
        table = Table(title="Pods by epoch", box=None, show_header=False, title_justify="left")
        epochs = Counter(_epoch(pod["metadata"]) for pod in self.cluster.pods(self.manifest.namespace))
        for epoch, count in sorted(epochs.items()):
            name = f"epoch {epoch}" if epoch else "none yet"
            table.add_row(name, "█" * max(1, count * BAR_WIDTH // self.manifest.pods), str(count))
        return table


def _epoch(meta: dict[str, Any]) -> int:
    try:
        return wire.epoch_of_pod(meta.get("annotations") or {}) or 0
    except RemoteProtocolError:
        return 0


def _moments(restart: GroupRestart) -> Table:
    """Return the timeline of one restart, milliseconds since it began."""
    table = Table(title="Timeline", box=None, show_header=False, title_justify="left")
    for words, at_s in restart.moments():
        table.add_row(words, "" if at_s is None else f"{at_s * 1e3:8.0f} ms")
    return table


def _table(restarts: list[GroupRestart]) -> Table:
    """Return one column for each restart, milliseconds since the fault."""
    stalled = any(restart.trigger == STALLED for restart in restarts)
    title = f"Group restarts in place: ms since the worker was {'killed or stopped' if stalled else 'killed'}"
    table = Table(title=title, title_justify="left")
    table.add_column("moment")
    table.add_column("")
    for restart in restarts:
        table.add_column(f"#{restart.number}", justify="right")
    for (key, attribute), (words, _) in zip(KEYS.items(), MOMENTS, strict=True):
        table.add_row(key.replace("_", " "), words, *(_ms(restart, attribute) for restart in restarts))
    table.add_row("epoch", "", *(str(restart.epoch) for restart in restarts))
    table.add_row("trigger", "", *(restart.trigger or "-" for restart in restarts))
    return table


def _ms(restart: GroupRestart, attribute: str) -> str:
    at_s: float | None = getattr(restart, attribute)
    return "-" if at_s is None else f"{(at_s - restart.began_s) * 1e3:.0f}"


def _restart_json(restart: GroupRestart) -> dict[str, Any]:
    """Return one restart: its cause, and moments in milliseconds since the fault, None for one that never came."""
    times = {}
    for key, attribute in KEYS.items():
        at_s: float | None = getattr(restart, attribute)
        times[key] = None if at_s is None else round((at_s - restart.began_s) * 1e3, 1)
    cause = {"trigger": restart.trigger, "first_failure": restart.first_failure, "first_silent": restart.first_silent}
    return {"number": restart.number, "victim": restart.victim, "epoch": restart.epoch} | cause | times
