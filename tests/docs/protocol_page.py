"""Write docs/protocol.md from the machines, so that the pictures always agree with them.

python -m tests.docs.protocol_page   rewrites the page; test_site.py checks it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path

from inplace.common.protocol.agent import TERMINAL, TRANSITIONS, AgentPhase, Verdict
from inplace.common.protocol.guard import GONE
from inplace.common.protocol.pod import WorkerLife
from tests.docs.machine_edges import GUARD_PHASES, Edge, agent_edges, guard_edges, pod_edges

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"

_AGENT = """# The protocol's machines

Generated from `agent.py`, `pod.py` and `guard.py` in `common/protocol/` by `make rewrite`; do not edit. A walk
through all states of the code found every arrow (`tests/docs/machine_edges.py`). An arrow is labelled with the verdict
of a view, or with another event and, in brackets, the verdict at that moment. The machine's actions follow after a
slash.

## The agent's machine

`S` is the JobSet's synced epoch, `D` its deprecated epoch, `e` the epoch that the Pod announced. If a JobSet is divided
into scopes ([ADR 23](adr/0023-who-is-in-the-group.md)), `S` and `D` are those of the Pod's scope. An agent that starts
reads `S` and `D` and announces `e = S + 1` from a fresh view ([GLOSSARY.md](GLOSSARY.md)). After that each view gives a
verdict. The first verdict of this table that holds wins:

| verdict | holds when |
|---|---|
| bypass | the strategy is not InPlaceRestart, or the JobSet carries the disable annotation |
| deprecated | e <= D |
| synced | e == S |
| passed | e < S: the group moved on without this Pod |
| pending | e > S: some Pods are not at the barrier yet |

In a group with spares ([ADR 107](adr/0107-members.md)) e == S has three verdicts:

| verdict | holds when |
|---|---|
| unread | the view does not say who the members of S are |
| spare | this Pod's slot plays no rank in S, or its announcement was not counted |
| synced | its slot plays a rank, and its announcement was counted |

"""

_OUTCOMES = """
In `announcing` every verdict except bypass waits for the outcome of the announcement. So a write in flight can never
arrive after its process has ended. *Long at the barrier* is the reminder after 200 to 300 s
([ADR 7](adr/0007-what-the-protocol-assumes.md)): the agent sends its announcement again.

This table says to which phase a view's verdict leads:

"""

_POD = """
## The Pod's machine

This is the agent's machine together with the worker that the Pod's guards run. The states below are those of the
worker; `absent` means that no process of the worker exists. Arrows of the agent's machine that neither start nor stop
the worker are above and not repeated here. An epoch is announced only in `absent`, and only the end of all processes of
the worker leads back there. If the agent's machine says restart in place while no worker runs, it begins again in the
same process. In depth `containers` and with `WORKER_COMMAND` the process leaves instead ([ADR
64](adr/0064-two-depths.md)). No epoch after the largest int32 can be announced: the machine gives up.

"""

_GUARD = """
## The guard's machine

A guard is the worker's parent in the worker's own container, beside a sidecar's agent
([ADR 62](adr/0062-the-guard.md)). It starts the worker when the agent lifts the barrier, and no worker outlives the
connection to its agent. *Completed* means exit code 0 or one of the final codes. In brackets stands how the worker
ended.

"""

_STAYS = """
In depth `process` ([ADR 64](adr/0064-two-depths.md)) the guard stays when its worker ends, and waits for the next lift.
The agent then runs the Pod's machine above, with this worker at the other end of the connection:

"""


def page() -> str:
    """Return the page's text."""
    agent = _picture(_values(AgentPhase), agent_edges(), _values(TERMINAL))
    worker = _picture(_values(WorkerLife), pod_edges(), (WorkerLife.LEFT.value,))
    contained = _picture(GUARD_PHASES, guard_edges(stays=False), (GONE,))
    stays = _picture(GUARD_PHASES, guard_edges(stays=True), (GONE,))
    machines = _AGENT + agent + _OUTCOMES + _table() + _POD + worker
    return machines + _GUARD + contained + _STAYS + stays


def _values(states: Iterable[Enum]) -> list[str]:
    return [state.value for state in states]


def _picture(states: Sequence[str], edges: frozenset[Edge], last: Container[str]) -> str:
    """Return a state diagram, state by state in the order of the code; it begins in the first one."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {states[0]}"]
    for state in states:
        lines += _arrows([edge for edge in sorted(edges) if edge.source == state])
        lines += [f"    {state} --> [*]"] if state in last else []
    return "\n".join([*lines, "```\n"])


def _arrows(edges: Iterable[Edge]) -> Iterator[str]:
    """Yield one arrow for all edges that differ only in the verdict."""
    verdicts: dict[tuple[str, str, str, str], list[str]] = {}
    for edge in edges:
        verdicts.setdefault((edge.source, edge.target, edge.event, edge.actions), []).append(edge.verdict)
    for (source, target, event, actions), found in verdicts.items():
        asked = " or ".join(verdict for verdict in found if verdict)
        happened = f"{event} ({asked})" if event and asked else event or asked
        yield f"    {source} --> {target}: {happened}" + (f" / {actions}" if actions else "")


def _table() -> str:
    """Return the transition table as Markdown."""
    verdicts = [verdict for verdict in Verdict if verdict is not Verdict.FENCED]  # which no view has
    lines = ["| phase | " + " | ".join(verdict.value for verdict in verdicts) + " |"]
    lines.append("|---" * (len(verdicts) + 1) + "|")
    for phase, row in TRANSITIONS.items():
        cells = [row[verdict].value if verdict in row else "impossible" for verdict in verdicts]
        lines.append(f"| {phase.value} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
