"""
Model consecutive restarts of sidecars that learn their window, also on a server that turns slow (docs/adr/0010).

    python -m benchmarks.herd_learning [--pods 1000] [--seeds 3] [--json]

Compared with a window that learns nothing and counts from each process's start, with upstream's agent and
controller in the same model, and with agents that learn but do not look at the server's first answers. Seconds are the
median of the seeds, 429s per agent those of the worst seed. No deploy/apf: with it there are no windows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from benchmarks.model_group import Mode, ModelledRestart
from benchmarks.restart_at_scale import REJECTED_MAX, group_size
from benchmarks.restart_model import Restarting
from inplace.agent.announce.start_window import StartWindow
from inplace.simulator.cluster.timings import Latency
from inplace.simulator.profile import Profile, read_profile

SIZES: Final = (100, 200, 500, 1_000, 2_000, 5_000, 10_000)
SHOWN: Final = (1, 2, 3, 5)  # of consecutive restarts
FAST: Final = "big"
FAST_RESTARTS: Final = 3  # before the server turns slow: by then no Pod keeps a window that it does not need
SLOW_COMMIT_S: Final = (0.03, 0.1)
SLOW: Final[Mapping[str, int]] = MappingProxyType(  # and the largest group that is modelled on it
    {"single32": 10_000, "slow-store": 10_000, "small": 2_000, "lab": 1_000}
)


@dataclass(frozen=True, slots=True)
class Modelled:
    """The same restart under several seeds.

    Args:
        seconds: the median.
        rejected: 429s per agent, of the worst seed.
    """

    seconds: float
    rejected: float

    def shown(self) -> dict[str, float]:
        """Return what --json prints."""
        return {"seconds": round(self.seconds, 2), "rejected": round(self.rejected, 3)}


def profile_of(name: str) -> Profile:
    """Return a shipped profile, or `big` with a store whose commits take 30 to 100 ms."""
    if name != "slow-store":
        return read_profile(name)
    big = read_profile(FAST)
    return replace(big, delays=MappingProxyType({**big.delays, "apiserver.commit": Latency(*SLOW_COMMIT_S)}))


def consecutive(profiles: Sequence[Profile], pods: int, seed: int, *, looks: bool = True) -> list[ModelledRestart]:
    """Return one group's restarts, one on each of these clusters; each agent keeps what it learned."""
    windows: tuple[StartWindow, ...] = ()
    runs = []
    for number, profile in enumerate(profiles):
        runs.append(Restarting(profile, pods, seed=100 * seed + number, windows=windows, looks=looks).run())
        windows = runs[-1].windows
    return runs


def learning(profiles: Sequence[Profile], pods: int, seeds: int, *, looks: bool = True) -> list[Modelled]:
    """Return each of the consecutive restarts."""
    histories = [consecutive(profiles, pods, seed, looks=looks) for seed in range(1, seeds + 1)]
    return [_over_seeds(runs, pods) for runs in zip(*histories, strict=True)]


def alone(profile: Profile, pods: int, seeds: int, mode: Mode = "sidecar") -> Modelled:
    """Return a restart of agents that learn nothing: ours with the default window, or upstream's."""
    return _over_seeds([Restarting(profile, pods, mode, seed=seed, windows=None).run() for seed in _seeds(seeds)], pods)


def _seeds(seeds: int) -> Iterable[int]:
    return range(1, seeds + 1)


def _over_seeds(runs: Sequence[ModelledRestart], pods: int) -> Modelled:
    seconds = statistics.median(run.total_s for run in runs)
    return Modelled(seconds, max(run.rejected for run in runs) / pods)


def measure(sizes: Iterable[int], seeds: int) -> dict[str, Any]:
    """Return what --json prints."""
    steady, slow = [], []
    fast = read_profile(FAST)
    for pods in sizes:
        row: dict[str, Any] = {"pods": pods, "fixed": alone(fast, pods, seeds).shown()}
        restarts = learning([fast] * max(SHOWN), pods, seeds)
        row |= {"learning": {str(number): restarts[number - 1].shown() for number in SHOWN}}
        steady.append(row | {"upstream": alone(fast, pods, seeds, "upstream").shown()})
        slow += [_turned_slow(name, pods, seeds) for name, most in SLOW.items() if pods <= most]
    return {"kind": "modelled", "profile": FAST, "seeds": seeds, "steady": steady, "turned_slow": slow}


def _turned_slow(name: str, pods: int, seeds: int) -> dict[str, Any]:
    """Return the restarts after the fast cluster became this one; the first one is what nobody could know of."""
    fast, slow = read_profile(FAST), profile_of(name)
    history = [fast] * FAST_RESTARTS
    restarts = learning(history + [slow] * max(SHOWN), pods, seeds)[FAST_RESTARTS:]
    blind = learning([*history, slow], pods, seeds, looks=False)[-1]
    return {
        "pods": pods,
        "slow": name,
        "fixed": alone(slow, pods, seeds).shown(),
        "without_look": blind.shown(),
        "learning": {str(number): restarts[number - 1].shown() for number in SHOWN},
        "upstream": alone(slow, pods, seeds, "upstream").shown(),
    }


def judged(found: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return each promise with its figure, and whether it is kept."""
    steady, slow = found["steady"], found["turned_slow"]
    beyond = max(each["seconds"] / row["upstream"]["seconds"] for row in steady for each in row["learning"].values())
    rejected = max(each["rejected"] for row in steady for each in row["learning"].values())
    promises = [
        (f"{FAST}: slowest restart against upstream's, worst size: {beyond:.2f} (at most 1)", beyond <= 1.0),
        (f"{FAST}: 429s per agent, worst restart: {rejected:.2f} (at most {REJECTED_MAX})", rejected <= REJECTED_MAX),
    ]
    for row in slow:
        first, fixed = row["learning"]["1"], row["fixed"]["rejected"]
        words = f"{row['pods']:,} Pods, {FAST} turns into {row['slow']}: 429s per agent, first restart: "
        words += f"{first['rejected']:.2f} (at most {REJECTED_MAX}; the fixed window: {fixed:.2f})"
        promises.append((words, first["rejected"] <= REJECTED_MAX))
    return promises


def table(found: Mapping[str, Any]) -> list[str]:
    """Return the result for people; every cell is seconds / 429s per agent."""
    heads = "".join(f"{'restart ' + str(number):>12}" for number in SHOWN)
    lines = [
        "modelled, not measured; seconds from a worker's death (median) / 429s per agent (worst seed)",
        f"always on {found['profile']}",
        f"{'pods':>6}{'fixed':>12}{heads}{'upstream':>12}",
    ]
    for row in found["steady"]:
        cells = [row["fixed"], *row["learning"].values(), row["upstream"]]
        lines.append(f"{row['pods']:>6}" + "".join(map(_cell, cells)))
    lines += [
        f"{FAST_RESTARTS} restarts on {FAST}, then on a slower cluster; the restarts on it",
        f"{'pods':>6} {'slow':10}{'fixed':>12}{'no look, 1':>12}{heads}{'upstream':>12}",
    ]
    for row in found["turned_slow"]:
        cells = [row["fixed"], row["without_look"], *row["learning"].values(), row["upstream"]]
        lines.append(f"{row['pods']:>6} {row['slow']:10}" + "".join(map(_cell, cells)))
    return lines + [f"{'reached' if ok else 'MISSED '}  {words}" for words, ok in judged(found)]


def _cell(each: Mapping[str, float]) -> str:
    return f"{each['seconds']:6.2f}/{each['rejected']:.2f}".rjust(12)


def main() -> int:
    """Print two tables, or one JSON object with --json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.herd_learning", description=__doc__.split("\n\n")[0])
    parser.add_argument("--pods", type=group_size, action="append", help=f"sizes; {', '.join(map(str, SIZES))} if none")
    parser.add_argument("--seeds", type=int, default=3, choices=range(1, 100), metavar="1..99", help="histories each")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found = measure(options.pods or SIZES, options.seeds)
    print(json.dumps(found) if options.json else "\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
