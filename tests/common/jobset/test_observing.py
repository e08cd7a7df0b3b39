"""What would have been done is drawn from the restarts that the status keeps, and judged by what came after."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from inplace.common.jobset.bad_nodes import bad_nodes_of, suspects_of
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.crash_loop import CrashLoop
from inplace.common.jobset.notices import GroupNotice
from inplace.common.jobset.observing import Judged, answers, judged, known_nodes, restarts_of, suspected
from inplace.common.jobset.restart_history import FIELD, PastRestart, fields_of
from inplace.common.jobset.settings import OF_GROUPS
from inplace.common.wire import names as wire

NOW = "2026-01-01T00:30:00Z"
NOW_S = unix_time(NOW) or 0.0
POLICY = suspects_of({})
assert POLICY is not None


def died(minute: int, node: str, step: int | None = None, **more: Any) -> PastRestart:
    """Return a restart after a worker's death on a node."""
    told: dict[str, Any] = {"trigger": "worker_exit", "exit_code": 1, "pod": f"pod-of-{node}"} | more
    return PastRestart(2 + minute, started_at=f"2026-01-01T00:{minute:02}:00Z", node=node, last_step=step, **told)


def bad(*restarts: PastRestart, now: str = NOW) -> list[str]:
    """Return the nodes that are bad by default."""
    assert POLICY is not None
    return [one.node for one in suspected(restarts, POLICY, now) if one.is_bad]


def test_two_first_failures_within_an_hour_make_a_node_bad_until_an_hour_after() -> None:
    """The second one is the sign."""
    assert bad(died(1, "n1")) == []
    assert bad(died(1, "n1"), died(9, "n1")) == ["n1"]
    assert bad(died(1, "n1"), died(9, "n1"), now="2026-01-01T01:00:59Z") == ["n1"]
    assert bad(died(1, "n1"), died(9, "n1"), now="2026-01-01T01:05:00Z") == []


def test_a_failure_that_wanders_blames_no_node() -> None:
    """Two of three are on one node: bad. Two of four are not."""
    assert bad(died(1, "n1"), died(2, "n2"), died(3, "n1")) == ["n1"]
    assert bad(died(1, "n1"), died(2, "n2"), died(3, "n3"), died(4, "n1")) == []


@pytest.mark.parametrize(
    "more",
    [
        {"last_line": "ValueError: bad sample 4711"},
        {"trigger": "pod_lost"},
        {"trigger": "slow", "reason": "SlowSteps"},
        {"trigger": "manual"},
    ],
    ids=["the script", "a lost pod", "any rank may tell it", "a person"],
)
def test_what_says_nothing_of_the_node_does_not_count(more: dict[str, Any]) -> None:
    """As with the annotation."""
    assert bad(died(1, "n1", **more), died(9, "n1", **more)) == []


def test_the_restart_that_is_under_way_counts() -> None:
    """A spare is chosen before its entry is written."""
    failure = {"pod": "p", "node": "n1", "exitCode": 1}
    entry = {"epoch": 9, "trigger": "worker_exit", "startedAt": "2026-01-01T00:20:00Z", "firstFailure": failure}
    status = {FIELD: fields_of([died(1, "n1")]), wire.LAST_GROUP_RESTART: entry}
    assert [one.epoch for one in restarts_of(status)] == [3, 9]
    (record,) = known_nodes(status, None, POLICY, NOW)
    assert (record.is_bad, record.pod) == (True, "p")
    assert known_nodes(status, None, None, NOW) == ()
    assert known_nodes(status, bad_nodes_of({wire.NODES: "2"}), None, NOW) == ()
    assert len(restarts_of(status | {wire.LAST_GROUP_RESTART: entry | {"syncedAt": NOW}})) == 1


@pytest.mark.parametrize(
    ("text", "acts", "tells", "observes"),
    [
        (None, False, True, False),
        ("2", True, False, False),
        ("off", False, False, False),
        ("marked=stay", False, True, False),
        ("failures=3,mode=observe", False, True, True),
        ("mode=observe", False, True, True),
    ],
)
def test_who_asks_is_obeyed(text: str | None, acts: bool, tells: bool, observes: bool) -> None:
    """Off is off."""
    annotations = {} if text is None else {wire.NODES: text}
    suspects = suspects_of(annotations)
    assert (bad_nodes_of(annotations) is not None, suspects is not None) == (acts, tells)
    assert (suspects is not None and suspects.is_observed) == observes


def drawn(annotations: dict[str, str], *restarts: PastRestart, **more: Any) -> list[str]:
    """Return the kinds of answers to the last of some restarts."""
    given = {"suspects": suspects_of(annotations), "loop": CrashLoop(), "notices": (), "now": NOW} | more
    return [kind for kind, _ in answers(annotations, restarts, **given)]


def test_an_escalation_is_drawn_step_by_step() -> None:
    """Each drawn step counts as used."""
    annotations = {wire.ESCALATION: "InPlace=1,ReplacePod=1,mode=observe", wire.NODES: "off"}
    kept: list[PastRestart] = []
    for minute, kind in enumerate(["InPlace", "ReplacePod", "Fail"]):
        new = died(minute, f"n{minute}")
        assert drawn(annotations, *kept, new) == [kind]
        kept.append(replace(new, observed=kind))
    assert drawn(annotations | {wire.ESCALATION: "InPlace=1"}, *kept) == []
    assert drawn(annotations, died(1, "n1", trigger="manual")) == []


def test_no_progress_is_drawn_where_it_is_observed() -> None:
    """Where it acts the JobSet has failed."""
    loop = CrashLoop(epochs=3)
    assert drawn({wire.FAILURES: "no-progress=3,mode=observe"}, died(1, "n1"), loop=loop) == ["no-progress"]
    assert drawn({wire.FAILURES: "no-progress=4,mode=observe"}, died(1, "n1"), loop=loop) == []
    assert drawn({wire.FAILURES: "no-progress=3"}, died(1, "n1"), loop=loop) == []


@pytest.mark.parametrize(
    ("kinds", "restart_on", "found"),
    [
        (["stall"], None, ["stall"]),
        (["stall", "pause"], None, ["stall"]),
        (["pause"], None, ["pause"]),
        (["slow"], None, []),
        (["stall"], "stall", []),
        (["stall"], "kinds=stall,mode=observe", ["stall"]),
        (["pause"], "loss", ["pause"]),
    ],
)
def test_a_silence_is_drawn_when_its_epoch_ends(kinds: list[str], restart_on: str | None, found: list[str]) -> None:
    """What acts on it has told it as the restart's cause."""
    notices = [GroupNotice(kind, 2, value=400, rank="rank-1", pod="p") for kind in kinds]
    annotations = {} if restart_on is None else {wire.RESTART_ON: restart_on}
    assert drawn(annotations, died(1, "n1"), notices=notices) == found
    assert drawn(annotations, died(1, "n1", trigger="resize"), notices=notices) == [
        kind for kind in found if kind == "pause"
    ]


def test_an_answer_is_right_if_what_it_would_have_ended_came_again() -> None:
    """Wrong if an hour was well, or a higher step came; until then nobody knows."""
    node, pod = died(1, "n1", observed="nodes"), died(1, "n1", observed="ReplacePod")
    assert judged([node, died(9, "n1")], NOW_S) == {"nodes": Judged(1, 1, 0)}
    assert judged([node, died(9, "n2")], NOW_S) == {"nodes": Judged(1, 0, 0)}
    assert judged([node, died(9, "n2")], NOW_S + 3600) == {"nodes": Judged(1, 0, 1)}
    assert judged([pod, died(9, "n1")], NOW_S) == {"ReplacePod": Judged(1, 1, 0)}
    assert judged([pod, died(9, "n2")], NOW_S + 3600) == {"ReplacePod": Judged(1, 0, 1)}
    hopeless = died(1, "n1", step=7, observed="no-progress")
    assert judged([hopeless], NOW_S + 9e9) == {"no-progress": Judged(1, 0, 0)}
    assert judged([hopeless, died(9, "n1", step=7)], NOW_S) == {"no-progress": Judged(1, 1, 0)}
    assert judged([hopeless, died(9, "n1", step=7), died(9, "n1", step=8)], NOW_S) == {"no-progress": Judged(1, 0, 1)}
    silences = [died(1, "n1", observed="stall"), died(2, "n2", observed="pause+InPlace")]
    assert judged(silences, NOW_S) == {"stall": Judged(2, 1, 1)}
    assert str(Judged(2, 1, 1)) == "would have acted 2 times: 1 right, 1 wrong"
    assert str(Judged(1, 0, 0)) == "would have acted once: 0 right, 0 wrong, of 1 nobody knows yet"


@pytest.mark.parametrize("page", ["defaults.md", "nodes.md"])
def test_the_examples_of_a_page_can_be_read(page: str) -> None:
    """Each line that has one of our annotations and a value."""
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    known = {setting.key: setting for setting in OF_GROUPS}
    found = re.findall(r"^    (inplace\.dev/[a-z-]+): (?:\"([^\"]+)\"|(\S+))", text, re.MULTILINE)
    assert len(found) >= 3
    for key, quoted, plain in found:
        assert known[key].read({key: quoted or plain})
