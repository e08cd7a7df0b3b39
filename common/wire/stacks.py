"""
The request for stacks, and the events with which a worker's parent answers it.

    annotation inplace.dev/stacks-requested = 1 to 15 digits: Unix time in milliseconds, which is also the request's id

The answer is lines of the worker's log, one for each thread, and one more at the end. `agent/stacks/look.py` writes
them and `cli/stacks` reads them. Pure. docs/adr/0099
"""

from __future__ import annotations

from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import REQUEST_MAX, decimal
from inplace.common.protocol.errors import RemoteProtocolError

SILENCE: Final = 0  # the id of a request that the watchdog makes
THREAD: Final = "stack"  # the event of one thread's line
TAKEN: Final = "stacks_taken"  # the event behind all lines of one answer
ANSWER_S_MIN: Final = 10.0  # a worker is asked at most so often, whoever asks


def parse_request(text: str) -> int:
    """Read a request's id.

    Raises:
        RemoteProtocolError: it is no number from 1 to REQUEST_MAX (whoever wrote the annotation is at fault).
    """
    if request := decimal(text, REQUEST_MAX):
        return request
    raise RemoteProtocolError(f"expected the Unix time in milliseconds, saw {text[:40]!r}")
