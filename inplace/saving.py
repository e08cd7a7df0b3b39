"""
`inplace.save_requested`: learn that this rank should save now and end, because its Pod or its group is to stop.

    import inplace

    for step in range(steps):
        gradient, wanted = all_reduce(compute(batch), inplace.save_requested())
        update(gradient)
        if wanted:  # some rank was asked; all know it at the same step
            save()
            barrier()
            sys.exit(75)  # any code but 0: the group restarts

Not every rank is asked, and not all at the same step. So the flag must travel with a collective of the step, and the
ranks save when any of them was asked. The file INPLACE_SAVE_FILE holds the epoch that is meant; without that variable
nobody asks. docs/adr/0069

This module needs os alone and runs under Python 3.8, as `inplace.rank_file` does.
"""

from __future__ import annotations

import os

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BYTES_MAX = 16


def save_requested() -> bool:
    """Say whether somebody wants this run's ranks to save and end; a few microseconds, and never an error."""
    path, epoch = os.environ.get("INPLACE_SAVE_FILE"), os.environ.get("INPLACE_EPOCH")
    if not path or not epoch:
        return False
    try:
        file = os.open(path, _FLAGS)
    except (OSError, ValueError):  # nobody asks; ValueError: a path that cannot be one
        return False
    try:
        return os.read(file, _BYTES_MAX).strip() == epoch.encode()
    except OSError:
        return False
    finally:
        os.close(file)
