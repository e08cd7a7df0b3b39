"""
Read what faulthandler, py-spy and the kernel say of threads; only functions, files and lines are kept. Pure.

A worker writes these texts or can forge them, so each is bounded, and what has another form is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

THREADS_MAX: Final = 16  # of one rank, the main thread first
FRAMES_MAX: Final = 100  # of one thread, the innermost first; what faulthandler writes at most
FRAME_CHARACTERS_MAX: Final = 160
PATH_PARTS: Final = 3  # the last ones tell where in a package it is
_THREAD: Final = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):", re.ASCII)
_FRAME: Final = re.compile(r'  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)')
_KERNEL: Final = re.compile(r"\[<[0-9a-f]+>\] ([A-Za-z0-9_.]+)")


class Thread(NamedTuple):
    """One thread.

    Args:
        name: "" if it is not known.
        frames: `function file:line`, the innermost first.
        left_out: it has more frames than these.
    """

    name: str
    frames: tuple[str, ...]
    left_out: bool = False


def read_faulthandler(text: str) -> list[Thread]:
    """Return the threads of a traceback of `faulthandler`, the main thread first."""
    found: list[tuple[bool, list[str], bool]] = []
    for line in text.splitlines():
        if (head := _THREAD.match(line)) is not None:
            found.append((head[1] == "Current thread", [], False))
        elif found and (frame := _FRAME.fullmatch(line)) is not None:
            found[-1][1].append(_frame(frame[3], frame[1], frame[2]))
        elif found and line == "  ...":
            found[-1] = (*found[-1][:2], True)
    mains = [one for one in found if one[1] and one[1][-1].startswith("<module> ")] or [one for one in found if one[0]]
    main = (mains or found)[-1] if found else None  # the list begins with the newest thread
    ordered = [one for one in found if one is main] + [one for one in found if one is not main]
    return [
        Thread("main" if one is main else "", tuple(one[1][:FRAMES_MAX]), one[2] or len(one[1]) > FRAMES_MAX)
        for one in ordered[:THREADS_MAX]
    ]


def read_py_spy(text: bytes, pid: int) -> list[Thread]:
    """Return the threads of `py-spy dump --json`, the main thread first; [] for another text."""
    try:
        found = [_py_spy_thread(one, pid) for one in json.loads(text)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    return sorted(found, key=lambda one: one.name != "main")[:THREADS_MAX]


def _py_spy_thread(thread: dict[str, Any], pid: int) -> Thread:
    frames = tuple(_frame(one["name"], one["filename"], str(one["line"])) for one in thread["frames"])
    is_main = thread.get("os_thread_id") == pid or thread.get("thread_name") == "MainThread"
    name = "main" if is_main else _safe(str(thread.get("thread_name") or ""))[:40]
    return Thread(name, frames[:FRAMES_MAX], len(frames) > FRAMES_MAX)


def kernel_frames(stack: str, wait_channel: str) -> tuple[str, ...]:
    """Return the functions of a thread's kernel stack, or else where it waits; () where neither may be read."""
    frames = tuple(match[1] for line in stack.splitlines() if (match := _KERNEL.match(line)))
    if frames:
        return frames[:FRAMES_MAX]
    return (_safe(wait_channel)[:FRAME_CHARACTERS_MAX],) if wait_channel not in ("", "0") else ()


def fit(frames: Iterable[str], bytes_max: int) -> tuple[list[str], bool]:
    """Return the innermost frames that fit into so many bytes of a JSON list, and whether some do not."""
    kept, left = list[str](), bytes_max
    for frame in frames:
        left -= len(json.dumps(frame)) + 2
        if left < 0:
            return kept, True
        kept.append(frame)
    return kept, False


def _frame(function: str, path: str, line: str) -> str:
    file = "/".join(path.split("/")[-PATH_PARTS:])
    text = f"{_safe(function).replace(' ', '_')} {_safe(file).replace(' ', '_')}:{line}"
    return text if len(text) <= FRAME_CHARACTERS_MAX else f"{text[: FRAME_CHARACTERS_MAX - 3]}..."


def _safe(text: str) -> str:
    return "".join(character if " " <= character <= "~" else "?" for character in text)
