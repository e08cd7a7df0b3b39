"""
The line of a rank's numbers, `.NAME.numbers` beside its progress file.

    line   = "v1" SP epoch SP bad SP since SP recent SP before SP waits LF    e.g. v1 3 0 - 1032000 1001000 1
    epoch  = 1 to 10 digits, an int32 >= 1; "-" when the writer does not know it
    bad    = so many steps in a row had a loss that is no finite number, 0 to 9999999
    since  = the first of them; "-" when there is none, or it has no number
    recent = what a step took in the newest four blocks of 16 steps, the lowest of their medians, in us; 0 when unknown
    before = the median of the run's blocks before these, in us; 0 when unknown
    waits  = "1": the times leave out what the rank waited for others; "0": nobody knows how long it waited
    At most 64 bytes in all.

`inplace.progress` writes such lines (inplace/rank_numbers.py); a training script may write anything, so what cannot be
read says nothing. This module is pure.
"""

from __future__ import annotations

import re

from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.rank import RankNumbers

LINE_BYTES_MAX: Final = 64  # what is longer is read as nothing
_LINE: Final = re.compile(rb"v1 (-|[1-9][0-9]{0,9}) ([0-9]{1,7}) (-|[0-9]{1,12}) ([0-9]{1,10}) ([0-9]{1,10}) ([01])\n")


def parse_rank_numbers(content: bytes, epoch: int | None) -> RankNumbers | None:
    """Return what a rank of this epoch wrote; None for another epoch's, and for what follows no grammar."""
    found = _LINE.fullmatch(content)
    if found is None:
        return None
    of_epoch, bad, since, recent, before, waits = found.groups()
    if of_epoch != b"-" and (int(of_epoch) != epoch or int(of_epoch) > INT32_MAX):
        return None
    return RankNumbers(
        int(bad),
        None if since == b"-" else int(since),
        int(recent) / 1e6 or None,
        int(before) / 1e6 or None,
        waits == b"1",
    )
