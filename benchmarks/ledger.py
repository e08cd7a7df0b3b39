"""
Measure the cost of one Pod event in the controller's ledger, from 100 to 10,000 Pods.

Compared with the reconcile of KEP-467's design, which reads the list of all Pods at every event.

    python -m benchmarks.ledger --json
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time

from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodView
from inplace.common.protocol.slot import Shape, Slot

SIZES = (100, 1_000, 10_000)
EVENTS_MIN = 20_000  # events per measurement, so that a small group is not timed by the clock's grain
ROUNDS = 15  # sizes take turns, so that a slow moment of the machine affects all of them
LIST_EVENTS_MAX = 200  # the list baseline costs O(Pods) per event: 10,000 Pods need no more events to show it


def group_restart(ledger: Ledger, pods: list[PodView]) -> None:
    """Announce the next epoch once per Pod, deciding after every event as a controller that never coalesces would."""
    for pod in pods:
        ledger.observe(pod)
        decision = ledger.decide(restarts_max=2**31 - 1)
        ledger.learn(decision.synced, decision.deprecated)


def pods_at(size: int, epoch: int) -> list[PodView]:
    """Return one live Pod per slot, all at `epoch`."""
    return [PodView(f"uid-{i}", Slot("workers", i // 100, i % 100), epoch) for i in range(size)]


def us_per_event(size: int) -> float:
    """Time whole group restarts of `size` Pods and return microseconds per event."""
    ledger = Ledger(Shape({"workers": (size // 100, 100)}))
    group_restart(ledger, pods_at(size, 1))
    restarts = max(1, EVENTS_MIN // size)
    batches = [pods_at(size, epoch) for epoch in range(2, 2 + restarts)]
    gc.collect()
    began = time.perf_counter()
    for batch in batches:
        group_restart(ledger, batch)
    elapsed_s = time.perf_counter() - began
    assert ledger.synced == 1 + restarts, f"expected {restarts} syncs, saw {ledger.synced - 1}"
    return elapsed_s / (restarts * size) * 1e6


def list_us_per_event(size: int) -> float:
    """Time the seed's way: every event reads all epochs."""
    epochs = [1] * size
    events = min(size, LIST_EVENTS_MAX)
    began = time.perf_counter()
    for index in range(events):
        epochs[index] = 2
        _ = epochs[0] if len(set(epochs)) == 1 else max(epochs) - 1
    return (time.perf_counter() - began) / events * 1e6


def measure() -> dict[str, object]:
    """Run all sizes in turns and return medians, spreads and the ratio of the largest to the smallest size."""
    samples: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(ROUNDS):
        for size in SIZES:
            samples[size].append(us_per_event(size))
    rows = [
        {
            "pods": size,
            "us_per_event": round(statistics.median(taken), 3),
            "us_min": round(min(taken), 3),
            "us_max": round(max(taken), 3),
            "list_us_per_event": round(list_us_per_event(size), 3),
        }
        for size, taken in samples.items()
    ]
    ratios = [large / small for small, large in zip(samples[SIZES[0]], samples[SIZES[-1]], strict=True)]
    return {"rows": rows, "ratio": round(statistics.median(ratios), 3), "rounds": ROUNDS}


def main() -> None:
    """Print the table, or one JSON object with --json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    result = measure()
    rows = result["rows"]
    assert isinstance(rows, list)
    print("pods     ledger us/event (min..max)      list of all Pods, us/event", file=sys.stderr)
    for row in rows:
        spread = f"({row['us_min']:.2f}..{row['us_max']:.2f})"
        print(
            f"{row['pods']:>6}   {row['us_per_event']:>8.2f} {spread:<18} {row['list_us_per_event']:>12.2f}",
            file=sys.stderr,
        )
    print(f"cost at 10,000 Pods / cost at 100 Pods: {result['ratio']} (at most 1.3)", file=sys.stderr)
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
