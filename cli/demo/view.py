"""Show the demo: a live picture while it runs, and at the end its tables, or one JSON object."""

from __future__ import annotations

import json as json_module
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from inplace.cli.beside import beside
from inplace.cli.demo.group import ComparedRestart, DemoGroup
from inplace.cli.group.scope_state import RANKS_SHOWN
from inplace.cli.status.view import status_picture
from inplace.cli.terminal.console import VisibleConsole
from inplace.common.jobset.jobset import parse_jobset
from inplace.simulator.cluster.timeline import MOMENTS, GroupRestart

REFRESH_S = 0.25
STALLED = "stalled"  # the trigger of a restart whose worker was stopped
# JSON key -> attribute of GroupRestart, in the protocol's order; MOMENTS gives the words for people.
KEYS = dict(
    zip(
        ("detection", "deprecate", "exit", "restart", "announce", "sync", "lift", "first_step"),
        (attribute for _, attribute in MOMENTS),
        strict=True,
    )
)
IMITATED: Final = (
    "Imitated: kubelet looks once a second, the Job controller waits a second.\n"
    "Nothing pulls an image or sets up a network: a node takes longer for new Pods."
)
STATUS_SAYS: Final = "first sign to sync (status)"  # the seconds that status, Event, metrics and boards tell


@dataclass(frozen=True)
class Scene:
    """One group of the demo; the title says which restart this is."""

    title: str
    group: DemoGroup

    def picture(self, columns: int) -> RenderableType:
        """Return what `inplace status --watch` shows at this moment; of a group without agents how many workers run."""
        manifest, record = self.group.manifest, self.group.record
        title = Text(self.title, "bold")
        if not self.group.jobset():
            return Group(title, Text("no JobSet yet, or none any more", "yellow"))
        if not manifest.agents:
            what = "training" if record.trains else f"{len(record.running_s)} of {manifest.pods} workers run"
            return Group(title, Text(what))
        state, now_s, restart = self.group.state(), self.group.cluster.clock.wall_s(), self.group.timeline.current
        # The workers' own lines say it some seconds before kubelet reports that they run.
        line = f"training at epoch {restart.epoch}" if restart.complete else state.headline().text
        return Group(title, status_picture(state, now_s=now_s, columns=columns, line=line))


@dataclass
class DemoView:
    """Renders one demo.

    Args:
        scene: what the live picture shows.
        json: people's output goes to stderr, and `show_end` ends with one JSON object on stdout.
        compared: the rows of the comparison so far.
        fault: that every restart began with, where no worker was stopped.
    """

    scene: Scene
    runtime: str
    seed: int
    json: bool
    compared: list[ComparedRestart] = field(default_factory=list)
    fault: str = "a worker was killed"

    def __post_init__(self) -> None:
        self._console = VisibleConsole(stderr=self.json, highlight=False)
        self._result: dict[str, Any] = {}

    def say(self, text: str) -> None:
        """Print one line for people, whole, whatever the terminal's width."""
        self._console.print(text, soft_wrap=True, markup=False)

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Show the live picture while the block runs; nothing when the output is no terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(self._picture(), console=self._console, auto_refresh=False, transient=True) as picture:
            async with beside(partial(self._refresh, picture)):
                yield

    async def _refresh(self, picture: Live) -> None:
        while True:
            picture.update(self._picture(), refresh=True)
            await self.scene.group.cluster.clock.sleep(REFRESH_S)

    def _picture(self) -> RenderableType:
        return self.scene.picture(self._console.width)

    def show_restarts(self) -> None:
        """Print the scene's restarts with their moments, and the requests so far."""
        timeline = self.scene.group.timeline
        failures = timeline.restarts[1:]
        if failures:
            stalled = any(restart.trigger == STALLED for restart in failures)
            fault = "a worker was killed or stopped" if stalled else self.fault
            self.say(f"Restarts in place, milliseconds since {fault}")
            self._console.print(restarts_table(failures))
        for restart in failures:
            if restart.first_silent:
                first = restart.first_silent[0]
                self.say(f"restart {restart.number}: fault in {restart.victim or '-'}; silent first: {first}")
        for restart in timeline.restarts:
            self.say(f"first line of epoch {restart.epoch}: {restart.first_line}")
        for ranks in filter(None, (scope.ranks for scope in parse_jobset(self.scene.group.jobset()).scopes.values())):
            for rank, unit in ranks.exchanged[:RANKS_SHOWN]:
                self.say(f"rank {rank} is {'Job' if ranks.pods else 'slot'} {unit} now, which was a spare")
        if self.runtime == "model":
            self.say("modelled times (simulator/cluster/timings.py), not measurements")
        self._result = self._as_json()
        budget = ", ".join(f"{count:g} {verb}" for verb, count in self._agent_requests().items())
        self.say(f"requests per agent start: {budget}; rejected: {self._result['rejected']}")
        self.say(f"containers restarted by kubelet: {timeline.containers_restarted}")

    def show_end(self) -> None:
        """Print the comparison if there is one, the Pods that the restarts recreated and, when asked for, the JSON."""
        result = self._result | {"comparison": [asdict(row) for row in self.compared]}
        if self.compared:
            self.say(f"\nFour restarts of {result['pods']} Pods, each run just now: one worker was killed")
            self._console.print(comparison_table(self.compared))
            self.say(IMITATED)
        self.say(f"pods recreated: {result['pods_recreated']}")
        if self.json:
            print(json_module.dumps(result), flush=True)

    def _as_json(self) -> dict[str, Any]:
        """Return what `show_restarts` shows, for programs."""
        group, failures = self.scene.group, self.scene.group.timeline.restarts[1:]
        requests = group.cluster.server.requests
        totals: Counter[str] = Counter()
        for (verb, resource, family), count in requests.items():
            totals[f"{family} {verb} {resource}"] += count
        return {
            "pods": group.manifest.pods,
            "failures": len(failures),
            "runtime": self.runtime,
            "mode": group.manifest.mode,
            "seed": self.seed,
            "first_lines": [restart.first_line for restart in group.timeline.restarts],
            "restarts": [_restart_json(restart) for restart in failures],
            "pods_recreated": group.timeline.pods_recreated,
            "containers_restarted": group.timeline.containers_restarted,
            "requests": dict(sorted(totals.items())),
            "rejected": requests.rejected,
        }

    def _agent_requests(self) -> dict[str, float]:
        """Return requests per agent start: every Pod started once, and once for each restart."""
        group = self.scene.group
        starts = group.manifest.pods * len(group.timeline.restarts)
        counts = group.cluster.server.requests
        verbs = ("list", "patch", "watch")
        return {verb: round(counts.of(verb=verb, family="inplace-agent") / starts, 2) for verb in verbs}


def restarts_table(restarts: Sequence[GroupRestart]) -> Table:
    """Return one column for each restart: milliseconds since the fault, of the moments that some restart has."""
    table = Table(box=None)
    table.add_column("")
    for restart in restarts:
        table.add_column(f"#{restart.number}", justify="right")
    for words, attribute in MOMENTS:
        cells = [_ms(restart, attribute) for restart in restarts]
        if any(cells):
            table.add_row(words, *(cell or "-" for cell in cells))
    table.add_row("trigger", *(restart.trigger or "-" for restart in restarts))
    table.add_row(STATUS_SAYS, *(_seconds(restart.seconds) for restart in restarts))
    return table


def comparison_table(rows: Sequence[ComparedRestart]) -> Table:
    """Return one row for each way to restart; it fits in 80 columns."""
    table = Table(box=None)
    table.add_column("")
    for head in ("all workers\nrun again", "status\nsays", "new\nPods", "containers\nstarted"):
        table.add_column(head, justify="right")
    for number, row in enumerate(rows):
        counts = str(row.pods_created), str(row.containers_started)
        style = "" if number else "bold green"  # the first one is what the demo is about
        table.add_row(row.title, f"{row.running_s:.2f} s", _seconds(row.seconds), *counts, style=style)
    return table


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


def _ms(restart: GroupRestart, attribute: str) -> str:
    at_s: float | None = getattr(restart, attribute)
    return "" if at_s is None else f"{(at_s - restart.began_s) * 1e3:.0f}"


def _restart_json(restart: GroupRestart) -> dict[str, Any]:
    """Return one restart: its cause, its seconds as the status says them, and moments in milliseconds since the fault.

    A moment that never came is None.
    """
    times = {}
    for key, attribute in KEYS.items():
        at_s: float | None = getattr(restart, attribute)
        times[key] = None if at_s is None else round((at_s - restart.began_s) * 1e3, 1)
    cause = {"trigger": restart.trigger, "first_failure": restart.first_failure, "first_silent": restart.first_silent}
    named = {"number": restart.number, "victim": restart.victim, "epoch": restart.epoch, "seconds": restart.seconds}
    return named | cause | times
