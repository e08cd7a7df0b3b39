"""
One tree of API errors, built at one boundary: `error_from_response`.

Source: metav1.Status and its reasons (k8s.io/apimachinery/pkg/apis/meta/v1/types.go).
"""

from __future__ import annotations

import json

from inplace.common.bare.typed import TYPE_CHECKING, Any
from inplace.common.kube.http.request import GarbledError, Response

if TYPE_CHECKING:
    import re

_TEXT_MAX = 256  # characters of an answer that is not a Status; enough to recognise a proxy's error page
_MESSAGE_MAX = 2_000  # characters of the text; a refusal may repeat a template of a megabyte, and logs keep each one
_PAGE_MAX = 8_192  # bytes of a page that are looked at for words
_WORDS_MAX = 120  # characters of them that are told
RETRY_AFTER_S_MAX = 120.0  # the API server asks for at most 32 s; a proxy's hour would be an outage of our own


class ApiError(Exception):
    """The API server answered with an error; the text has the beginning of a long message.

    Attributes:
        code: HTTP status.
        reason: Status reason, e.g. "Conflict"; "" when the answer was not a Status.
        message: the server's words.
        status: the whole Status object, {} when the answer was not one.
    """

    def __init__(self, code: int, reason: str, message: str, status: dict[str, Any] | None = None) -> None:
        cut = f" ({len(message) - _MESSAGE_MAX} characters more)" if len(message) > _MESSAGE_MAX else ""
        super().__init__(f"{code} {reason or 'error'}: {message[:_MESSAGE_MAX]}{cut}")
        self.code = code
        self.reason = reason
        self.message = message
        self.status = status or {}

    @property
    def details(self) -> dict[str, Any]:
        """Return what the Status has beside its words; {} where that is nothing, or no mapping."""
        details = self.status.get("details")
        return details if isinstance(details, dict) else {}


class BadRequest(ApiError):
    """400: we sent nonsense."""


class Unauthorized(ApiError):
    """401: credentials missing, wrong or expired."""


class Forbidden(ApiError):
    """403: RBAC or admission says no."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: another client wrote in between; decide again on the new object."""


class AlreadyExists(Conflict):
    """409 on create."""


class Expired(ApiError):
    """410: the resourceVersion is gone from history; read fresh state."""


class Invalid(ApiError):
    """422: the object breaks a rule; retrying the same object cannot help."""


class Throttled(ApiError):
    """429: wait `after_s` seconds (0 when the server named none)."""

    after_s: float = 0.0


class ServerError(ApiError):
    """5xx: retry with backoff, not before `after_s` seconds."""

    after_s: float = 0.0


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: Throttled,
}
_BY_REASON: dict[str, type[ApiError]] = {"AlreadyExists": AlreadyExists, "Expired": Expired, "Gone": Expired}


def error_from_status(status: dict[str, Any], code: int = 0, after_s: float = 0.0) -> ApiError:
    """Build the error that a metav1.Status names (an ERROR watch event carries one), whatever else it holds."""
    said = status.get("code")
    code = said if isinstance(said, int) and said > 0 else code or 500
    reason = str(status.get("reason") or "")
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code) or (ServerError if code >= 500 else ApiError)
    error = kind(code, reason, str(status.get("message") or "no message"), status)
    if isinstance(error, Throttled | ServerError):
        retry_s = error.details.get("retryAfterSeconds")
        error.after_s = max(after_s, float(retry_s) if isinstance(retry_s, int) else 0.0)
        error.after_s = min(error.after_s, RETRY_AFTER_S_MAX)
    return error


def check_answer(response: Response, *, expects_json: bool = True) -> None:
    """Return where an API server did what it was asked.

    A proxy that wants a login answers with a redirect or with a page, also to a write: that is no success.

    Args:
        response: its answer.
        expects_json: not, where the answer is a log or metrics.

    Raises:
        ApiError: the server refused.
        GarbledError: the answer is not an API server's.
    """
    if response.status >= 400:
        raise error_from_response(response)
    kind = response.headers.get("content-type", "")
    if response.status >= 300 or (expects_json and kind and "json" not in kind):
        raise GarbledError(f"expected an API server's answer in JSON, saw {_described(response)}")


def error_from_response(response: Response) -> ApiError:
    """Build the error for an answer with a status of 400 or more."""
    try:
        status = json.loads(response.body)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        kind = response.headers.get("content-type", "")
        is_page = bool(kind) and "json" not in kind and "text/plain" not in kind
        text = response.body[:_TEXT_MAX].decode("utf-8", "replace")
        status = {"message": f"no API server's answer, but {_described(response)}" if is_page else text}
    return error_from_status(status, response.status, _retry_after_s(response.headers.get("retry-after")))


def _described(response: Response) -> str:
    """Return what an answer is, for somebody who has to find the proxy that sent it."""
    kind = response.headers.get("content-type", "no content type")
    words = first_words(response.body)
    where = response.headers.get("location", "")
    parts = [f"status {response.status}", f"{kind[:_TEXT_MAX]}"]
    parts += [f"a redirect to {where[:_TEXT_MAX]!r}"] if where else []
    parts += [repr(words)] if words else ["without a body"]
    return f"{', '.join(parts)}; is a proxy or a login page in front of it?"


def first_words(body: bytes) -> str:
    """Return the first words of an answer; of a page, what a browser would show."""
    import re  # of a rare case: an agent's start has no time for it

    text = body[:_PAGE_MAX].decode("utf-8", "replace")
    if text.lstrip().startswith("<"):
        text = re.sub(r"(?is)<(script|style|head)\b.*?(</\1\s*>|$)", _title_of, text)
        text = re.sub(r"<[^>]*(>|$)", " ", text)
    return " ".join(text.split())[:_WORDS_MAX]


def _title_of(part: re.Match[str]) -> str:
    """Return the title in a page's head, and nothing of scripts."""
    lower = part[0].lower()
    start = lower.find("<title>")
    return part[0][start : lower.find("</title>", start)] + " " if start >= 0 else " "


def _retry_after_s(value: str | None) -> float:
    """Read a Retry-After header in its seconds form; the API server uses no other."""
    return float(value) if value and value.isascii() and value.isdigit() else 0.0
