"""docs/logs.md explains every event of the source."""

from __future__ import annotations

import re

from tests.docs.log_sentences import SENTENCES
from tests.docs.logs_page import events


def test_every_event_has_its_sentence() -> None:
    """And no sentence is left of an event that nobody logs."""
    assert SENTENCES.keys() == events().keys()


def test_events_have_one_form() -> None:
    """One constant name in snake_case each, so that a person or a rule can look for it."""
    assert [name for name in events() if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name)] == []
    assert len(events()) > 90
