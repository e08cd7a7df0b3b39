"""Text of other users reaches a terminal or a pipe only as visible text."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from inplace.cli.connection import Target
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.refusal import CliExit
from inplace.cli.status.document import status_data
from inplace.cli.status.explain import explanation_data, explanation_lines, run_explain
from inplace.cli.status.timeline import RestartTimeline, Row, timeline_lines, timeline_title
from inplace.cli.status.view import list_picture, status_picture
from inplace.cli.status.watch import watch_line
from inplace.cli.terminal.console import VisibleConsole
from inplace.cli.terminal.screen import print_data, show
from inplace.cli.terminal.visible import VisibleText, guard_streams, raw_of, visible
from inplace.common.jobset.notices import GroupNotice
from inplace.common.wire import names as wire
from inplace.common.wire.notice import KINDS
from inplace.controller.api.object_events import Event
from tests.cli.command import REPOSITORY, run
from tests.cli.facts import explanation_of, jobset, pod

# Clear the screen; set the title; fill the clipboard; the same by C1; turn the text round; hide the line.
NAME = "\x1b[2J\x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x9b2J\x9d0;t\x9c\u202egnp.\u2066x\u2069\x00\x08\x7f\rfake"
EVIL = f"{NAME}\nNothing keeps it"  # the API server accepts no name of two lines
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # rich's own


def is_harmless(text: str) -> bool:
    """Return whether a text has no control character that a terminal obeys or hides."""
    return not any(
        (unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") and one not in "\n\t")
        or unicodedata.bidirectional(one) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        or one in "\u200e\u200f\u061c"
        for one in text
    )


@given(st.text())
def test_every_control_is_escaped(text: str) -> None:
    """Escaping leaves no control character, changes nothing the second time, and keeps harmless text."""
    assert is_harmless(visible(text))
    assert visible(visible(text)) == visible(text)
    assert visible(text) == text or not is_harmless(text)


@given(st.text().map(lambda text: text + EVIL))
def test_json_says_the_same(text: str) -> None:
    """A program that reads the escaped JSON gets the original text."""
    raw = json.dumps(text, ensure_ascii=False)
    assert json.loads(visible(raw)) == text


def hostile() -> tuple[dict[str, Any], list[PodFact], list[Event]]:
    """Return a JobSet in trouble, its Pods and its Events, with EVIL wherever its namespace's users may write."""
    conditions = [
        {"type": kind, "status": "True", "reason": EVIL, "message": EVIL}
        for kind in ("SpecProblem", "BarrierWaiting", "RestartingJobSet", EVIL)
    ]
    failure = {"pod": EVIL, "node": EVIL, "container": EVIL, "exitCode": 1, "reason": EVIL, "message": EVIL}
    last = {"epoch": 3, "trigger": EVIL, "startedAt": EVIL, "firstFailure": failure}
    last["firstSilent"] = {"pods": [EVIL], "count": EVIL, "step": EVIL, "quietMilliseconds": EVIL}
    last["slowRanks"] = [{"pod": EVIL, "node": EVIL, "rank": EVIL, "workMilliseconds": 3100}]
    last["typicalWorkMilliseconds"] = 1000
    status = wire.status_of_epochs(2, 2) | {"conditions": conditions, wire.LAST_GROUP_RESTART: last}
    raw = jobset((1, 3), status=status)
    raw["metadata"]["name"] = raw["metadata"]["namespace"] = raw["spec"]["managedBy"] = NAME
    return raw, [pod(0, 2), pod(1, 2)], [Event(reason=EVIL, message=EVIL, type="Warning")]


def restarted(state: GroupState, pods: list[PodFact]) -> tuple[RestartTimeline, str]:
    """Return the timeline of the last restart, of one Pod, and its title."""
    timeline = RestartTimeline(3, 0.0, 10.0, 7.0, [Row(NAME, 1, (1.0, 2.0, 3.0, 7.0))], state.last)
    return timeline, timeline_title(state, timeline, pods)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_every_view_is_harmless(is_terminal: bool) -> None:
    """Status, list, explain, timeline and the watch's lines are harmless on a terminal and in a pipe."""
    raw, pods, events = hostile()
    notices = [GroupNotice(kind, 2, EVIL, 310, EVIL, None, EVIL, EVIL, EVIL) for kind in KINDS]
    state = replace(group_state(raw, pods), notices=notices)
    explanation = explanation_of(state, pods, events, {NAME: events}, {NAME: EVIL}, [EVIL])
    screen = VisibleConsole(file=io.StringIO(), width=10_000, highlight=False, force_terminal=is_terminal)
    lines: list[RenderableType] = [line for line, _ in explanation_lines(explanation)]
    lines += timeline_lines(*restarted(state, pods), 100)
    for part in (status_picture(state, now_s=0.0, columns=100), list_picture([raw], now_s=0.0), *lines):
        screen.print(part)
    screen.print(watch_line(state, "table"), markup=False)
    assert isinstance(screen.file, io.StringIO)
    printed = screen.file.getvalue()
    assert is_harmless(STYLE.sub("", printed) if is_terminal else printed)
    assert "\\u001b[2J" in printed
    assert "310 steps in a row or more" in printed
    assert "3.1 s of its own work" in printed
    assert not any(line.startswith("Nothing keeps it") for line in printed.splitlines())


def test_what_programs_read_is_the_text_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON and YAML output is harmless to print and holds the original text."""
    raw, pods, events = hostile()
    state = group_state(raw, pods)
    for data in (status_data(state), explanation_data(explanation_of(state, pods, events))):
        for output, load in (("json", json.loads), ("yaml", yaml.safe_load)):
            print_data(data, output)  # type: ignore[arg-type]
            printed = capsys.readouterr().out
            assert is_harmless(printed)
            assert load(printed)["name"] == NAME


def test_refusals_and_prints_pass_the_guard(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both streams escape refusals and prints; a console keeps its own colours."""
    file = EVIL.replace("\0", "")
    with monkeypatch.context():
        import sys

        monkeypatch.setattr(sys, "stdout", sys.stdout)
        monkeypatch.setattr(sys, "stderr", sys.stderr)
        guard_streams()
        guard_streams()
        assert not isinstance(raw_of(sys.stdout), VisibleText)
        assert run_explain(Target(kubeconfig=file), "train", output="table") == CliExit.NO_CLUSTER
        print(EVIL)
        show(EVIL)
    printed = capsys.readouterr()
    assert is_harmless(printed.out)
    assert is_harmless(printed.err)
    assert printed.out.count("\\u001b[2J") == 2
    assert "\\u001b]52;c" in printed.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "place"),
    [
        *[("lint", place) for place in ("name", "image", "kind")],
        *[("inject", place) for place in ("name", "command")],
        ("demo", "nothing but"),
    ],
)
def test_a_stranger_s_manifest_is_harmless(tmp_path: Path, command: str, place: str) -> None:
    """A hostile manifest's names, values and errors, and inject's difference, are printed harmlessly."""
    text, said = (REPOSITORY / "examples" / "plain.yaml").read_text(), json.dumps(EVIL)
    text = {
        "name": text.replace("name: plain", f"name: {said}"),
        "image": text.replace("image: inplace-example", f"image: {said}"),
        "kind": text.replace("kind: JobSet", f"kind: {said}"),
        "command": text.replace("[python3, -m, inplace.examples.train]", f"[{said}, \u202egnp]"),
        "nothing but": EVIL,
    }[place]
    file = tmp_path / f"{EVIL.replace('/', '_').replace(chr(0), '')}.yaml"
    file.write_text(text)
    options = ["--runtime", "model"] if command == "demo" else []
    result = run(command, *options, "--file", str(file))
    assert is_harmless(result.stderr)
    assert is_harmless(result.stdout) or (command, place) == ("inject", "command")  # kubectl's, byte for byte
    assert "Traceback" not in result.stderr


def test_a_live_picture_moves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that is drawn again goes back over the last one, and still obeys nobody's text."""
    terminal = io.StringIO()
    monkeypatch.setattr("sys.stdout", VisibleText(terminal))
    console = VisibleConsole(force_terminal=True, width=80)
    with Live(console=console, auto_refresh=False) as picture:  # it puts a stream of its own before ours
        for number in (1, 2):
            picture.update(Text(f"{number} {EVIL}", style="bold"), refresh=True)
    written = terminal.getvalue()
    assert "\\u001b[2K" not in written
    assert "\x1b[2K" in written  # erase the line
    assert "\x1b[2J" not in written  # NAME's
    assert "\\u001b[2J" in written
