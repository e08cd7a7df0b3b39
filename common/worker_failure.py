"""
The annotation with which an agent tells that its worker died: which epoch, how, and when.

    text  = "v1,epoch=" epoch [ ",code=" code ] ",at=" milliseconds      e.g. v1,epoch=3,code=137,at=1790000000123
    epoch = the epoch in which the worker ran, 1 to 2147483647
    code  = exit code, 1 to 255; absent if the container ended without a word (its memory ran out, its guard was killed)
    milliseconds = since the Unix epoch, by the node's clock; 13 digits

Reading is strict: any other spelling makes the whole text invalid. This module is pure, and on the agent's start path.
"""

from __future__ import annotations

from inplace.common.epoch.errors import RemoteProtocolError
from inplace.common.epoch.int32 import INT32_MAX
from inplace.common.record import record
from inplace.common.typed import Final

VERSION: Final = "v1"
TEXT_BYTES_MAX: Final = len("v1,epoch=2147483647,code=255,at=1790000000123")
_MILLISECONDS_MAX: Final = 9_999_999_999_999  # in the year 2286


@record
class WorkerFailure:
    """How a worker died.

    Args:
        epoch: int32 >= 1.
        code: of its main process, 128 + n after signal n; None if nobody saw it.
        at_s: Unix time in seconds, by the node's clock.
    """

    epoch: int
    code: int | None
    at_s: float


def failure_text(failure: WorkerFailure) -> str:
    """Return the annotation's value."""
    code = "" if failure.code is None else f",code={failure.code}"
    milliseconds = min(max(round(failure.at_s * 1000), 0), _MILLISECONDS_MAX)
    return f"{VERSION},epoch={failure.epoch}{code},at={milliseconds:013d}"


def parse_failure(text: str) -> WorkerFailure:
    """Read the annotation's value.

    Raises:
        RemoteProtocolError: it does not follow the grammar above (its writer is at fault).
    """
    version, *parts = text.split(",") if len(text) <= TEXT_BYTES_MAX else [""]
    values = {}
    for part in parts:
        name, _, digits = part.partition("=")
        values[name] = int(digits) if digits.isascii() and digits.isdigit() else -1
    if version == VERSION and list(values) in (["epoch", "at"], ["epoch", "code", "at"]):
        failure = WorkerFailure(values["epoch"], values.get("code"), values["at"] / 1000)
        code = 1 if failure.code is None else failure.code
        if 1 <= failure.epoch <= INT32_MAX and 1 <= code <= 255 and failure_text(failure) == text:
            return failure
    raise RemoteProtocolError(
        f"worker failure: expected {VERSION},epoch=EPOCH,code=CODE,at=MILLISECONDS, saw {text[:80]!r}"
    )
