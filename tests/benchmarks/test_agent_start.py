"""The report of an agent's start; the starts themselves need an API server."""

from __future__ import annotations

from benchmarks.agent_start import UPSTREAM, figures_of, pod
from inplace.common.wire import names as wire


def test_the_report_compares_with_both_other_agents() -> None:
    """Our start is judged beside a plain agent's and beside upstream's; the API server's CPU is a mean."""
    figures = figures_of("real", 1)
    for kind, ms, cpu_ms in (("agent", 80.0, 6.0), ("baseline", 200.0, 12.0), (UPSTREAM, 240.0, 24.0)):
        figures.add(kind, {"ms": ms, "server_cpu_ms": cpu_ms})
    assert figures.ratios()["agent / upstream"] == {"ms": 80.0 / 240.0, "server_cpu_ms": 0.25}
    assert figures.missed() == ["agent / baseline: expected ms of at most 0.35, saw 0.4"]
    assert "mean" in figures.report()["rows"]["agent"]["server_cpu_ms"]


def test_upstreams_pod_announced_in_upstreams_words_alone() -> None:
    """The watch counts both encodings, so a Pod of upstream's agent must not show ours."""
    ours, upstreams = (pod(name)["metadata"]["annotations"] for name in ("agent-1", "upstream-1"))
    assert wire.epoch_of_pod(ours) == wire.epoch_of_pod(upstreams) == 1
    assert set(upstreams) == {wire.ATTEMPT}
