"""The API server's errors as exceptions."""

from __future__ import annotations

import pytest

from inplace.agent.announce.jobset_events import JobSetEvents
from inplace.common.kube.answers import object_of
from inplace.common.kube.errors import Forbidden, Invalid, NotFound, ServerError, check_answer, error_from_status
from inplace.common.kube.http.request import GarbledError, Response


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


LOGIN = b"<!DOCTYPE html><html><head><title>Sign in</title><style>a{}</style></head><body><p>Your session\nended</p>"


@pytest.mark.parametrize(
    ("status", "headers", "body", "words"),
    [
        (
            200,
            {"content-type": "text/html; charset=utf-8"},
            LOGIN,
            "status 200, text/html; charset=utf-8, 'Sign in Your session ended'",
        ),
        (
            302,
            {"location": "https://login.example/?rd=%2Fapi"},
            b"",
            "a redirect to 'https://login.example/?rd=%2Fapi', without a body",
        ),
        (302, {}, b"", "status 302, no content type, without a body"),
        (307, {"content-type": "application/json"}, b"{}", "status 307"),
        (200, {"content-type": "text/plain"}, b"welcome \x00\xff" * 100_000, "text/plain, 'welcome"),
    ],
)
def test_an_answer_of_a_proxy_is_no_success(status: int, headers: dict[str, str], body: bytes, words: str) -> None:
    """A redirect or a page is garbled, with its content type and the first words that a browser would show."""
    with pytest.raises(GarbledError) as raised:
        check_answer(Response(status, headers, body))
    assert words in str(raised.value)
    assert "is a proxy or a login page in front of it?" in str(raised.value)
    assert len(str(raised.value)) < 600


def test_a_refusal_that_is_a_page_says_so() -> None:
    """A refusal by a proxy's page keeps its class and names the content type; a Status and a plain text stay."""
    with pytest.raises(Forbidden, match="403 error: no API server's answer, but status 403, text/html, 'Sign in Your"):
        check_answer(Response(403, {"content-type": "text/html"}, LOGIN))
    with pytest.raises(NotFound, match="404 error: 404 page not found"):
        check_answer(Response(404, {"content-type": "text/plain"}, b"404 page not found"))


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 200_000])
def test_a_deep_answer_is_garbled_and_no_recursion_error(body: bytes) -> None:
    """JSON that nests 200,000 deep raises the errors that callers know: of an answer, a refusal, a list."""
    with pytest.raises(GarbledError, match="expected an object of Kubernetes, saw"):
        object_of(body)
    with pytest.raises(ServerError, match="500 error: "):
        check_answer(Response(500, {}, body))
    with pytest.raises(GarbledError):
        JobSetEvents().read_list(body)
    with pytest.raises(GarbledError):
        JobSetEvents().read_line(body)


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'"x"', b"{}", b'{"error": "login"}', b'{"kind": "X", "metadata": []}', b"\xff"]
)
def test_json_of_another_service_is_garbled(body: bytes) -> None:
    """An answer without a kind, or with metadata of another form, is no object of Kubernetes."""
    with pytest.raises(GarbledError, match="expected an object of Kubernetes, saw"):
        object_of(body)


def test_an_api_servers_answers_pass() -> None:
    """JSON under any of its media types passes, and so does an answer without a content type."""
    for headers in (
        {},
        {"content-type": "application/json;as=Table;v=v1"},
        {"content-type": "application/merge-patch+json"},
    ):
        check_answer(Response(201, headers, b"{}"))
