"""
Say for people how a process ended, by its exit code: the one place that does.

A shell and a guard give 128 + n for a process that signal n ended, Python -n. Pure; never on the agent's start path.
"""

from __future__ import annotations

from inplace.common.bare.typed import Final
from inplace.common.wire.stop_signal import signal_name

RESTART_CODE: Final = 88  # no worker's: with it an agent ends its containers, so that kubelet starts them anew
SIGNAL_BASE: Final = 128
SIGNAL_MAX: Final = 64  # SIGRTMAX
PLAIN_REASON: Final = "Error"  # kubelet's word for any exit code but 0


def exit_words(code: int, reason: str = "") -> str:
    """Return how a process ended, such as "exit code 3" or "killed by SIGSEGV (139)".

    Args:
        code: as a shell, a container's status, or Python has it.
        reason: kubelet's, of a container; "" for none.
    """
    number = -code if code < 0 else code - SIGNAL_BASE
    more = [] if reason in ("", PLAIN_REASON, "Completed") else [reason]
    if 0 < number <= SIGNAL_MAX:
        return f"killed by {signal_name(number)} ({', '.join([str(code), *more])})"
    if code == 0:
        return "completed (exit code 0)"
    if code == RESTART_CODE:
        more.append("its agent asked kubelet for new containers")
    return f"exit code {code}" + (f" ({', '.join(more)})" if more else "")


def ended_with(code: int, reason: str = "") -> str:
    """Return it for a sentence about a container: "with exit code 3", or "killed by SIGSEGV (139)"."""
    words = exit_words(code, reason)
    return f"with {words}" if words.startswith("exit code") else words
