"""
The watchdog's settings: from the environment, and from the JobSet's annotation where the environment is silent.

By default none is set, and then nothing of the watchdog is loaded, this module included.
"""

from __future__ import annotations

from inplace.agent.settings.environment import Environment
from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.rank import StallSettings
from inplace.common.wire import names as wire
from inplace.common.wire.stall_limit import EXPECTED, parse_limit, read_limits

STALL_AFTER: Final = "STALL_AFTER_S"
START_STALL_AFTER: Final = "START_STALL_AFTER_S"
PROGRESS_FILE: Final = "PROGRESS_FILE"
_OFF: Final = StallSettings()


@record
class WatchSettings:
    """What the watchdog watches, as the environment says.

    Args:
        limits: None where it sets none.
        folder: INPLACE_PROGRESS_DIR of the worker; "" when files of a pattern are watched instead.
        pattern: of PROGRESS_FILE; "" for none.
        decides: whether it decides (stall_after_s, start_stall_after_s), be it that there is no limit.
    """

    limits: StallSettings = _OFF
    folder: str = ""
    pattern: str = ""
    decides: tuple[bool, bool] = (False, False)


def read_watch_settings(read: Environment, folder: str) -> WatchSettings:
    """Return the settings; problems are noted in `read`.

    Args:
        read: the environment.
        folder: where the ranks' files lie; "" when there is none, or a pattern.
    """
    limits = StallSettings(_limit_s(read, STALL_AFTER), _limit_s(read, START_STALL_AFTER))
    pattern = read.get(PROGRESS_FILE)
    if pattern:
        from inplace.agent.settings.paths import problem_of_pattern

        if problem := problem_of_pattern(pattern):
            read.problems.append(f"{PROGRESS_FILE}: {problem}")
    elif limits != _OFF and not folder.startswith("/"):
        expected = f"expected EPOCH_FILE or LINK_FILE on the Pod's emptyDir, or {PROGRESS_FILE}, beside it, saw neither"
        read.problems.append(f"{STALL_AFTER if limits.stall_after_s else START_STALL_AFTER}: {expected}")
    decides = (bool(read.get(STALL_AFTER)), bool(read.get(START_STALL_AFTER)))
    return WatchSettings(limits, folder, pattern, decides)


def annotated_limits(own: WatchSettings, last: StallSettings, text: str | None) -> tuple[StallSettings, str]:
    """Return the limits that hold, and what is wrong with the annotation, "" for nothing: a bad one changes nothing.

    Args:
        own: the environment's settings, which win.
        last: the limits that hold so far.
        text: the JobSet's annotation; None if it is not there.
    """
    try:
        after_s, start_s = read_limits(text) if text is not None else (None, None)
    except ValueError as error:
        return last, f"{wire.STALL}: {error}"
    of_env, (after_is_own, start_is_own) = own.limits, own.decides
    return StallSettings(
        of_env.stall_after_s if after_is_own else after_s, of_env.start_stall_after_s if start_is_own else start_s
    ), ""


def _limit_s(read: Environment, name: str) -> float | None:
    """Return a limit; None when it is unset, 0 or refused."""
    try:
        return parse_limit(read.get(name) or "0")
    except ValueError:
        read.refuse(name, EXPECTED)
        return None
