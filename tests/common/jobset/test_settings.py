"""The table of settings: each annotation is read by one grammar, and what cannot be read says so."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.jobset.settings import (
    AGENT,
    BARRIER,
    ESCALATION,
    FAILURES,
    FENCE_AFTER,
    NODES,
    OF_GROUPS,
    RESTART,
    RESTART_ON,
    STALL,
    Setting,
    carried,
)
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire


@pytest.mark.parametrize(
    ("setting", "text", "meaning"),
    [
        (RESTART, "containers", {"depth": "containers"}),
        (RESTART, "depth=process,clean-after=0", {"depth": "process", "clean-after": 0}),
        (RESTART, " save-within=60 , window=300 ", {"save-within": 60, "window": 300}),
        (FAILURES, "3", {"no-progress": 3}),
        (FAILURES, "backoff=0", {"backoff": 0}),
        (FAILURES, "no-progress=16,short=9,backoff=5,backoff-max=3600", None),
        (ESCALATION, "ReplacePod=2,InPlace=64,window=2592000", {"ReplacePod": 2, "InPlace": 64, "window": 2592000}),
        (BARRIER, "600", {"deadline": 600}),
        (BARRIER, "deadline=1,action=RecreateJobs", {"deadline": 1, "action": "RecreateJobs"}),
        (STALL, "0", {"after": 0.0}),
        (STALL, "after=0.5,start=604800", {"after": 0.5, "start": 604800.0}),
        (RESTART_ON, "loss", {"kinds": {"loss"}}),
        (RESTART_ON, "slow+loss", {"kinds": {"loss", "slow"}}),
        (NODES, "2", {"failures": 2}),
        (NODES, "failures=8,within=60,percent=100,marked=stay", None),
        (FENCE_AFTER, "15", {"seconds": 15}),
        (AGENT, "off", {"added": "off"}),
        (
            AGENT,
            "workers=a + b,limits.cpu=100m,memory=64Mi",
            {"workers": ("a", "b"), "limits.cpu": "100m", "memory": "64Mi"},
        ),
    ],
)
def test_a_value_means_what_it_says(setting: Setting, text: str, meaning: dict[str, Any] | None) -> None:
    """A number or a word alone is the first part's; an absent annotation says nothing."""
    found = setting.read({setting.key: text})
    assert meaning is None or found == meaning
    assert len(found) == text.count("=") or "=" not in text
    assert setting.read({}) == {}


BAD = [
    (RESTART, "deep", "depth: expected process or containers, saw 'deep'"),
    (RESTART, "clean-after=1001", "clean-after: expected an integer from 0 to 1000, saw '1001'"),
    (FAILURES, "17", "no-progress: expected an integer from 1 to 16, saw '17'"),
    (FAILURES, "5/300", "saw '5/300'"),
    (FAILURES, "backoff=-1", "backoff: expected an integer from 0 to 3600, saw '-1'"),
    (FAILURES, "no-progress=3,short=604801", "short: expected an integer from 1 to 604800, saw '604801'"),
    (ESCALATION, "Fail=1", "of the names InPlace, ReplacePod, RecreateJob, RecreateJobs, window, mode, saw 'Fail'"),
    (ESCALATION, "InPlace=65", "InPlace: expected an integer from 1 to 64, saw '65'"),
    (ESCALATION, "InPlace=1,InPlace=2", "each once"),
    (ESCALATION, "InPlace=1,", "each once"),
    (BARRIER, "604801", "deadline: expected an integer from 0 to 604800, saw '604801'"),
    (BARRIER, "deadline=9,action=Panic", "action: expected Event or RecreateJobs, saw 'Panic'"),
    (STALL, "0.1", "after: expected seconds from 0.5 to 604800, or 0 for off, saw '0.1'"),
    (STALL, "start=soon", "start: expected seconds from 0.5 to 604800, or 0 for off, saw 'soon'"),
    (STALL, "nan", "saw 'nan'"),
    (RESTART_ON, "busy", "expected some of loss, slow, steps, stall, with + between, saw 'busy'"),
    (RESTART_ON, "loss,slow", "saw 'loss,slow'"),
    (NODES, "9", "failures: expected an integer from 1 to 8, or off, saw '9'"),
    (NODES, "failures=2,within=59", "within: expected an integer from 60 to 2592000, saw '59'"),
    (NODES, "failures=2,percent=101", "percent: expected an integer from 1 to 100, saw '101'"),
    (NODES, "marked=Stay", "marked: expected leave or stay, saw 'Stay'"),
    (FENCE_AFTER, "14", "expected an integer from 15 to 600, saw '14'"),
    (AGENT, "perhaps", "added: expected on or off, saw 'perhaps'"),
    (AGENT, "cpu=much", "cpu: expected an amount such as 100m or 64Mi, saw 'much'"),
    (AGENT, "gpu=1", "saw 'gpu'"),
    (AGENT, "workers=a++b", "workers: expected names of containers with + between, saw 'a++b'"),
]


@pytest.mark.parametrize(("setting", "text", "words"), BAD)
def test_a_value_that_means_nothing_is_refused_in_words(setting: Setting, text: str, words: str) -> None:
    """The sentence has the place, the expected and the seen value, what holds meanwhile, and the cure."""
    with pytest.raises(RemoteProtocolError) as raised:
        setting.read({setting.key: text})
    said = str(raised.value)
    assert said.startswith(f"metadata.annotations[{setting.key}]")
    assert words in said
    assert said.endswith(f"; {setting.effect}; correct it")
    assert setting.read_or_default({setting.key: text}) == {}


@pytest.mark.parametrize("setting", OF_GROUPS, ids=lambda setting: setting.key)
@pytest.mark.parametrize("text", ["", "=", ",", "x" * 100_000, "9" * 10_000, "a=b=c", "\u0663", "=1", "1=", "None"])
def test_no_text_is_too_bad_for_a_short_sentence(setting: Setting, text: str) -> None:
    """Nobody's text makes a long condition."""
    with pytest.raises(RemoteProtocolError) as raised:
        setting.read({setting.key: text})
    assert len(str(raised.value)) < 500


def test_a_part_is_added_unless_it_is_there() -> None:
    """What a user said stays."""
    assert RESTART.with_part({}, "clean-after", 0) == {wire.RESTART: "clean-after=0"}
    assert RESTART.with_part({wire.RESTART: "containers"}, "clean-after", 0) == {
        wire.RESTART: "clean-after=0,depth=containers"
    }
    for text in ("clean-after=3", "process,clean-after=3"):
        assert RESTART.with_part({wire.RESTART: text}, "clean-after", 0) == {wire.RESTART: text}


def test_pods_carry_what_their_agents_read() -> None:
    """Each part of the restart as an annotation of its own; nothing of a text that cannot be read."""
    every = "depth=process,save-within=60,clean-after=3,window=9,keep=64Gi"
    assert carried({wire.RESTART: every}) == {
        wire.RESTART_DEPTH: "process",
        wire.SAVE_WITHIN: "60",
        wire.CLEAN_AFTER: "3",
        wire.START_WINDOW: "9",
        wire.KEEP: "64Gi",
    }
    assert carried({wire.RESTART: "process,clean-after=3"}) == {}


def test_every_key_is_known_once() -> None:
    """No two settings share a name, and no part stands twice in one."""
    assert len({setting.key for setting in OF_GROUPS}) == len(OF_GROUPS)
    for setting in OF_GROUPS:
        assert len({part.name for part in setting.parts}) == len(setting.parts)
