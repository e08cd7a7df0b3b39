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


_PHASES: Final = Panel(
    "timeseries",
    "Mean duration by phase",
    "kubelet: old process to new. view, announce: the agent's start. barrier: waiting for the group. lift: process "
    "start to lift. death, stop, start, down: a supervisor's worker.",
    "s",
    "InplaceRestartSlow",
    (Query(mean(POD_PHASES, by="phase"), "{{phase}}"),),
    empty=shared.QUIET,
)

_SLOWEST: Final = Panel(
    "timeseries",
    "Slowest hundredth by phase",
    "The 99th percentile: a group waits for its last Pod, so this is what its restarts feel.",
    "s",
    "InplaceRestartSlow",
    (Query(quantile(0.99, POD_PHASES, by="phase"), "{{phase}}"),),
    empty=shared.QUIET,
)

_AGENT_REQUESTS: Final = Panel(
    "timeseries",
    "Agents: requests by outcome",
    "A start needs one list, one patch and one watch; restarts beside an agent that stays need more patches. More "
    "lists and watches mean that something went wrong.",
    "short",
    "InplaceApiThrottled",
    (Query(f"sum by (verb, outcome) (inplace_agent_requests_total{{{CLUSTER}}})", "{{verb}} {{outcome}}"),),
    empty=AGENTS,
)

_AGENT_RETRIES: Final = Panel(
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

_REQUESTS: Final = f"rate(apiserver_request_total{{{CLUSTER},"
_SERVER_REQUESTS: Final = Panel(
    "timeseries",
    "Requests for Pods and JobSets",
    "Everybody's, by verb and answer: the agents patch their Pod, and list and watch their JobSet.",
    "reqps",
    "InplaceApiThrottled",
    (
        Query(f'sum by (code) ({_REQUESTS}resource="pods",verb="PATCH"}}[{RATE}]))', "PATCH pods {{code}}"),
        Query(f'sum by (verb, code) ({_REQUESTS}resource="jobsets"}}[{RATE}]))', "{{verb}} jobsets {{code}}"),
    ),
    empty=SERVER,
)

_LATENCY: Final = "apiserver_request_duration_seconds"
_SERVER_LATENCY: Final = Panel(
    "timeseries",
    "Latency, slowest hundredth",
    "The agents' announcements and the controller's status writes, as the API server measured them.",
    "s",
    "InplaceRestartSlow",
    (
        Query(quantile(0.99, _LATENCY, only=f'{CLUSTER},resource="pods",verb="PATCH"'), "PATCH pods"),
        Query(
            quantile(0.99, _LATENCY, by="verb", only=f'{CLUSTER},resource="jobsets",verb!="WATCH"'), "{{verb}} jobsets"
        ),
    ),
    empty=SERVER,
)

_WATCHES: Final = f'{CLUSTER},resource="jobsets",verb="WATCH"'
_WATCHERS: Final = Panel(
    "timeseries",
    "Open watches of JobSets",
    "One per agent whose barrier or worker runs, and the controller's.",
    "short",
    "InplaceWatchStale",
    (Query(f"sum(apiserver_longrunning_requests{{{_WATCHES}}})", "watches"),),
    empty=SERVER,
)

_QUEUE: Final = Panel(
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

_SEAT_WAIT: Final = "apiserver_flowcontrol_request_wait_duration_seconds"
_QUEUE_WAIT: Final = Panel(
    "timeseries",
    "Time in the queue",
    "How long requests of the agents waited for a seat.",
    "s",
    "InplaceApiThrottled",
    (Query(quantile(0.5, _SEAT_WAIT, only=_LEVEL), "p50"), Query(quantile(0.99, _SEAT_WAIT, only=_LEVEL), "p99")),
    empty=PRIORITY,
)

_REFUSED: Final = f"sum(rate(apiserver_flowcontrol_rejected_requests_total{{{_LEVEL}}}[{RATE}]))"
_NONE: Final = f"0 * sum(apiserver_flowcontrol_current_limit_seats{{{_LEVEL}}})"
_REJECTED: Final = Panel(
    "timeseries",
    "Rejected",
    "Requests of the agents that were answered 429. The agents send them again later; the restart takes longer.",
    "reqps",
    "InplaceApiThrottled",
    (Query(f"{_REFUSED} or {_NONE}", "rejected"),),
    empty=PRIORITY,
)

_GROUP: Final = f'{CLUSTER},group="jobset.x-k8s.io"'  # the group, for the other label has changed its name
_WATCH_BYTES: Final = Panel(
    "timeseries",
    "Bytes to watchers of JobSets",
    "Every status write goes to every agent of the JobSet.",
    "Bps",
    "InplaceApiThrottled",
    (Query(f"sum(rate(apiserver_watch_events_sizes_sum{{{_GROUP}}}[{RATE}]))", "bytes"),),
    empty=SERVER,
)

BOARD: Final = Board(
    "inplace-herd",
    "inplace / Agent herd",
    "What a group restart asks of agents, kubelets and the API server, which thousands of Pods ask at once.",
    "30m",  # the window of InplaceRestartSlow; a restart's load lasts seconds, which a longer range hides
    (shared.CLUSTERS,),
    (
        Row("Pods, as their agents announced it", (_PHASES, _SLOWEST)),
        Row("Agents that are scraped", (_AGENT_REQUESTS, _AGENT_RETRIES)),
        Row("API server: what the herd asks", (_SERVER_REQUESTS, _SERVER_LATENCY, _WATCHERS)),
        Row("API server: priority level inplace-agents", (_QUEUE, _QUEUE_WAIT, _REJECTED)),
        Row("API server: what a status write costs", (_WATCH_BYTES, shared.REQUESTS)),
    ),
)
