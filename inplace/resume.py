"""
`inplace.saved`, `inplace.resume_step` and `inplace.keep_dir`: no step is lost twice.

    import inplace

    step = inplace.resume_step()  # the newest that all ranks can load; None: look for a checkpoint yourself
    ...
    save(os.path.join(inplace.keep_dir() or "/tmp", "buffer-0"), step)
    inplace.saved(step)  # this rank's part is complete, and its Pod can load it
    inplace.saved(step, shared=True)  # it is complete where any other Pod can load it

A rank's word goes into the hidden file `.NAME.saved` beside its progress file (inplace/rank_file.py), in the grammar of
common/wire/saved.py; NAME is "pod" without a rank's variable. It is written anew with each call, and outlives the
process. What a rank saved before a step that goes backwards belongs to another line of training, and is told no more.

What goes wrong never reaches the training loop: one line on stderr says it, once a process. In a standby nothing is
written before its release. This module needs os and sys alone and runs under Python 3.8.
"""

from __future__ import annotations

import os
import sys

from inplace.line_file import LineFile, path_of
from inplace.rank_file import STEP_MAX, file_name, is_number

LINE_BYTES = 80
KEEP_MAX = 4
SUFFIX = ".saved"
EPOCH_MAX = 2**31 - 1
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NONE = b"-"


class SavedFile:
    """What this process's rank saved; all its methods return whatever happens."""

    def __init__(self) -> None:
        self._pid = 0  # the process that read the file; a forked child reads it anew
        self._file = LineFile(LINE_BYTES)
        self._name = self._epoch = ""
        self._local: list[int] = []  # the newest first
        self._shared = _NONE
        self._has_warned = False

    def add(self, number: int, keep: int, *, shared: bool) -> None:
        """Write one more step."""
        try:
            step, most = int(number), int(keep)
        except Exception as error:  # noqa: BLE001 - it may be any framework's object, and training must go on
            self._warn(f"expected a step number, saw {type(number).__name__} ({error})")
            return
        if not (0 <= step <= STEP_MAX and 1 <= most <= KEEP_MAX):
            self._warn(f"expected a step of at most 12 digits, and keep from 1 to {KEEP_MAX}")
            return
        try:
            if os.getpid() != self._pid:
                if _is_waiting():
                    return  # the rank's file is that of the worker which still runs
                self._begin()
            if not self._epoch:
                return
            if shared:
                self._shared = b"%d" % step
            else:
                older = self._local if self._local[:1] <= [step] else []
                self._local = [step, *(one for one in older if one != step)][:most]
            local = b".".join(b"%d" % one for one in self._local) or _NONE
            self._write(b"v1 %s %s %s" % (self._epoch.encode(), local, self._shared))
        except (OSError, ValueError) as error:  # ValueError: a path that cannot be one
            self._warn(f"{type(error).__name__}: {error}")

    def _begin(self) -> None:
        """Find what this rank saved before this process: in this run, or in an earlier one up to the resume step."""
        self._file.close()
        self._pid = os.getpid()
        epoch = os.environ.get("INPLACE_EPOCH", "") if os.environ.get("INPLACE_PROGRESS_DIR") else ""
        self._epoch = str(int(epoch)) if is_number(epoch) and 0 < int(epoch) <= EPOCH_MAX else ""
        name = file_name(os.environ, 0).replace("pid-0", "pod")
        self._name = f".{name}{SUFFIX}"
        self._local, self._shared = [], _NONE
        if not self._epoch:
            return
        words = _words(self._name)
        local = [int(step) for step in words[2].split(".") if is_step(step)]
        if words[1] == self._epoch:
            self._local, self._shared = local[:KEEP_MAX], words[3].encode() if is_step(words[3]) else _NONE
        else:
            self._local = [step for step in local if step == resume_step()][:1]

    def _write(self, line: bytes) -> None:
        """Write; what the disk does not take is told no more, as the last line is not true any more."""
        try:
            self._file.write(self._name, line)
        except OSError:
            if self._file.fd >= 0:
                os.ftruncate(self._file.fd, 0)
            raise

    def _warn(self, problem: str) -> None:
        """Say what is wrong, once a process."""
        if self._has_warned:
            return
        self._has_warned = True
        text = f"inplace: the agent may not know what this rank saved: {problem[:300]}. Training goes on."
        try:  # noqa: SIM105 - as in inplace.rank_file
            print(text, file=sys.stderr, flush=True)
        except (OSError, ValueError, AttributeError):  # stderr is closed, or there is none
            pass


def saved(step: int, *, shared: bool = False, keep: int = 2) -> None:
    """Say that this rank's part of `step` is complete, and survives this process.

    Args:
        step: an int from 0 to STEP_MAX.
        shared: it is complete for all ranks of any Pod: on storage that every Pod reads. Without it: for this rank in
            this Pod, in its memory or on its disk.
        keep: how many of its newest local steps this rank can still load, 1 to KEEP_MAX: 2 with two buffers.
    """
    _FILE.add(step, keep, shared=shared)


def resume_step() -> int | None:
    """Return the step from which all ranks go on; None: nobody can say, look for the newest checkpoint yourself.

    In a standby it is known when `inplace.ready` has returned.
    """
    text = "" if _is_waiting() else os.environ.get("INPLACE_RESUME_STEP", "")
    return int(text) if is_step(text) else None


def keep_dir() -> str | None:
    """Return the folder in memory that outlives every restart in place; None without `keep` in inplace.dev/restart."""
    return os.environ.get("INPLACE_KEEP_DIR") or None


def is_step(text: str) -> bool:
    """Say whether a text is a step."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(STEP_MAX))


def _is_waiting() -> bool:
    return os.environ.get("INPLACE_STANDBY", "").startswith("wait")


def _words(name: str) -> list[str]:
    """Return the four words of a rank's own file; words that say nothing where there is no such line."""
    try:
        file = os.open(path_of(name), _FLAGS)
        try:
            words = os.read(file, LINE_BYTES).decode("latin-1").split()
        finally:
            os.close(file)
    except OSError:
        words = []
    return words if len(words) == 4 and words[0] == "v1" else ["v1", "-", "-", "-"]


_FILE = SavedFile()
