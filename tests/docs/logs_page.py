"""
Write docs/logs.md from the programs' source: every event of every log, its level, its fields, and what it says.

python -m tests.docs.logs_page   rewrites the page; test_site.py checks it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.docs.log_sentences import SENTENCES

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "logs.md"
LEVELS: Final = ("debug", "info", "warning", "error")
GUARDS: Final = ("guard",)  # how the modules begin that only a guard loads
SHARED: Final = (  # by agent and guard
    "host",
    "check",
    "save_requests",
    "stall_command",
    "stacks_command",
    "look",
    "standby",
    "line_limit",
    "line_writer",
)
WIRE_EVENTS: Final = ("inplace.common.wire.stacks", "inplace.common.wire.run_tail")  # their constants name events
HEAD: Final = """# Logs

Generated from the code by `make rewrite`; do not edit.

Agent, guard and controller write one JSON object per line to standard error. Each line begins with
`timestamp` (RFC 3339, UTC, milliseconds), `level` and `event`; an event has one constant name. In the fields,
`message` says what was seen, `then` what happens next, `cure` what a person must do, and `epoch` in which run of the
group. A name that ends in `_s` has seconds. The lines of a guard, and of an agent below it, stand in the worker's log,
those of a sidecar in the log of the container `inplace-agent`.

| event | level | written by | more fields | says |
|---|---|---|---|---|
"""


@dataclass(slots=True)
class Event:
    """What the source says of one event."""

    levels: set[str] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


def page() -> str:
    """Return the page."""
    return HEAD + "".join(_row(name, event) for name, event in sorted(events().items()))


@cache
def events() -> dict[str, Event]:
    """Return every event of the source, by its name."""
    found: dict[str, Event] = {}
    for path in (*ROOT.glob("agent/**/*.py"), *ROOT.glob("controller/**/*.py"), *ROOT.glob("common/**/informer.py")):
        tree = ast.parse(path.read_text())
        constants = dict(_constants(tree))
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module in WIRE_EVENTS:
                source = ROOT / f"{node.module.removeprefix('inplace.').replace('.', '/')}.py"
                constants |= _constants(ast.parse(source.read_text()))
        for name, level, fields in _logged(tree, constants):
            event = found.setdefault(name, Event())
            event.levels.add(level)
            event.programs.update(_programs(path))
            event.fields.update(fields)
    return found


def _constants(tree: ast.Module) -> dict[str, object]:
    """Return the module's constants of one literal."""
    return {
        ast.unparse(node.target): node.value.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant)
    }


def _logged(tree: ast.Module, constants: Mapping[str, object]) -> Iterator[tuple[str, str, set[str]]]:
    """Yield (event, level, fields) of each call of a log and of `log_line`, and each StartError's event."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "event":
                    yield str(ast.literal_eval(one.value)), "error", {"message", "then"}
        if not isinstance(node, ast.Call):
            continue
        texts = [_text(argument, constants) for argument in node.args]
        fields = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
        owner, _, called = ast.unparse(node.func).rpartition(".")
        if called in LEVELS and owner.lower().endswith("log") and texts[0]:
            yield texts[0], called, fields
        elif called in ("log_line", "write"):  # each has the level before the event
            for level, event in pairwise(texts):
                if level in LEVELS and event:
                    yield event, level, fields


def _text(argument: ast.expr, constants: Mapping[str, object]) -> str:
    value = argument.value if isinstance(argument, ast.Constant) else constants.get(ast.unparse(argument))
    return value if isinstance(value, str) else ""


def _programs(path: Path) -> tuple[str, ...]:
    if path.parts[len(ROOT.parts)] != "agent":
        return ("controller",)
    if path.stem in SHARED:
        return ("agent", "guard")
    return ("guard",) if path.stem.startswith(GUARDS) else ("agent",)


def _row(name: str, event: Event) -> str:
    levels = ", ".join(level for level in LEVELS if level in event.levels)
    fields = ", ".join(f"`{one}`" for one in sorted(event.fields - {"message", "then", "cure", "epoch"}))
    return f"| `{name}` | {levels} | {', '.join(sorted(event.programs))} | {fields} | {SENTENCES.get(name, '?')} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
