"""The protocol page is what the code says."""

from tests.docs.protocol_page import PAGE, page


def test_the_protocol_page_is_generated_from_the_table() -> None:
    """docs/protocol.md equals what `make rewrite` would write."""
    assert page() == PAGE.read_text()
