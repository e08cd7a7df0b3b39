"""The report of an agent's start; the starts themselves need an API server."""

from __future__ import annotations

from benchmarks.agent_start import Samples, pod, report
from inplace.common.wire import names as wire

SAMPLES = {
    kind: Samples([ms, ms, ms + 1.0], [mb, mb, mb], [mb + 1.0], [requests] * 3, [cpu_ms, cpu_ms, 0.0])
    for kind, ms, mb, requests, cpu_ms in (
        ("agent", 80.0, 24.0, 3, 6.0),
        ("baseline", 800.0, 72.0, 3, 12.0),
        ("upstream", 240.0, 32.0, 4, 24.0),
    )
}


def test_the_report_compares_with_upstreams_agent_where_it_took_part() -> None:
    """Upstream's figures and ours divided by them are in the report; the API server's CPU is a mean."""
    found = report("real", 3, SAMPLES)
    assert (found["upstream_median_ms"], found["upstream_ratio"]) == (240.0, 0.333)
    assert (found["upstream_rss_mb"], found["upstream_rss_ratio"]) == (32.0, 0.75)
    assert (found["requests"], found["upstream_requests"]) == (3, 4)
    assert (found["server_cpu_ms"], found["upstream_server_cpu_ms"]) == (4.0, 16.0)
    assert found["upstream_server_cpu_ratio"] == 0.25


def test_without_upstreams_agent_nothing_is_said_of_it() -> None:
    """A run without it has no key of it."""
    found = report("real", 3, {kind: SAMPLES[kind] for kind in ("agent", "baseline")})
    assert not [key for key in found if key.startswith("upstream")]


def test_upstreams_pod_announced_in_upstreams_words_alone() -> None:
    """The watch counts both encodings, so a Pod of upstream's agent must not show ours."""
    ours, upstreams = (pod(name)["metadata"]["annotations"] for name in ("agent-1", "upstream-1"))
    assert wire.epoch_of_pod(ours) == wire.epoch_of_pod(upstreams) == 1
    assert set(upstreams) == {wire.ATTEMPT}
