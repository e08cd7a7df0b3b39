"""
Leave what ends this process's main thread where the Pod's agent finds it: `.NAME.error` in INPLACE_PROGRESS_DIR.

The first use of `inplace.progress`, `busy`, `ready` or `save_requested` puts a hook before `sys.excepthook`, and one
before `sys.exit`. They do nothing until an exception ends the main thread, or `sys.exit` does with another code than 0.
Then one line is written BEFORE any exit handler runs, because one may hang, and all goes on as ever: the hook that was
there before prints the traceback. NAME is that of the rank's progress file (inplace/rank_file.py).

    line = "v1 " epoch " " code " " kind [ ": " first line of its message ]        epoch = INPLACE_EPOCH, or "-"
    code = with which the process is about to end, 1 to 255; "-" where the rank may go on all the same

"-" is for a process that is no rank: one that a rank forked, or that multiprocessing started, and that has made no step
of its own. It is also for a rank that torchrun starts again, and for a hook that somebody calls while the script runs.
The exceptions of other threads come to no hook of ours, and end nothing.

The agent cleans the line and hides secrets before it sends it. Nothing here ever raises. It needs Python 3.8, and os,
sys and threading alone.
"""

from __future__ import annotations

import os
import sys

from inplace.rank_file import file_name, this_rank

LINE_BYTES_MAX = 1024
SUFFIX = ".error"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HOOKS_MAX = 16  # before ours; a program that changes its hook at each step is left alone then
_hooks: list = []  # type: ignore[type-arg]  # those that were there before ours, the newest last
_depth = 0  # of ours, where a hook that was there before calls it again
_exit = None  # sys.exit as it was
_pid = 0  # the process that installed the hooks
_bottom = None  # the frame that its main thread runs in as long as the script does
_code = 0  # of the last sys.exit
_words = ""  # its argument
_has_failed = False


def install() -> object:
    """Put our hook before the one that is there, also when that came after ours; return the one that is there now."""
    global _exit, _pid, _bottom
    if _exit is None:
        _pid, _bottom, _exit = os.getpid(), _bottom_frame(), sys.exit
        sys.exit = _note_exit  # type: ignore[assignment]
        this_rank().find_hook, this_rank().has_failed = _find_hook, _has_ended
    if sys.excepthook is not _hook and len(_hooks) < _HOOKS_MAX:
        _hooks.append(sys.excepthook)
        sys.excepthook = _hook
    return sys.excepthook


def _find_hook() -> object:
    """Take note of a step: whatever called `sys.exit` was caught, and a library may have replaced our hook."""
    global _code
    _code = 0
    return install()


def _has_ended() -> bool:
    """Say whether the end of this rank is told."""
    return _has_failed


def _hook(kind, error, trace) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as sys.excepthook has it
    global _depth
    if _depth == 0:
        try:
            if not issubclass(kind, KeyboardInterrupt):
                said = _first_line(error)
                _leave(1, f"{_name_of(kind)}: {said}" if said else _name_of(kind))
        except BaseException:  # noqa: BLE001, S110 - the traceback is what matters
            pass
    _depth += 1  # the hook that is called now may call this one again
    try:
        if _depth <= len(_hooks):
            _hooks[-_depth](kind, error, trace)
    finally:
        _depth -= 1


def _note_exit(status=None, /) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as sys.exit has it
    """Remember with what the main thread is about to end, and end it; somebody may still catch that."""
    global _code, _words
    try:
        if _is_main_thread():
            _code = status & 255 if isinstance(status, int) else 0 if status is None else 1
            _words = "" if status is None else _first_line(status)
            if _code:
                this_rank().forget_hook()  # a step that comes after all says that somebody caught it
                _at_end(_leave_exit)
    except BaseException:  # noqa: BLE001, S110 - the script's own end is what matters
        pass
    assert _exit is not None
    _exit(status)


def _leave_exit() -> None:
    """Leave that `sys.exit` ended the main thread, BEFORE the first exit handler."""
    try:
        if _code and not _has_failed:  # else somebody caught it, or it was told
            _leave(_code, f"SystemExit: {_words}", always=False)
    except BaseException:  # noqa: BLE001, S110
        pass


def _leave(code: int, text: str, *, always: bool = True) -> None:
    """Write the line, if there is somebody who reads it; `always`: also where the rank may go on."""
    global _has_failed
    folder = os.environ.get("INPLACE_PROGRESS_DIR", "")
    if not folder or os.environ.get("INPLACE_STANDBY", "").startswith("wait"):  # the file is the running worker's
        return
    is_end = _is_rank() and _is_over() and not _starts_again()
    if not (is_end or always):
        return
    epoch = os.environ.get("INPLACE_EPOCH") or "-"
    line = f"v1 {epoch} {code if is_end else '-'} {text}".encode("utf-8", "replace")[: LINE_BYTES_MAX - 1]
    fd = os.open(os.path.join(folder, f".{file_name(os.environ, os.getpid())}{SUFFIX}"), _FLAGS, 0o644)  # noqa: PTH118
    try:
        os.write(fd, line + b"\n")
        os.fchmod(fd, 0o644)  # whatever the umask: the agent may be another user
    finally:
        os.close(fd)
    _has_failed = is_end


def _is_rank() -> bool:
    """Say whether this process trains itself: it made a step, or it is no other's helper."""
    if this_rank().is_of_this_process:
        return True
    multiprocessing = sys.modules.get("multiprocessing.process")
    return _pid == os.getpid() and (multiprocessing is None or multiprocessing.parent_process() is None)


def _is_over() -> bool:
    """Say whether the script has ended: a hook may be called by hand, and from any thread."""
    return _is_main_thread() and (_bottom is None or _bottom_frame() is not _bottom)


def _starts_again() -> bool:
    """Say whether torchrun starts this rank again, by its own variables."""
    try:
        left = int(os.environ["TORCHELASTIC_MAX_RESTARTS"]) - int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    except (KeyError, ValueError):
        return False
    return left > 0


def _is_main_thread() -> bool:
    threading = sys.modules.get("threading")
    return threading is None or threading.current_thread() is threading.main_thread()


def _bottom_frame() -> object:
    """Return the frame that this thread began with; None outside of the main thread."""
    if not _is_main_thread():
        return None
    frame = sys._getframe()  # noqa: SLF001 - there is no other way
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _at_end(call) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Call a function once the main thread has ended, BEFORE every exit handler; it may be called twice."""
    import threading

    try:
        threading._register_atexit(call)  # type: ignore[attr-defined]  # noqa: SLF001 - the executors' own way
    except (AttributeError, RuntimeError):  # Python 3.8; or this process ends already
        import atexit

        atexit.register(call)


def _name_of(kind: type) -> str:
    """Return the name that a traceback has."""
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


def _first_line(error: object) -> str:
    """Return the first line of the message that says something; the last one where it is another's traceback."""
    lines = [line.strip() for line in str(error)[:8192].splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        return lines[-1]
    return lines[0] if lines else ""
