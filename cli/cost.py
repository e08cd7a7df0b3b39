"""
`inplace cost`: what restarts cost, by the formula of KEP-467's design ("Financial impact of restarts").

    nodes x price per node and hour / 3600 x seconds of each restart x failures per day x days

The default seconds are that design's benchmark at 5,000 nodes: 2m10s to recreate every Pod, 10 s in place. `inplace
status` and the controller's metrics show your own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inplace.cli.terminal.moments import duration_text
from inplace.cli.terminal.screen import Output, print_data

if TYPE_CHECKING:
    from inplace.cli.documents import CostDocument


@dataclass(frozen=True, slots=True)
class Fleet:
    """What restarts, and how often.

    Args:
        price: of a node, per hour, in whatever currency.
        failures: per day.
    """

    nodes: int
    price: float
    failures: float
    days: float

    def cost(self, seconds: float) -> float:
        """Return what restarts of so many seconds cost in all those days."""
        return self.nodes * self.price / 3600 * seconds * self.failures * self.days

    def idle_share(self, seconds: float) -> float:
        """Return the share of all time that is spent in restarts."""
        return min(1.0, self.failures * seconds / 86_400)


def run_cost(fleet: Fleet, *, recreate_s: float, in_place_s: float, output: Output) -> int:
    """Run the command; return the exit code."""
    if output != "table":
        print_data(cost_data(fleet, recreate_s, in_place_s), output)
    else:
        print("\n".join(cost_lines(fleet, recreate_s, in_place_s)))
    return 0


def cost_data(fleet: Fleet, recreate_s: float, in_place_s: float) -> CostDocument:
    """Return the numbers for programs."""
    return {
        "nodes": fleet.nodes,
        "pricePerNodeHour": fleet.price,
        "failuresPerDay": fleet.failures,
        "days": fleet.days,
        "perMinuteOfRestart": round(fleet.cost(60), 2),
        "recreate": {"seconds": recreate_s, "cost": round(fleet.cost(recreate_s), 2)},
        "inPlace": {"seconds": in_place_s, "cost": round(fleet.cost(in_place_s), 2)},
        "saved": round(fleet.cost(recreate_s) - fleet.cost(in_place_s), 2),
    }


def cost_lines(fleet: Fleet, recreate_s: float, in_place_s: float) -> list[str]:
    """Return the lines for people."""
    rows = [("recreate every Pod", recreate_s), ("restart in place", in_place_s)]
    lines = [
        f"{fleet.nodes:,} nodes x {fleet.price:g} per hour, {fleet.failures:g} failures a day, {fleet.days:g} days",
        f"each minute of restart costs {fleet.cost(60):,.0f}",
        "",
        f"  {'':20}{'a restart':>12}{'idle':>8}{'cost':>16}",
    ]
    for name, seconds in rows:
        share = f"{fleet.idle_share(seconds):.1%}"
        lines.append(f"  {name:20}{duration_text(seconds):>12}{share:>8}{fleet.cost(seconds):>16,.0f}")
    lines.append(f"  {'saved':20}{'':20}{fleet.cost(recreate_s) - fleet.cost(in_place_s):>16,.0f}")
    return lines
