"""
Write docs/what-a-failure-costs.md: what one failure of a large group costs, part by part.

python -m tests.docs.failure_cost_page   rewrites the page; test_site.py checks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "what-a-failure-costs.md"
NODES: Final = 10_000
DOLLARS: Final = 16.8  # of a node and hour
A_DAY: Final = 12  # failures
DAYS: Final = 30
STEP_S: Final = 5.0
SAVE_S: Final = 1_800.0  # from one save that all Pods can read to the next; a failure costs half of it on average
OFTEN_S: Final = 300.0

_HEAD: Final = f"""# What does a failure cost?

Generated from the code by `make rewrite`; do not edit.

While a group recovers, all of its nodes do nothing of use. So a failure costs

    nodes x price of a node and second x (all workers new + framework ready + steps made again)

The tables are for {NODES:,} nodes at {DOLLARS} dollars an hour, {A_DAY} failures a day, steps of {STEP_S:g} s, and a
checkpoint on shared storage each {SAVE_S / 60:g} minutes. Replace these numbers by yours: each row is a sum of three.

"""
_WORKER: Final = """## A worker dies, its Pod stays

| how the group comes back | all workers new | framework ready | steps made again | a failure | a month |
|---|---|---|---|---|---|
"""
_NODE: Final = """
## A Pod is lost with its memory

From the deletion of the Pod, or from Kubernetes' verdict that its node is dead.

| how the group comes back | all workers new | framework ready | steps made again | a failure | a month |
|---|---|---|---|---|---|
"""
_TAIL: Final = f"""
## Where the numbers come from

* **Pods recreated**: 2m10s at 5,000 nodes, published for JobSet's prototype (KEP-467), as in
  [comparison.md](comparison.md).
* **All workers new**: in place 0.8 s for 5,000 Pods, simulated with the real agents and controller; a lost Pod
  without a spare 13.1 s and with one 0.9 s, both measured on real kubelets with 8 Pods ([numbers.md](numbers.md)).
* **Framework ready**: PyTorch with four Pods on two cores, from the new process to the first collective: 7.0 s, and
  with `--standby` 3.7 s. A group of thousands needs longer for its communicators, in each row alike.
* **Steps made again**: half of the time between two saves on average. With memory that outlives the worker, each step
  saved there, and the step that [the barrier chooses](resume.md): one step at most, in 100 of 100 kills of JAX's ranks
  (`python -m benchmarks.resume`).
* **A lost Pod** has lost its memory, so all go back to the newest shared step. Here only saving to shared storage
  more often helps: each {OFTEN_S / 60:g} minutes in the last row. What one save costs is in [numbers.md](numbers.md).

How many failures are of which kind differs from cluster to cluster. Of the 419 unplanned stops of Llama 3 in 54 days
on 16,384 GPUs, 78 % were hardware, confirmed or suspected ([arXiv 2407.21783](https://arxiv.org/abs/2407.21783),
section 3.3.4). A GPU's error often ends the process and leaves the Pod.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One way to come back; seconds each."""

    how: str
    new_s: float
    ready_s: float
    again_s: float

    def __str__(self) -> str:
        """Return its line of the table."""
        seconds = self.new_s + self.ready_s + self.again_s
        failure = NODES * DOLLARS / 3600 * seconds
        parts = " | ".join(f"{part:,.1f} s" for part in (self.new_s, self.ready_s, self.again_s))
        month = failure * A_DAY * DAYS
        return f"| {self.how} | {parts} | {failure:,.0f} dollars | {month / 1e6:.1f} million |\n"


WORKER: Final = (
    Row("Pods recreated", 130.0, 7.0, SAVE_S / 2),
    Row("in place, as installed", 0.8, 7.0, SAVE_S / 2),
    Row("the same with `--standby`", 0.8, 3.7, SAVE_S / 2),
    Row("the same, each step saved in memory (`keep` in `inplace.dev/restart`)", 0.8, 3.7, STEP_S),
)
NODE: Final = (
    Row("Pods recreated", 130.0, 7.0, SAVE_S / 2),
    Row("in place, without a spare", 13.1, 7.0, SAVE_S / 2),
    Row("with [a spare](members.md) and `--standby=always`", 0.9, 3.7, SAVE_S / 2),
    Row(f"the same, shared saves each {OFTEN_S / 60:g} minutes", 0.9, 3.7, OFTEN_S / 2),
)


def page() -> str:
    """Return the page."""
    return "".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD + _WORKER
    yield from map(str, WORKER)
    yield _NODE
    yield from map(str, NODE)
    yield _TAIL


if __name__ == "__main__":
    PAGE.write_text(page())
