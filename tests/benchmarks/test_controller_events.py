"""The benchmark of one Pod event: every announcement is read and counted, at any rate."""

from __future__ import annotations

import sys

import msgspec
import pytest

from benchmarks.controller_events import POD_BYTES, main, measure, page_of, pod_event
from inplace.common.jobset.kinds import POD_CODEC
from inplace.controller.tracking.pods import epoch_of


def test_every_announcement_is_counted() -> None:
    """At each rate a round ends when all Pods stand at the barrier."""
    figures = measure(40, 1)
    assert [*figures.rows] == ["as fast as they are read", "2000 a second", "500 a second"]
    assert all(row["cpu_us"][0] > 0 for row in figures.rows.values())


def test_an_event_weighs_what_a_real_one_weighs() -> None:
    """A played event is decoded as a watch's line, and is an announcement."""
    line = pod_event(7, 2, "MODIFIED")
    assert abs(len(line) - POD_BYTES) < POD_BYTES // 20
    assert epoch_of(POD_CODEC.decode_change(line).object) == 2
    assert msgspec.json.decode(line)["object"]["spec"]["containers"]


@pytest.mark.parametrize("arguments", [["--pods", "150"]])
def test_impossible_sizes_are_refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal names the allowed sizes."""
    monkeypatch.setattr(sys, "argv", ["controller_events", *arguments])
    with pytest.raises(SystemExit):
        main()
    assert "expected up to 100 pods or a multiple of it" in capsys.readouterr().err


def test_a_list_comes_in_pages() -> None:
    """The played server returns as many Pods as a request's limit allows, and a token for the next page."""
    objects = [b"0", b"1", b"2"]
    first = msgspec.json.decode(page_of(objects, b"GET /api/v1/pods?limit=2 HTTP/1.1\r\n\r\n"))
    second = msgspec.json.decode(page_of(objects, b"GET /api/v1/pods?limit=2&continue=2 HTTP/1.1\r\n\r\n"))
    assert (first["items"], first["metadata"]["continue"]) == ([0, 1], "2")
    assert (second["items"], "continue" in second["metadata"]) == ([2], False)
    assert msgspec.json.decode(page_of(objects, b"GET /api/v1/pods HTTP/1.1\r\n\r\n"))["items"] == [0, 1, 2]
