"""Write docs/protocol.md from the machines, so that the pictures cannot lie.

python -m tests.docs.protocol_page   rewrites the page; test_protocol_page.py checks it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from enum import Enum
from pathlib import Path

from common.epoch.agent import TERMINAL, TRANSITIONS, AgentState, Verdict
from common.epoch.supervisor import Life, SupervisorState
from tests.docs.machine_edges import Edge, agent_edges, supervisor_edges

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"

_AGENT = """# The protocol's machines

Generated from `common/epoch/agent.py` and `common/epoch/supervisor.py` by `make rewrite`; do not edit. Each arrow is
one that a walk through all states of the code took (`tests/docs/machine_edges.py`). It carries the event (in brackets:
with which verdict) or the verdict of a view, and after a stroke the machine's actions.

## The agent's machine

A Pod that starts reads its JobSet's `S` (synced epoch) and `D` (deprecated epoch), announces `e = S + 1` from a view
that is fresh, and then moves with every view. Where a JobSet is divided into scopes
([ADR 27](adr/0027-partial-restart.md)), `S` and `D` are those of the Pod's scope. The verdicts are asked in this order,
the first that holds wins:

| verdict | holds when |
|---|---|
| bypass | the strategy is not InPlaceRestart, or the JobSet carries the disable annotation |
| deprecated | e <= D |
| synced | e == S |
| passed | e < S: the group moved on without this Pod |
| pending | e > S: not everybody is here yet |

"""

_OUTCOMES = """
`announcing` keeps every verdict but bypass for later: only the outcome of the announcement leads on, so that a write
in flight can never land on the process that comes after.

The verdict of a view leads from phase to phase by this table:

"""

_SUPERVISOR = """
## The supervisor's machine

The agent's machine with a worker: it runs while there is no process of the worker (`absent`) and while the worker runs.
Where it says restart in place and there is no worker, it begins again in the same process. An epoch is announced in
`absent` alone, and only the end of all processes of the worker leads back there. A process that runs one worker only
(`WORKER_COMMAND`) leaves where another begins again; no epoch after the largest int32 can be announced.

"""


def page() -> str:
    """Return the page's text."""
    agent = _picture(AgentState().phase, agent_edges(), TERMINAL)
    supervised = _picture(SupervisorState().life, supervisor_edges(), (Life.LEFT,))
    return _AGENT + agent + _OUTCOMES + _table() + _SUPERVISOR + supervised


def _picture(first: Enum, edges: frozenset[Edge], last: Container[Enum]) -> str:
    """Return a state diagram, state by state in the order of the code."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.value}"]
    for state in type(first):
        lines += _arrows([edge for edge in sorted(edges) if edge.source == state.value])
        lines += [f"    {state.value} --> [*]"] if state in last else []
    return "\n".join([*lines, "```\n"])


def _arrows(edges: Iterable[Edge]) -> Iterator[str]:
    """Yield one arrow for all edges that differ in nothing but the verdict."""
    verdicts: dict[tuple[str, str, str, str], list[str]] = {}
    for edge in edges:
        verdicts.setdefault((edge.source, edge.target, edge.event, edge.actions), []).append(edge.verdict)
    for (source, target, event, actions), found in verdicts.items():
        asked = " or ".join(verdict for verdict in found if verdict)
        happened = f"{event} ({asked})" if event and asked else event or asked
        yield f"    {source} --> {target}: {happened}" + (f" / {actions}" if actions else "")


def _table() -> str:
    """Return the transition table as Markdown."""
    lines = ["| phase | " + " | ".join(verdict.value for verdict in Verdict) + " |"]
    lines.append("|---" * (len(Verdict) + 1) + "|")
    for phase, row in TRANSITIONS.items():
        cells = [row[verdict].value if verdict in row else "impossible" for verdict in Verdict]
        lines.append(f"| {phase.value} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
