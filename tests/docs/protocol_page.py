"""Write docs/protocol.md from the machines, so that the pictures always agree with them.

python -m tests.docs.protocol_page   rewrites the page; test_protocol_page.py checks it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from enum import Enum
from pathlib import Path

from inplace.common.epoch.agent import TERMINAL, TRANSITIONS, AgentState, Verdict
from inplace.common.epoch.supervisor import SupervisorState, WorkerLife
from tests.docs.machine_edges import Edge, agent_edges, supervisor_edges

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"

_AGENT = """# The protocol's machines

Generated from `common/epoch/agent.py` and `common/epoch/supervisor.py` by `make rewrite`; do not edit. A walk through
all states of the code found every arrow (`tests/docs/machine_edges.py`). An arrow is labelled with the verdict of a
view, or with another event and, in brackets, the verdict at that moment. The machine's actions follow after a slash.

## The agent's machine

`S` is the JobSet's synced epoch, `D` its deprecated epoch, `e` the epoch that the Pod announced. If a JobSet is divided
into scopes ([ADR 27](adr/0027-partial-restart.md)), `S` and `D` are those of the Pod's scope. An agent that starts
reads `S` and `D` and announces `e = S + 1` from a fresh view ([GLOSSARY.md](GLOSSARY.md)). After that each view gives a
verdict. The first verdict of this table that holds wins:

| verdict | holds when |
|---|---|
| bypass | the strategy is not InPlaceRestart, or the JobSet carries the disable annotation |
| deprecated | e <= D |
| synced | e == S |
| passed | e < S: the group moved on without this Pod |
| pending | e > S: some Pods are not at the barrier yet |

"""

_OUTCOMES = """
In `announcing` every verdict except bypass waits for the outcome of the announcement. So a write in flight can never
arrive after its process has ended. *Long at the barrier* is the reminder after 200 to 300 s
([ADR 42](adr/0042-announce-again.md)): the agent sends its announcement again.

This table says to which phase a view's verdict leads:

"""

_SUPERVISOR = """
## The supervisor's machine

A supervisor runs the agent's machine and a worker. The states below are those of the worker; `absent` means that no
process of the worker exists. Arrows of the agent's machine that neither start nor stop the worker are above and not
repeated here. An epoch is announced only in `absent`, and only the end of all processes of the worker leads back there.
If the agent's machine says restart in place while no worker runs, it begins again in the same process. With
`WORKER_COMMAND` the process leaves instead. No epoch after the largest int32 can be announced: the machine gives up.

"""


def page() -> str:
    """Return the page's text."""
    agent = _picture(AgentState().phase, agent_edges(), TERMINAL)
    supervised = _picture(SupervisorState().life, supervisor_edges(), (WorkerLife.LEFT,))
    return _AGENT + agent + _OUTCOMES + _table() + _SUPERVISOR + supervised


def _picture(first: Enum, edges: frozenset[Edge], last: Container[Enum]) -> str:
    """Return a state diagram, state by state in the order of the code."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.value}"]
    for state in type(first):
        lines += _arrows([edge for edge in sorted(edges) if edge.source == state.value])
        lines += [f"    {state.value} --> [*]"] if state in last else []
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
    lines = ["| phase | " + " | ".join(verdict.value for verdict in Verdict) + " |"]
    lines.append("|---" * (len(Verdict) + 1) + "|")
    for phase, row in TRANSITIONS.items():
        cells = [row[verdict].value if verdict in row else "impossible" for verdict in Verdict]
        lines.append(f"| {phase.value} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
