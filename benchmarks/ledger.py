"""
Measure the cost of one Pod event in the controller's ledger, from 100 to 10,000 Pods.

Compared with the reconcile of KEP-467's design, which reads the list of all Pods at every event.

    python -m benchmarks.ledger --json
"""

from __future__ import annotations

import gc
import time

from benchmarks.figures import Figures, flags
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodView
from inplace.common.protocol.slot import Shape, Slot

SIZES = (100, 1_000, 10_000)
EVENTS_MIN = 20_000  # events per measurement, so that a small group is not timed by the clock's grain
ROUNDS = 15  # sizes take turns, so that a slow moment of the machine affects all of them
RATIO_MAX = 1.3  # an event may not cost more in a larger group
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


def measure() -> Figures:
    """Run all sizes in turns."""
    rows = {size: f"{size:,} Pods" for size in SIZES}
    largest, smallest = rows[SIZES[-1]], rows[SIZES[0]]
    figures = Figures(
        f"one Pod event in the ledger, and in a list of all Pods; {ROUNDS} rounds",
        compared=[(largest, smallest)],
        most={(f"{largest} / {smallest}", "ledger_us"): RATIO_MAX},
    )
    for _ in range(ROUNDS):
        for size, row in rows.items():
            figures.add(row, {"ledger_us": us_per_event(size), "list_us": list_us_per_event(size)})
    return figures


def main() -> None:
    """Measure and print."""
    options = flags(__doc__).parse_args()
    measure().show(options)


if __name__ == "__main__":
    main()
