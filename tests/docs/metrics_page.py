"""
Write docs/metrics.md from the programs' exposed metrics, so that the page always agrees with them.

python -m tests.docs.metrics_page   rewrites the page; test_site.py checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from inplace.agent.report.exposition import render
from inplace.agent.report.metrics import AgentMetrics
from inplace.common.jobset.causes import Failure, Trigger
from inplace.common.jobset.failure_class import FailureClass
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.goodput import Goodput
from inplace.common.jobset.verdict import Verdict
from inplace.common.protocol.decision import PodCounts
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.protocol.members import Sizes
from inplace.common.wire.notice import KINDS
from inplace.common.wire.phases import RestartPhase
from inplace.controller.metrics import OUTCOMES, LiveCollector, Metrics
from inplace.controller.serving.exposition import SUFFIXED
from inplace.controller.tracking.counts import GroupCount, JobSetCount

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"

_HEAD: Final = """# Metrics

Generated from the code by `make rewrite`; do not edit.

The controller serves `/metrics` on port 8080; you need no other target. A JobSet's series end when it is deleted.
Only one Pod of each JobSet is a label value: the Pod that failed first in the last restart. If a JobSet is divided into
scopes ([ADR 23](adr/0023-who-is-in-the-group.md)), the label `scope` names one; otherwise it is empty. More than 8
scopes are shown as one: Pods and costs are sums, and the epoch is 1 more than all restarts. `inplace status` names
each scope.
[ADR 39](adr/0039-why-a-group-restarts.md) explains triggers and first failures.
"""
_AGENT: Final = """
## Agent

Scraping agents is optional ([agent.md](agent.md#metrics)): the controller adds up their durations in
`inplace_pod_restart_phase_duration_seconds`.
"""
_EXEMPLARS: Final = """
## Which JobSet restarted slowly?

    topk(5, max by (namespace, jobset) (inplace_last_restart_duration_seconds))

`inplace_epoch{which="synced"}`, the marks on the JobSet's board and the Events show the rest. The metrics have no
exemplars. There are no traces to which they could lead, and they need the OpenMetrics form. prometheus_client renders
that form in 0.43 s of CPU at 1,000 JobSets; our own renderer takes 0.13 s for Prometheus' text format.
"""
_VALUES: Final = """
## Values of labels

| label | values |
|---|---|
"""
_TRIGGERS: Final[dict[Trigger, str]] = {
    Trigger.WORKER_EXIT: "a container failed, or a Pod announced the next epoch without a request",
    Trigger.STALLED: "a worker hangs, as its agent told ([hangs.md](hangs.md))",
    Trigger.LOSS_NOT_FINITE: "the loss is no finite number, and `inplace.dev/restart-on` names `loss`",
    Trigger.SLOW: "a rank, or steps, got slower, and `inplace.dev/restart-on` names it",
    Trigger.POD_LOST: "a Pod was deleted, or its end was not seen",
    Trigger.DISRUPTED: "a Pod was evicted, preempted, drained or deleted because of its node; it does not count",
    Trigger.COMPLETED_EARLY: "a worker completed, then one that went on failed; the failure names the first",
    Trigger.JOB_FAILED: "the failure policy recreated Jobs",
    Trigger.MANUAL: "a person asked for it by annotation",
    Trigger.RESIZE: "an elastic Job got another size",
    Trigger.RESUME: "a suspended JobSet was resumed",
    Trigger.JOIN: "a replicatedJob joined because its turn to start came",
    Trigger.MEMBERS: "spares make the group larger, or take the place of members that leave their nodes; not counted",
    Trigger.UNKNOWN: "the leading controller changed meanwhile",
}


class Row(NamedTuple):
    """The page's row for one metric family."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


def page() -> str:
    """Return the page's text."""
    tables = (_table(sorted(set(rows()))) for rows in (controller_rows, agent_rows))
    controller, agent = tables
    return f"{_HEAD}\n## Controller\n\n{controller}{_AGENT}\n{agent}{_EXEMPLARS}{_VALUES}{''.join(_values())}"


def controller_rows() -> Iterator[Row]:
    """Yield each family of the controller, with a JobSet that has restarted and failed."""
    metrics = Metrics()
    silent = FurthestBehind(("p",), 1, LastProgress(3, 4.0))
    verdict = Verdict(FailureClass.CODE, Failure("p", "n", "c", 1, "Error"))
    whole = JobSetCount("ns", "train", 3, 2, 1.0, verdict, silent)
    count = GroupCount("ns", "train", "", 8, PodCounts(8, 0, 0, 0), 1, 0, 0.0, whole, Goodput(1, 90.0, 6.0, 4.0))
    count = replace(count, sizes=Sizes(6, 8), spares_max=1)
    metrics.registry.register(LiveCollector(lambda: [count], list, lambda: [("Pod", 0.0)]))
    for collector in tuple(metrics.registry._collector_to_names):
        names = getattr(collector, "_labelnames", ())
        for metric in collector.collect():
            yield _row(metric, names or _labels_of(metric))


def agent_rows() -> Iterator[Row]:
    """Yield each family of the agent."""
    metrics = AgentMetrics()
    metrics.heard_s = 0.0
    metrics.requests["watch", "ok"] += 1
    metrics.watch_endings["closed"] += 1
    metrics.wait("watch", "busy", 1.0, throttled=True)
    metrics.observe(RestartPhase.VIEW, 0.1)
    body = render(metrics, now_s=lambda: 1.0)[1]
    for metric in text_string_to_metric_families(body.decode()):
        yield _row(metric, _labels_of(metric))


def _labels_of(metric: Metric) -> Iterable[str]:
    labels = metric.samples[0].labels if metric.samples else {}
    return [name for name in labels if name != "le"]


def _row(metric: Metric, labels: Iterable[str]) -> Row:
    name = metric.name + SUFFIXED.get(metric.type, "")
    return Row(name, metric.type, tuple(labels), metric.documentation)


def _table(rows: Iterable[Row]) -> str:
    lines = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.name}` | {row.type} | {labels} | {row.text} |")
    return "\n".join(lines) + "\n"


def _values() -> Iterator[str]:
    """Yield a row for each label whose values are a closed set."""
    show: Callable[[Iterable[str]], str] = lambda words: ", ".join(f"`{word}`" for word in words)  # noqa: E731
    triggers = "; ".join(f"`{trigger.value}`: {text}" for trigger, text in _TRIGGERS.items())
    yield f"| `trigger` | {triggers} |\n"
    yield f"| `outcome` of group restarts | {show(OUTCOMES)}: one restart too many |\n"
    yield f"| `kind` of notices | {show(KINDS)}: see `inplace_notices_total` |\n"
    yield f"| `state` | {show(('running', 'waiting', 'restarting', 'missing'))} |\n"
    yield f"| `which` | {show(('synced', 'deprecated'))}: S and D |\n"
    yield f"| `phase` of group restarts | {show(('detect', 'deprecate', 'announce', 'sync', 'lift'))} |\n"
    phases = show(phase.value for phase in RestartPhase)
    yield f"| `phase` of Pods and agents | {phases}: see [agent.md](agent.md#phases) |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
