"""
The refusals of the API server: one exception that carries a metav1.Status, and a constructor for each refusal.

Guarantees: code, reason and message have the form of the real server's, because clients branch on the first two and
people search for the third.
Source: k8s.io/apimachinery/pkg/api/errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from inplace.common.kube.http.request import Response

JSON_HEADERS = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class StatusCause:
    """One broken rule of an object: the field, the reason and the message."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class StatusError(Exception):
    """A refusal on its way to the client.

    Args:
        plain: answer with this text instead of a Status, as the real server's router does.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_s: int | None = None,
        plain: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s
        self.plain = plain

    def status(self) -> dict[str, Any]:
        """Return the metav1.Status object."""
        details = dict(self.details or {})
        if self.retry_after_s is not None:
            details["retryAfterSeconds"] = self.retry_after_s
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if not self.reason:
            del status["reason"]
        if details:
            status["details"] = details
        return status

    def response(self) -> Response:
        """Return the HTTP answer."""
        if self.plain:
            return Response(self.code, {"content-type": "text/plain; charset=utf-8"}, self.message.encode())
        headers = JSON_HEADERS
        if self.retry_after_s is not None:
            headers = headers | {"retry-after": str(self.retry_after_s)}
        return Response(self.code, headers, msgspec.json.encode(self.status()))


def qualified(plural: str, group: str) -> str:
    """Return `plural.group`, or `plural` in the core group."""
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def forbidden(message: str, details: dict[str, Any] | None = None) -> StatusError:
    """403."""
    return StatusError(403, "Forbidden", message, details=details)


def page_not_found() -> StatusError:
    """404 of the router: no such path."""
    return StatusError(404, "NotFound", "404 page not found\n", plain=True)


def unknown_resource() -> StatusError:
    """404: the group exists, the resource does not."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def not_found(plural: str, group: str, name: str) -> StatusError:
    """404: no such object."""
    details = _about(plural, group, name)
    return StatusError(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', details=details)


def method_not_allowed() -> StatusError:
    """405."""
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    """406: the client accepts no format that this server speaks."""
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {', '.join(accepted)}")


def already_exists(plural: str, group: str, name: str) -> StatusError:
    """409 on create."""
    details = _about(plural, group, name)
    return StatusError(409, "AlreadyExists", f'{qualified(plural, group)} "{name}" already exists', details=details)


def conflict(plural: str, group: str, name: str, why: str) -> StatusError:
    """409: the precondition of a write does not hold."""
    details = _about(plural, group, name)
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=details)


MODIFIED_SINCE = "the object has been modified; please apply your changes to the latest version and try again"


def expired(message: str) -> StatusError:
    """410: the resourceVersion left the history window."""
    return StatusError(410, "Expired", message)


def unsupported_media_type(accepted: Sequence[str], *, is_protobuf: bool = False) -> StatusError:
    """415: the body is in a format that the operation does not take; this server never takes protobuf."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    if is_protobuf:
        message += "; with kubectl: `kubectl create ... --dry-run=client -o yaml | kubectl create -f -`"
    return StatusError(415, "UnsupportedMediaType", message)


def invalid(kind: str, group: str, name: str, causes: Sequence[StatusCause]) -> StatusError:
    """422: the object breaks rules."""
    words = [f"{cause.field}: {cause.message}" for cause in causes]
    joined = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    details = _about(kind, group, name)
    details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    subject = f"{kind}.{group}" if group else kind
    return StatusError(422, "Invalid", f'{subject} "{name}" is invalid: {joined}', details=details)


def denied(plural: str, group: str, name: str, why: str) -> StatusError:
    """422: an admission policy refuses the object."""
    details = _about(plural, group, name)
    details["causes"] = [{"message": why}]
    return StatusError(422, "Invalid", f'{qualified(plural, group)} "{name}" is forbidden: {why}', details=details)


def too_many_requests(retry_after_s: int) -> StatusError:
    """429: priority and fairness rejected the request."""
    message = "Too many requests, please try again later."
    return StatusError(429, "TooManyRequests", message, retry_after_s=retry_after_s)


def too_large_resource_version(wanted: int, current: int) -> StatusError:
    """504: the client has seen a newer state than this server's cache reached in its 3 seconds of patience."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        retry_after_s=1,
    )


def required(field: str, message: str = "Required value") -> StatusCause:
    """Return the cause for a missing field."""
    return StatusCause(field, message, "FieldValueRequired")


def not_supported(field: str, value: Any, supported: Sequence[str]) -> StatusCause:
    """Return the cause for a value outside an enumeration."""
    names = ", ".join(f'"{name}"' for name in supported)
    return StatusCause(field, f"Unsupported value: {show(value)}: supported values: {names}", "FieldValueNotSupported")


def forbidden_field(path: str, why: str) -> StatusCause:
    """Return the cause for a field that must not be there."""
    return StatusCause(path, f"Forbidden: {why}", "FieldValueForbidden")


def too_many(path: str, count: int, limit: int) -> StatusCause:
    """Return the cause for a list with too many items."""
    return StatusCause(path, f"Too many: {count}: must have at most {limit} items", "FieldValueTooMany")


def duplicate(path: str, value: str) -> StatusCause:
    """Return the cause for a value that must be unique."""
    return StatusCause(path, f'Duplicate value: "{value}"', "FieldValueDuplicate")


def repeated(names: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the place of each name that stood before."""
    seen = Counter[str]()
    for at, name in enumerate(names):
        if name and seen[name]:
            yield at, name
        seen[name] += 1


def bad_value(field: str, value: Any, why: str) -> StatusCause:
    """Return the cause for a value that breaks a rule."""
    return StatusCause(field, f"Invalid value: {show(value)}: {why}")


def show(value: Any) -> str:
    """Return a value as Go's field errors print it."""
    return msgspec.json.encode(value).decode()


def _about(kind: str, group: str, name: str) -> dict[str, Any]:
    """Return a Status' details about an object, without what is empty."""
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}
