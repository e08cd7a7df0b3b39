"""Write docs/protocol.md from the agent's transition table, so that the picture cannot lie.

python -m tests.docs.protocol_page   rewrites the page; test_protocol_page.py checks it.
"""

from __future__ import annotations

from pathlib import Path

from common.epoch.agent import TRANSITIONS, Phase, Verdict

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"

_HEAD = """# The agent's machine

Generated from `common/epoch/agent.py` by `make rewrite`; do not edit.

A Pod that starts reads its JobSet's `S` (synced epoch) and `D` (deprecated epoch), announces `e = S + 1` from a view
that is fresh, and then moves along this table with every view. Where a JobSet is divided into scopes
([ADR 27](adr/0027-partial-restart.md)), `S` and `D` are those of the Pod's scope. The verdicts are asked in this order,
the first that holds wins:

| verdict | holds when |
|---|---|
| bypass | the strategy is not InPlaceRestart, or the JobSet carries the disable annotation |
| deprecated | e <= D |
| synced | e == S |
| passed | e < S: the group moved on without this Pod |
| pending | e > S: not everybody is here yet |

```mermaid
stateDiagram-v2
    [*] --> starting
    starting --> confirming: view may be older than this Pod's last announcement
    starting --> announcing: fresh view
    confirming --> announcing: consistent view
    starting --> bypassed: bypass
    confirming --> bypassed: bypass
    starting --> exhausted: S is the largest int32
    announcing --> announcing: refused, or reply lost (sent again)
    announcing --> waiting: accepted
"""

_TAIL = """    restarting --> [*]: exit, every container starts again
```

`announcing` keeps every verdict but bypass for later: only the outcome of the announcement leads on, so that a write
in flight can never land on the process that comes after.
"""


def page() -> str:
    """Return the page's text."""
    return _HEAD + "".join(_arrows()) + _TAIL + _table()


def _arrows() -> list[str]:
    """Return one arrow for each (phase, next phase), labelled with the verdicts that take it."""
    arrows = []
    for phase, row in TRANSITIONS.items():
        targets: dict[Phase, list[str]] = {}
        for verdict, target in row.items():
            targets.setdefault(target, []).append(verdict.value)
        arrows += [
            f"    {phase.value} --> {target.value}: {', '.join(verdicts)}\n"
            for target, verdicts in targets.items()
            if target is not phase
        ]
    return arrows


def _table() -> str:
    """Return the transition table as Markdown."""
    lines = ["\n| phase | " + " | ".join(verdict.value for verdict in Verdict) + " |"]
    lines.append("|---" * (len(Verdict) + 1) + "|")
    for phase, row in TRANSITIONS.items():
        cells = [row[verdict].value if verdict in row else "impossible" for verdict in Verdict]
        lines.append(f"| {phase.value} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
