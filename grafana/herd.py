"""The board of the herd: the cost of thousands of agents that start at once, for them and for the API server."""

from __future__ import annotations

from typing import Final

from grafana import shared
from grafana.panels import Board, Panel, Query, Row
from grafana.promql import CLUSTER, RATE, mean, quantile

POD_PHASES: Final = "inplace_pod_restart_phase_duration_seconds"
_LEVEL: Final = f'{CLUSTER},priority_level="inplace-agents"'  # deploy/apf
AGENTS: Final = "agents are scraped only where a PodMonitor of yours says so (docs/agent.md)"
SERVER: Final = "needs the API server's own metrics in this Prometheus"

PRIORITY: Final = f"{SERVER}, and deploy/apf"


def herd() -> Board:
    """Return the board inplace-herd."""
    return Board(
        "inplace-herd",
        "inplace / Agent herd",
        "What a group restart asks of agents, kubelets and the API server, which thousands of Pods ask at once.",
        "30m",  # the window of InplaceRestartSlow; a restart's load lasts seconds, which a longer range hides
        (shared.CLUSTERS,),
        (
            Row("Pods, as their agents announced it", (_phases(), _slowest())),
            Row("Agents that are scraped", (_agent_requests(), _agent_retries())),
            Row("API server: what the herd asks", (_server_requests(), _server_latency(), _watchers())),
            Row("API server: priority level inplace-agents", (_queue(), _queue_wait(), _rejected())),
            Row("API server: what a status write costs", (_watch_bytes(), shared.requests())),
        ),
    )


def _phases() -> Panel:
    return Panel(
        "timeseries",
        "Mean duration by phase",
        "kubelet: old process to new. view, announce: the agent's start. barrier: waiting for the group. lift: process "
        "start to lift. death, stop, start, down: a supervisor's worker.",
        "s",
        "InplaceRestartSlow",
        (Query(mean(POD_PHASES, by="phase"), "{{phase}}"),),
        empty=shared.QUIET,
    )


def _slowest() -> Panel:
    return Panel(
        "timeseries",
        "Slowest hundredth by phase",
        "The 99th percentile: a group waits for its last Pod, so this is what its restarts feel.",
        "s",
        "InplaceRestartSlow",
        (Query(quantile(0.99, POD_PHASES, by="phase"), "{{phase}}"),),
        empty=shared.QUIET,
    )


def _agent_requests() -> Panel:
    return Panel(
        "timeseries",
        "Agents: requests by outcome",
        "A start needs one list, one patch and one watch; restarts beside an agent that stays need more patches. More "
        "lists and watches mean that something went wrong.",
        "short",
        "InplaceApiThrottled",
        (Query(f"sum by (verb, outcome) (inplace_agent_requests_total{{{CLUSTER}}})", "{{verb}} {{outcome}}"),),
        empty=AGENTS,
    )


def _agent_retries() -> Panel:
    return Panel(
        "timeseries",
        "Agents: throttled and tried again",
        "Answers 429, the time that was waited because of them, and waits before something was tried again.",
        "short",
        "InplaceApiThrottled",
        (
            Query(f"sum(inplace_agent_throttled_total{{{CLUSTER}}})", "429"),
            Query(f"sum(inplace_agent_throttled_wait_seconds_total{{{CLUSTER}}})", "waited (s)"),
            Query(f"sum(inplace_agent_retries_total{{{CLUSTER}}})", "tried again", empty="nothing was tried again"),
        ),
        empty=AGENTS,
    )


def _server_requests() -> Panel:
    rate = f"rate(apiserver_request_total{{{CLUSTER},"
    return Panel(
        "timeseries",
        "Requests for Pods and JobSets",
        "Everybody's, by verb and answer: the agents patch their Pod, and list and watch their JobSet.",
        "reqps",
        "InplaceApiThrottled",
        (
            Query(f'sum by (code) ({rate}resource="pods",verb="PATCH"}}[{RATE}]))', "PATCH pods {{code}}"),
            Query(f'sum by (verb, code) ({rate}resource="jobsets"}}[{RATE}]))', "{{verb}} jobsets {{code}}"),
        ),
        empty=SERVER,
    )


def _server_latency() -> Panel:
    name = "apiserver_request_duration_seconds"
    return Panel(
        "timeseries",
        "Latency, slowest hundredth",
        "The agents' announcements and the controller's status writes, as the API server measured them.",
        "s",
        "InplaceRestartSlow",
        (
            Query(quantile(0.99, name, only=f'{CLUSTER},resource="pods",verb="PATCH"'), "PATCH pods"),
            Query(
                quantile(0.99, name, by="verb", only=f'{CLUSTER},resource="jobsets",verb!="WATCH"'), "{{verb}} jobsets"
            ),
        ),
        empty=SERVER,
    )


def _watchers() -> Panel:
    only = f'{CLUSTER},resource="jobsets",verb="WATCH"'
    return Panel(
        "timeseries",
        "Open watches of JobSets",
        "One per agent whose barrier or worker runs, and the controller's.",
        "short",
        "InplaceWatchStale",
        (Query(f"sum(apiserver_longrunning_requests{{{only}}})", "watches"),),
        empty=SERVER,
    )


def _queue() -> Panel:
    return Panel(
        "timeseries",
        "Requests that wait and seats in use",
        "deploy/apf lets the herd wait in a queue instead of rejecting it. The limit is what the level may use now.",
        "short",
        "InplaceApiThrottled",
        (
            Query(f"sum(apiserver_flowcontrol_current_inqueue_requests{{{_LEVEL}}})", "wait"),
            Query(f"sum(apiserver_flowcontrol_current_executing_seats{{{_LEVEL}}})", "seats"),
            Query(f"sum(apiserver_flowcontrol_current_limit_seats{{{_LEVEL}}})", "limit"),
        ),
        empty=PRIORITY,
    )


def _queue_wait() -> Panel:
    name = "apiserver_flowcontrol_request_wait_duration_seconds"
    return Panel(
        "timeseries",
        "Time in the queue",
        "How long requests of the agents waited for a seat.",
        "s",
        "InplaceApiThrottled",
        (
            Query(quantile(0.5, name, only=_LEVEL), "p50"),
            Query(quantile(0.99, name, only=_LEVEL), "p99"),
        ),
        empty=PRIORITY,
    )


def _rejected() -> Panel:
    rejected = f"sum(rate(apiserver_flowcontrol_rejected_requests_total{{{_LEVEL}}}[{RATE}]))"
    none = f"0 * sum(apiserver_flowcontrol_current_limit_seats{{{_LEVEL}}})"
    return Panel(
        "timeseries",
        "Rejected",
        "Requests of the agents that were answered 429. The agents send them again later; the restart takes longer.",
        "reqps",
        "InplaceApiThrottled",
        (Query(f"{rejected} or {none}", "rejected"),),
        empty=PRIORITY,
    )


def _watch_bytes() -> Panel:
    only = f'{CLUSTER},group="jobset.x-k8s.io"'  # the group, for the other label has changed its name
    return Panel(
        "timeseries",
        "Bytes to watchers of JobSets",
        "Every status write goes to every agent of the JobSet.",
        "Bps",
        "InplaceApiThrottled",
        (Query(f"sum(rate(apiserver_watch_events_sizes_sum{{{only}}}[{RATE}]))", "bytes"),),
        empty=SERVER,
    )
