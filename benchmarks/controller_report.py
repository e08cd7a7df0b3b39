"""Print the controller's figures as a table, beside the promised bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

CPU_RATIO_MAX: Final = 5.5
CPU_S_MAX: Final = {5_000: 3.0}
MB_MAX: Final = {5_000: 120, 10_000: 180}
DEPRECATE_MS_MAX: Final = 50
SYNC_MS_MAX: Final = 100
BURST_S_MAX: Final = 60
BURST_RESTART_MS_MAX: Final = 500
SERVICE_MS_MAX: Final = 1_000


def table(found: Mapping[str, Any]) -> str:
    """Return the lines of the report."""
    return "\n".join((*_rows(found["rows"]), *_memory(found), *_burst(found)))


def _rows(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    yield "  pods   CPU s announced    deprecate ms         sync ms     MB   peak"
    for row in rows:
        pods = row["pods"]
        yield (
            f"{pods:>6} {row['cpu_s']:>7} {row['cpu_announcements_s']:>9} "
            f"{row['deprecate_ms']:>7} ({row['deprecate_ms_max']:>5}) {row['sync_ms']:>7} ({row['sync_ms_max']:>5}) "
            f"{row['rss_mb']:>6} {row['rss_peak_mb']:>6}"
        )
    yield "(CPU: all writes of a restart, kubelets' and the Job controller's included; announced: announcements alone)"
    yield f"(medians and worst; promised: deprecate {DEPRECATE_MS_MAX} ms, sync {SYNC_MS_MAX} ms)"
    by_pods = {row["pods"]: row for row in rows}
    for pods, bound in CPU_S_MAX.items():
        if pods in by_pods:
            yield f"CPU at {pods} pods: {by_pods[pods]['cpu_s']} s (at most {bound:g})"
    if {1_000, 5_000} <= by_pods.keys():
        ratio = by_pods[5_000]["cpu_s"] / by_pods[1_000]["cpu_s"]
        yield f"CPU at 5,000 pods / CPU at 1,000 pods: {ratio:.2f} (at most {CPU_RATIO_MAX})"


def _memory(found: Mapping[str, Any]) -> Iterator[str]:
    every = [*found["rows"], *([found["memory"]] if "memory" in found else [])]
    for row in every:
        if (bound := MB_MAX.get(row["pods"])) is not None:
            yield f"memory at {row['pods']} pods: {row['rss_mb']} MB, peak {row['rss_peak_mb']} (at most {bound})"


def _burst(found: Mapping[str, Any]) -> Iterator[str]:
    if "burst_seconds" not in found:
        return
    jobsets = found["burst_jobsets"]
    yield f"{jobsets} jobsets at once: all jobs after {found['burst_seconds']} s (at most {BURST_S_MAX} for 1,000)"
    yield (
        f"restart of another group meanwhile: median {found['burst_restart_p50_ms']} ms "
        f"(of which announcing: {found['burst_announce_p50_ms']} ms), "
        f"p99 {found['burst_restart_p99_ms']} ms of {found['burst_restarts']} (at most {BURST_RESTART_MS_MAX}); "
        f"without a burst {found['idle_restart_p50_ms']} ms"
    )
    service = found["service_ms"]
    yield f"headless service: {service['new']} ms, back after {service['deleted']} ms (at most {SERVICE_MS_MAX})"
