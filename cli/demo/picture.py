"""The demo's live picture: what the group waits for now, its Pods by epoch, and the moments of this restart."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from inplace.cli.demo.group import DemoGroup
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire

BAR_WIDTH = 40


@dataclass(frozen=True)
class Scene:
    """One group of the demo; the title says which restart this is."""

    title: str
    group: DemoGroup

    def picture(self) -> RenderableType:
        """Return the picture of this moment; it has at most 14 lines."""
        manifest = self.group.manifest
        head = Text(f"JobSet {manifest.namespace}/{manifest.name}, {manifest.pods} Pods; {self.title}", style="bold")
        if not manifest.agents:
            return Group(head, self._new_pods())
        return Group(
            head,
            self._phase(),
            "Pods by epoch",
            self._pods_by_epoch(),
            "Milliseconds since it began",
            self._moments_table(),
        )

    def _new_pods(self) -> Text:
        """Say where a group is that has no epochs."""
        record, pods = self.group.record, self.group.manifest.pods
        if record.trains:
            return Text("training", style="green")
        what = "first start" if record.killed_s is None else "new Pods after a kill"
        return Text(f"{what}: {len(record.running_s)} of {pods} workers run", style="yellow")

    def _phase(self) -> Text:
        """Say where the restart stands."""
        manifest, restart = self.group.manifest, self.group.timeline.current
        if restart.complete:
            if not self.group.cluster.jobset(manifest.name, manifest.namespace):
                return Text("deleted; its Pods end", style="yellow")
            return Text(f"training at epoch {restart.epoch}", style="green")
        what = f"restart {restart.number} (fault in {restart.victim or '-'})" if restart.number else "first start"
        waits_for = next((words for words, at_s in self._moments() if at_s is None), "the first steps")
        return Text(f"{what}; waits for: {waits_for}", style="yellow")

    def _pods_by_epoch(self) -> Table:
        """Return one bar for each epoch that some Pod announced."""
        table = _table()
        manifest = self.group.manifest
        epochs = Counter(_epoch(pod["metadata"]) for pod in self.group.cluster.pods(manifest.namespace))
        for epoch, count in sorted((epochs or {0: 0}).items()):
            bar = "█" * -(-count * BAR_WIDTH // manifest.pods)
            table.add_row(f"epoch {epoch}" if epoch else "no epoch yet", bar, str(count))
        return table

    def _moments_table(self) -> Table:
        """Return the moments of the newest restart, in milliseconds since it began."""
        table = _table()
        for words, at_s in self._moments():
            table.add_row(words, "" if at_s is None else f"{at_s * 1e3:8.0f}")
        return table

    def _moments(self) -> list[tuple[str, float | None]]:
        return self.group.timeline.current.moments(agents_stay=self.group.manifest.mode.keeps_agents)


def _table() -> Table:
    return Table(box=None, show_header=False)


def _epoch(meta: dict[str, Any]) -> int:
    try:
        return wire.epoch_of_pod(meta.get("annotations") or {}) or 0
    except RemoteProtocolError:
        return 0
