"""
The watchdog's settings. By default none is set, and then nothing of the watchdog is loaded, this module included.

`inplace-agent run` has an option for each variable, see `agent.arguments`.
"""

from __future__ import annotations

from inplace.agent.environment import Environment
from inplace.agent.link_address import PROGRESS_DIR, progress_dir
from inplace.common.epoch.rank import StallSettings
from inplace.common.record import record
from inplace.common.typed import Final

STALL_AFTER: Final = "STALL_AFTER_S"
START_STALL_AFTER: Final = "START_STALL_AFTER_S"
PROGRESS_FILE: Final = "PROGRESS_FILE"
LIMIT_S_MIN: Final = 0.5  # the agent looks ten times a second at most, and a busy machine delays a step by that much
LIMIT_S_MAX: Final = 604_800.0  # a week, as a busy phase


@record
class WatchSettings:
    """What the watchdog watches.

    Args:
        limits: at least one of them.
        folder: INPLACE_PROGRESS_DIR of the worker; "" when files of a pattern are watched instead.
        pattern: of PROGRESS_FILE; "" for none.
    """

    limits: StallSettings
    folder: str
    pattern: str


def read_watch_settings(read: Environment, beside: str) -> WatchSettings | None:
    """Return the settings, None when both limits are off; problems are noted in `read`.

    Args:
        read: the environment.
        beside: a file in the folder that agent and worker share; "" when there is none.
    """
    limits = StallSettings(_limit_s(read, STALL_AFTER), _limit_s(read, START_STALL_AFTER))
    pattern = read.get(PROGRESS_FILE)
    if pattern:
        from inplace.agent.progress_folder import problem_of_pattern

        if problem := problem_of_pattern(pattern):
            read.problems.append(f"{PROGRESS_FILE}: {problem}")
    if limits == StallSettings():
        if pattern:
            read.problems.append(f"{PROGRESS_FILE}: expected {STALL_AFTER} or {START_STALL_AFTER} beside it, saw none")
        return None
    folder = "" if pattern else progress_dir(read.get(PROGRESS_DIR), beside)
    if not pattern and not folder.startswith("/"):
        expected = f"expected EPOCH_FILE or LINK_FILE on the Pod's emptyDir, or {PROGRESS_FILE}, beside it, saw neither"
        read.problems.append(f"{STALL_AFTER if limits.stall_after_s else START_STALL_AFTER}: {expected}")
    return WatchSettings(limits, folder, pattern)


def _limit_s(read: Environment, name: str) -> float | None:
    """Return a limit; None when it is unset, 0 or refused."""
    text = read.get(name)
    try:
        value = float(text or 0)
    except ValueError:
        value = -1.0
    if value == 0.0:
        return None
    if LIMIT_S_MIN <= value <= LIMIT_S_MAX:
        return value
    read.refuse(name, f"seconds from {LIMIT_S_MIN:g} to {LIMIT_S_MAX:g}, or 0 for off")
    return None
