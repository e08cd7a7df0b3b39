"""
Keep the tail of each run of this Pod's worker where no worker writes, and tell it in this agent's log.

Kubelet removes a container with its log, and cuts a log that is long. The agent's own folder outlives its containers,
and its log stays short. So each new agent tells every tail that is kept, and an agent that stays tells a run that
failed at once. `inplace logs` reads them there (docs/adr/0094).

A tail's text is the worker's, so a reader trusts it no more than the worker's log. Its epoch is checked: it is older
than the one that is announced, and newer than all that are kept.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress

from inplace.agent.progress.rank_files import open_folder, read_start
from inplace.agent.report.log import Log
from inplace.common.bare.typed import Final
from inplace.common.wire.run_tail import FILE_BYTES_MAX, FILES_MAX, HEAD_BYTES, TAIL, parse_tail, tail_file

KEPT_BYTES_MAX: Final = 4 * 1024 * 1024  # a quarter of the folder's size; 64 runs that wrote much
RUNS_MAX: Final = 256  # beyond both the oldest go, those first that were told to end; the first failure stays
_PAGE_BYTES: Final = 4096  # a file in memory takes whole pages
_FAILED, _ENDED = "f", "e"
_TEXT_CHARS_MAX: Final = 8192  # of one line of the log
_LINE_BYTES_MAX: Final = 15_000  # with its escapes; runtimes cut a line at 16 KiB


class KeptTails:
    """The tails of one Pod.

    Args:
        source: the folder in which the worker's parents write.
        folder: this agent's own.
        tells_each: this log is not the worker's: a run that failed is told when it has ended.
    """

    def __init__(self, source: str, folder: str, log: Log, *, tells_each: bool) -> None:
        self._source = source
        self._folder = folder
        self._log = log
        self._tells_each = tells_each
        self._waiting: list[str] = []  # to be told
        self._is_first = True

    def collect(self, epoch: int, *, failed: bool) -> None:
        """Keep what the last run wrote, BEFORE its Pod joins an epoch.

        Args:
            epoch: that is announced.
            failed: the last run was not told to end, or it was before this process and that is not known.
        """
        try:
            kept = _names(self._folder)
            fresh = self._take(epoch, max(map(_epoch, kept), default=0), failed=failed)
            if fresh:
                self._make_room(sorted([*kept, *fresh]))
        except OSError as error:
            message = f"{error.filename or self._folder}: {error.strerror}"
            self._log.warning("tail_not_kept", message=message, then="the container's log alone has it")
            return
        if self._is_first:
            self._waiting = sorted({*kept, *fresh})
        elif self._tells_each:
            self._waiting += [name for name in fresh if name.endswith(_FAILED)]
        self._is_first = False
        while self._waiting and not self._tells_each:
            self._tell_next()  # BEFORE the mark of the next run, which comes into the same log

    def last_line(self, epoch: int) -> str:
        """Return the last line of the run of an epoch that has just failed; "" if it wrote nothing."""
        newest: tuple[int, bytes] | None = None
        with suppress(OSError), open_folder(self._source) as source:
            for modified_ns, content in _files(source):
                tail = parse_tail(content)
                if tail is not None and tail.epoch == epoch and (newest is None or modified_ns > newest[0]):
                    newest = modified_ns, tail.text
        if newest is None or not newest[1]:
            return ""
        from inplace.common.wire.last_line import READ_CHARACTERS_MAX, last_line_of

        return last_line_of(newest[1][-READ_CHARACTERS_MAX:].decode("utf-8", "replace"))

    async def tell(self) -> None:
        """Write what is new to the log, a run at a time."""
        while self._waiting:
            self._tell_next()
            await asyncio.sleep(0)

    def _tell_next(self) -> None:
        name = self._waiting.pop(0)
        with suppress(OSError), open_folder(self._folder) as folder:  # it had to make room
            modified_ns = os.stat(name, dir_fd=folder).st_mtime_ns
            self._tell(_file(name), read_start(folder, name, FILE_BYTES_MAX), modified_ns)

    def _take(self, epoch: int, newest: int, *, failed: bool) -> list[str]:
        """Copy the tails of the last run; return their names here."""
        names = []
        with suppress(FileNotFoundError), open_folder(self._source) as source:
            for number, (modified_ns, content) in enumerate(_files(source)):
                tail = parse_tail(content)
                if tail is None or not tail.total or not newest < tail.epoch < epoch:
                    continue
                name = f"{tail.epoch:010d}-{number}{_FAILED if failed else _ENDED}"
                self._write(name, content, modified_ns)
                names.append(name)
        return names

    def _write(self, name: str, content: bytes, modified_ns: int) -> None:
        path = f"{self._folder}/{name}"
        os.makedirs(self._folder, mode=0o755, exist_ok=True)  # noqa: PTH103
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, content)
            os.utime(file, ns=(modified_ns, modified_ns))
        finally:
            os.close(file)

    def _make_room(self, names: list[str]) -> None:
        """Drop the text of the oldest runs, and of too many runs all that is known; the first that failed stays.

        In a crash loop it is the one whose words are not about the restarts before it.
        """
        first = next((name for name in names if name.endswith(_FAILED)), "")
        sizes = {name: os.stat(f"{self._folder}/{name}").st_size for name in names}  # noqa: PTH116
        total = sum(map(_pages, sizes.values()))
        for name in sorted(names, key=lambda one: (one == first, one.endswith(_FAILED), one)):
            if total > KEPT_BYTES_MAX and sizes[name] > HEAD_BYTES:
                modified_ns = os.stat(f"{self._folder}/{name}").st_mtime_ns  # noqa: PTH116
                os.truncate(f"{self._folder}/{name}", HEAD_BYTES)
                os.utime(f"{self._folder}/{name}", ns=(modified_ns, modified_ns))
                total -= _pages(sizes[name]) - _PAGE_BYTES
        for name in [name for name in names if name != first][: max(0, len(names) - RUNS_MAX)]:
            os.unlink(f"{self._folder}/{name}")  # noqa: PTH108

    def _tell(self, file: int, content: bytes, modified_ns: int) -> None:
        tail = parse_tail(content)
        if tail is None:
            return
        pieces = _pieces(tail.text.decode("utf-8", "replace"))
        left_out = tail.total - len(tail.text)
        ended_ms = modified_ns // 1_000_000
        for part, text in enumerate(pieces, 1):
            of = {"epoch": tail.epoch, "began_ms": tail.began_ms, "ended_ms": ended_ms, "left_out": left_out}
            self._log.warning(TAIL, **of, file=file, part=part, parts=len(pieces), text=text)


def _names(folder: str) -> list[str]:
    """Return what is in a folder, which may not be there."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except FileNotFoundError:
        return []


def _files(source: int) -> Iterator[tuple[int, bytes]]:
    """Yield when each parent's file in an open folder was written last, and its content."""
    for number in range(FILES_MAX):
        name = tail_file(number)
        with suppress(OSError):  # there is none
            content = read_start(source, name, FILE_BYTES_MAX)
            yield os.stat(name, dir_fd=source, follow_symlinks=False).st_mtime_ns, content


def _epoch(name: str) -> int:
    number = name.partition("-")[0]
    return int(number) if number.isdigit() else 0


def _file(name: str) -> int:
    number = name.partition("-")[2][:-1]
    return int(number) if number.isdigit() else 0


def _pages(size: int) -> int:
    return -(-size // _PAGE_BYTES) * _PAGE_BYTES


def _pieces(text: str) -> list[str]:
    """Cut a text into pieces that fit into a line of the log, at line ends where that can be."""
    from _json import encode_basestring_ascii

    found = []
    while text:
        size = min(len(text), _TEXT_CHARS_MAX)
        while len(encode_basestring_ascii(text[:size])) > _LINE_BYTES_MAX:
            size //= 2
        if size < len(text):
            size = text.rfind("\n", 0, size) + 1 or size
        found.append(text[:size])
        text = text[size:]
    return found or [""]
