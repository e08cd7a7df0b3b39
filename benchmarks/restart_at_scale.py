"""
Model a group restart of up to 10,000 Pods: from a worker's death to the last worker's start, by mode and phase.

    python -m benchmarks.restart_at_scale [--pods 5000] [--profile big] [--json] [--chart docs/restart-at-scale.svg]

Nobody here has 5,000 nodes, so these figures are not measurements. The agents' slots and retries are the real code; the
rest is `restart_model` with the delays and costs of a profile (`simulator/profiles`), each with its source. Compared
with: recreating all Pods (calibrated to the one published figure), upstream's agent and controller in the same model,
and a lower bound that no order of the same work can beat.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.chart import Curve, draw_chart
from benchmarks.model_group import Mode, ModelledRestart
from benchmarks.restart_model import Restarting
from inplace.simulator.profile import Profile, ProfileError, read_profile, shipped

UPSTREAM: Final = "upstream, default limits"
SIZES: Final = (100, 500, 1_000, 5_000, 10_000)
MODES: Final[tuple[Mode, ...]] = ("guarded", "sidecar", "supervisor")
PODS_MAX: Final = 50_000  # ten times the nodes that Kubernetes is tested with; more takes minutes to model
CHART: Final = Path(__file__).parents[1] / "docs" / "restart-at-scale.svg"
ABOVE_KUBELET_S_MAX: Final = 3.0
ABOVE_BOUND_MAX: Final = 1.25
SUPERVISOR_S_MAX: Final = 1.0
DOUBLED_MAX: Final = 2.2
REJECTED_MAX: Final = 0.2  # per agent, without deploy/apf
JUDGED: Final = 5_000
SHOWN: Final = 1_000  # the least size in docs/simulated-numbers.md


def modelled(profile: Profile, pods: int, mode: Mode, apf: bool, seeds: int) -> ModelledRestart:
    """Return the run with the median total."""
    runs = [Restarting(profile, pods, mode, apf, seed=seed).run() for seed in range(1, seeds + 1)]
    return sorted(runs, key=lambda run: run.total_s)[len(runs) // 2]


def recreated_s(profile: Profile, pods: int) -> float:
    """Return the seconds to create all Pods anew, at the calibrated rate, until the slowest one's worker runs."""
    rng, delays = Random(1), profile.delays
    names = ("kubelet.sandbox", "kubelet.container_start")
    slowest_s = max(sum(delays[name].draw(rng) for name in names) for _ in range(pods))
    return rng.uniform(0.0, profile["kubelet.relist_s"]) + pods / profile["recreate.pods_per_s"] + slowest_s


def measure(profile: Profile, sizes: Iterable[int], seeds: int) -> dict[str, Any]:
    """Return the object that --json prints."""
    rows, baselines = [], []
    for pods in sizes:
        for mode in MODES:
            rows += [_row(pods, mode, apf, modelled(profile, pods, mode, apf, seeds)) for apf in (False, True)]
        for apf in (False, True):
            run = modelled(profile, pods, "upstream", apf, seeds)
            name = "upstream, deploy/apf" if apf else UPSTREAM
            baselines.append({"name": name, "pods": pods, "total_s": round(run.total_s, 3), "rejected": run.rejected})
        total_s = round(recreated_s(profile, pods), 3)
        baselines.append({"name": "recreate (calibrated)", "pods": pods, "total_s": total_s})
    return {"kind": "modelled", "profile": profile.shown(), "seeds": seeds, "rows": rows, "baselines": baselines}


def _row(pods: int, mode: str, apf: bool, run: ModelledRestart) -> dict[str, Any]:
    return {
        "pods": pods,
        "mode": mode,
        "apf": apf,
        "total_s": round(run.total_s, 3),
        "kubelet_s": round(run.kubelet_s, 3),
        "bound_s": round(run.bound_s, 3),
        "rejected": run.rejected,
        "phases": {name: round(at_s, 3) for name, at_s in sorted(run.phases.items(), key=lambda pair: pair[1])},
    }


def table(found: Mapping[str, Any]) -> list[str]:
    """Return the result for people."""
    lines = [
        f"modelled, not measured; profile {found['profile']['name']}: {found['profile']['description']}",
        "seconds from a worker's death; kubelet: the nodes' own part; bound: no order of the same work is faster",
        "  pods  mode        deploy/apf   total  kubelet  bound  x bound  429s/agent",
    ]
    lines += [
        f"{row['pods']:>6}  {row['mode']:10}  {'yes' if row['apf'] else 'no':10} {row['total_s']:7.2f} "
        f"{row['kubelet_s']:8.2f} {row['bound_s']:6.2f} {row['total_s'] / row['bound_s']:8.2f} "
        f"{row['rejected'] / row['pods']:11.3f}"
        for row in found["rows"]
    ]
    lines += [f"{each['pods']:>6}  {each['name']:28} {each['total_s']:7.2f}" for each in found["baselines"]]
    return lines + [f"{'reached' if ok else 'MISSED '}  {words}" for words, ok in judged(found)]


def markdown(found: Mapping[str, Any]) -> list[str]:
    """Return the table of docs/simulated-numbers.md, of the larger sizes."""
    lines = [
        "| Pods | mode | deploy/apf | in all | kubelet | bound | x bound | 429s per agent |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['pods']:,} | {row['mode']} | {'yes' if row['apf'] else 'no'} | {row['total_s']:.1f} s "
        f"| {row['kubelet_s']:.1f} s | {row['bound_s']:.1f} s | {row['total_s'] / row['bound_s']:.2f} "
        f"| {row['rejected'] / row['pods']:.2f} |"
        for row in found["rows"]
        if row["pods"] >= SHOWN
    ]
    for each in found["baselines"]:
        if each["pods"] >= SHOWN and not each["name"].endswith("deploy/apf"):
            rejected = f"{each['rejected'] / each['pods']:.2f}" if "rejected" in each else ""
            apf = "no" if rejected else ""
            lines.append(f"| {each['pods']:,} | {each['name']} | {apf} | {each['total_s']:.1f} s | | | | {rejected} |")
    return lines


def judged(found: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return each promise with the figure, and whether it is kept; for the sizes that were modelled."""
    by = {(row["pods"], row["mode"], row["apf"]): row for row in found["rows"]}
    upstreams_s = {each["pods"]: each["total_s"] for each in found["baselines"] if each["name"] == UPSTREAM}
    promises: list[tuple[str, bool]] = []

    def judge(what: str, value: float, most: float) -> None:
        promises.append((f"{what}: {value:.2f} (at most {most:g})", value <= most))

    if (sidecar := by.get((JUDGED, "sidecar", False))) is not None:
        above_s = sidecar["total_s"] - sidecar["kubelet_s"]
        judge("sidecar, 5,000 Pods, default limits: seconds on top of the nodes' part", above_s, ABOVE_KUBELET_S_MAX)
        judge("sidecar, 5,000 Pods: times the bound", sidecar["total_s"] / sidecar["bound_s"], ABOVE_BOUND_MAX)
    if (supervisor := by.get((JUDGED, "supervisor", False))) is not None:
        judge("supervisor, 5,000 Pods: seconds in all", supervisor["total_s"], SUPERVISOR_S_MAX)
    for mode in MODES:
        if (large := by.get((2 * JUDGED, mode, False))) is not None and (half := by.get((JUDGED, mode, False))):
            judge(f"{mode}: 10,000 Pods against 5,000", large["total_s"] / half["total_s"], DOUBLED_MAX)
    for apf, most in ((True, 0.0), (False, REJECTED_MAX)):
        rejected = [row["rejected"] / row["pods"] for row in by.values() if row["apf"] is apf]
        if rejected:
            judge(f"429s per agent {'with' if apf else 'without'} deploy/apf, worst row", max(rejected), most)
    for mode in MODES if upstreams_s else ():
        shares = [by[pods, mode, False]["total_s"] / total_s for pods, total_s in upstreams_s.items()]
        judge(f"{mode}, default limits: times upstream's, worst size", max(shares), 1.0)
    return promises


def curves(found: Mapping[str, Any]) -> list[Curve]:
    """Return the chart's curves: default limits, and the bound of guarded sidecars."""
    rows = [row for row in found["rows"] if not row["apf"]]
    points = [(row["mode"], row["pods"], row["total_s"]) for row in rows]
    points += [("bound (guarded)", row["pods"], row["bound_s"]) for row in rows if row["mode"] == "guarded"]
    points += [(each["name"], each["pods"], each["total_s"]) for each in found["baselines"]]
    names = (*MODES, "bound (guarded)", UPSTREAM, "recreate (calibrated)")
    return [Curve(name, tuple((pods, total_s) for found, pods, total_s in points if found == name)) for name in names]


def group_size(text: str) -> int:
    """Return an option's number of Pods.

    Raises:
        argparse.ArgumentTypeError: it is none, or too large.
    """
    if not text.isdigit() or not 1 <= int(text) <= PODS_MAX:
        raise argparse.ArgumentTypeError(f"expected a number of Pods from 1 to {PODS_MAX}, saw {text!r}")
    return int(text)


def main() -> int:
    """Print a table, or one JSON object with --json; write the chart when asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart_at_scale", description=__doc__.split("\n\n")[0])
    parser.add_argument("--pods", type=group_size, action="append", help=f"sizes; {', '.join(map(str, SIZES))} if none")
    parser.add_argument("--profile", default="big", help=f"{', '.join(shipped())}, or a .toml file of your own")
    parser.add_argument("--seeds", type=int, default=3, choices=range(1, 100), metavar="1..99", help="runs of each row")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/simulated-numbers.md below")
    parser.add_argument("--chart", type=Path, nargs="?", const=CHART, help=f"write an SVG ({CHART.name} in docs/)")
    options = parser.parse_args()
    try:
        profile = read_profile(options.profile)
    except ProfileError as error:
        parser.error(str(error))
    found = measure(profile, options.pods or SIZES, options.seeds)
    if options.chart is not None:
        title = f"A group restart, modelled (profile {profile.name}, default API limits)"
        options.chart.write_text(draw_chart(title, "Pods", "seconds", curves(found)))
    print(json.dumps(found) if options.json else "\n".join(table(found)))
    if options.markdown:
        print("\n".join(markdown(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
