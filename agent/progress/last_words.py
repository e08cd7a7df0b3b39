"""
Read what ended the worker: the exception of a rank, or torchelastic's error file.

Both lie in the ranks' progress folder, which strangers may write into. One reading looks at NAMES_MAX names and
FILES_MAX files, from a thread: a file system may hang. It is done when a worker has ended with a code other than 0, and
each time that the folder's time says that a file came, because a rank whose main thread has ended may hang in an exit
handler for ever. docs/adr/0060
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress

from inplace.agent.progress.rank_files import (
    ERROR_SUFFIX,
    first_names,
    is_rank_file,
    modified_s,
    open_folder,
    read_start,
)
from inplace.agent.settings.command import ELASTIC_FILE
from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.kube.clock import Clock
from inplace.common.protocol.bounds import CODE_MAX, decimal

FILES_MAX: Final = 256  # ranks of one Pod
LINE_BYTES_MAX: Final = 1024  # inplace/last_words.py's
ELASTIC_BYTES_MAX: Final = 262_144  # it has a call stack; what is longer is not read
READ_S_MAX: Final = 0.2  # the announcement waits for it; only a hung file system takes longer
LOOK_S: Final = 0.25  # from one look at the folder's time to the next: 0.03 % of a core
SETTLED_S: Final = 1.0  # a file system's time is coarse, and a file that has just come may be empty


@record
class LastWords:
    """What ended a rank.

    Args:
        line: the exception, as the rank or torchelastic has it; not clean yet.
        at_s: when it was written, Unix time by the node's clock.
        code: with which the rank's process is about to end, 1 to 255; None where the rank may go on.
    """

    line: str
    at_s: float
    code: int | None = None


def last_words(folder: str, epoch: int) -> LastWords | None:
    """Return those of the rank whose exception was written first.

    None for none of this epoch, or where the file system hangs.
    """
    found: list[LastWords | None] = []
    reading = threading.Thread(target=lambda: found.append(_read_words(folder, epoch)), daemon=True)
    reading.start()
    reading.join(READ_S_MAX)
    return found[0] if found else None


async def first_end(folder: str, epoch: int, clock: Clock) -> LastWords:
    """Return what ended the first rank of an epoch, as soon as one has failed; cancelled with the worker."""
    loop, seen_s = asyncio.get_running_loop(), 0.0
    while True:
        await clock.sleep(LOOK_S)
        looked: asyncio.Future[tuple[float, LastWords | None]] = loop.create_future()

        def look(
            looked: asyncio.Future[tuple[float, LastWords | None]] = looked,
            seen_s: float = seen_s,
            now_s: float = clock.wall_s(),
        ) -> None:
            found = _look(folder, epoch, seen_s, now_s)
            with suppress(RuntimeError):  # the loop is closed: this process ends
                loop.call_soon_threadsafe(_answer, looked, found)

        threading.Thread(target=look, daemon=True).start()
        seen_s, words = await looked
        if words is not None and words.code is not None:
            return words


def _answer(looked: asyncio.Future[tuple[float, LastWords | None]], found: tuple[float, LastWords | None]) -> None:
    if not looked.done():
        looked.set_result(found)


def _look(folder: str, epoch: int, seen_s: float, now_s: float) -> tuple[float, LastWords | None]:
    """Read the folder if its time is another one than at the last look, or very young; return the time too."""
    try:
        changed_s = os.stat(folder, follow_symlinks=False).st_mtime  # noqa: PTH116 - a string is all it needs
    except OSError:
        return seen_s, None
    if changed_s == seen_s and now_s - changed_s > SETTLED_S:
        return seen_s, None
    return changed_s, _read_words(folder, epoch)


def _read_words(folder: str, epoch: int) -> LastWords | None:
    with suppress(OSError), open_folder(folder.rstrip("/") or "/") as opened:  # there is none, or it is gone meanwhile
        return _of_ranks(opened, epoch) or _of_elastic(opened)
    return None


def _of_ranks(folder: int, epoch: int) -> LastWords | None:
    names = [name for name in first_names(folder) if name.endswith(ERROR_SUFFIX) and is_rank_file(name)][:FILES_MAX]
    first = None
    for name in names:
        with suppress(OSError):  # it is gone meanwhile, or a link
            at_s, content = modified_s(folder, name), read_start(folder, name, LINE_BYTES_MAX)
            version, of_epoch, code, text = (content.decode(errors="replace").split(" ", 3) + [""] * 3)[:4]
            if version == "v1" and of_epoch in ("-", str(epoch)) and text:
                words = LastWords(text.partition("\n")[0], at_s, decimal(code, CODE_MAX) or None)
                first = words if first is None or _rank_of(words) < _rank_of(first) else first
    return first


def _rank_of(words: LastWords) -> tuple[bool, bool, float]:
    """Sort what ended ranks: those whose processes end; then those with words of their own; then by the moment."""
    from inplace.common.wire.last_line import is_peers_sign

    return words.code is None, is_peers_sign(words.line), words.at_s


def _of_elastic(folder: int) -> LastWords | None:
    """Return the message of torchelastic's error file.

    Source: torch/distributed/elastic/multiprocessing/errors: {"message": {"message": TEXT, "extraInfo": {...}}}, or
    {"message": TEXT}.

    Raises:
        OSError: there is none, or it is a link.
    """
    content = read_start(folder, ELASTIC_FILE, ELASTIC_BYTES_MAX + 1)
    if not content or len(content) > ELASTIC_BYTES_MAX:
        return None
    import json

    try:
        message = json.loads(content)["message"]
        text = message["message"] if isinstance(message, dict) else message
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    lines = text.splitlines() if isinstance(text, str) else []
    line = next((line.strip() for line in lines if line.strip()), "")
    return LastWords(line, modified_s(folder, ELASTIC_FILE)) if line else None
