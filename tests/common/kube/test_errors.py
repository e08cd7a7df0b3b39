"""The API server's errors as exceptions."""

from __future__ import annotations

from inplace.common.kube.errors import Invalid, error_from_status


def test_a_long_message_is_cut_in_the_text_alone() -> None:
    """A long message is cut only in the error's text; its `message` is whole, for code that searches it."""
    error = error_from_status({"reason": "Invalid", "message": "x" * 1_000_000}, 422)
    assert isinstance(error, Invalid)
    assert len(str(error)) < 2_100
    assert str(error).endswith("x (998000 characters more)")
    assert len(error.message) == 1_000_000


def test_a_short_message_is_whole() -> None:
    """A short message is whole in the text, after the code and the reason."""
    assert str(error_from_status({"reason": "Conflict", "message": "stale"}, 409)) == "409 Conflict: stale"
