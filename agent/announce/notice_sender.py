"""
Tell the group of a worker that runs with one PATCH of this Pod, and hear from the status what other Pods tell.

`agent.progress.rank_notices` says what there is to tell. A Pod tells each kind once in an epoch, that it is busy again
and again while that lasts, and of a silence also its end. When a loss stops being a number, it does so in all Pods: so
a Pod waits for a moment of its own (`agent.announce.report_delay`), and tells nothing that the status says already.
Nothing waits for the PATCH, and whatever becomes of it, training goes on. docs/adr/0104
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from inplace.agent.announce.jobset_requests import notice_request
from inplace.agent.announce.report_delay import report_delay_s
from inplace.agent.announce.retry_causes import words_of
from inplace.agent.deps import AgentDeps
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.errors import ApiError, Forbidden, Invalid
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.watch import ending_of

if TYPE_CHECKING:
    from inplace.common.protocol.stall import StallState
    from inplace.common.wire.notice import Notice

SEND_S_MAX: Final = 5.0
AGAIN_S: Final = 30.0  # after a PATCH that got lost
NEVER_S: Final = float("inf")
ANEW_SHARE: Final = 0.5  # of what a busy notice excuses: then the next one is due
PATIENCE: Final = 10.0  # a notice that is not urgent waits ten times as long as a failure's report: fewer Pods send one


class NoticeSender:
    """One agent's notices.

    Args:
        epoch: returns the epoch that this Pod announced last.
    """

    def __init__(self, config: AgentConfig, deps: AgentDeps, *, epoch: Callable[[], int]) -> None:
        self._config = config
        self._clock = deps.clock
        self._rng = deps.rng
        self._log = deps.log
        self._metrics = deps.metrics
        self._stalls = deps.stalls
        self._patches = deps.patches
        self._epoch = epoch
        self._tasks = deps.tasks
        self._listed: list[Mapping[str, Any]] = []  # status.notices, this Pod's scope alone
        self._obeyed: set[str] = set()  # the busy entries of `_listed`
        self._excused_until_s = 0.0
        self._not_before_s: dict[tuple[int, str], float] = {}  # by epoch and kind
        self._task: asyncio.Task[None] | None = None

    def take_listed(self, entries: Sequence[object]) -> None:
        """Take the status's notices; what another program spoiled there is passed over."""
        self._listed = [
            entry
            for entry in entries
            if isinstance(entry, Mapping) and entry.get("scope", "") == self._config.restart_scope
        ]
        obeyed, self._obeyed = self._obeyed, set()
        for entry in self._of_kind("busy"):
            value, which = entry.get("value"), str((entry.get("epoch"), entry.get("pod"), entry.get("at")))
            self._obeyed.add(which)
            if which not in obeyed and isinstance(value, int) and value > 0:
                self._excused_until_s = max(self._excused_until_s, self._clock.monotonic_s() + value)
                if self._stalls is not None:
                    self._stalls.excuse(float(value))

    def take_look(self, state: StallState) -> None:
        """Begin to tell what the ranks give reason for, one thing at a time."""
        from inplace.agent.progress.rank_notices import notices_of, work_s_of

        self._metrics.ranks_work_s = work_s_of(state)
        if (self._task is not None and not self._task.done()) or self._patches.left_s:
            return
        now_s = self._clock.monotonic_s()
        for notice in notices_of(state, self._clock.wall_s()):
            if now_s >= self._not_before_s.get((notice.epoch, notice.kind), 0.0) and not self._is_known(notice):
                self._task = self._tasks.create_task(self._tell(notice))
                return

    def drop(self) -> None:
        """Stop, whatever is under way: this process ends."""
        if self._task is not None:
            self._task.cancel()

    def _of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        epoch = self._epoch()
        return [entry for entry in self._listed if (entry.get("kind"), entry.get("epoch")) == (kind, epoch)]

    def _is_known(self, notice: Notice) -> bool:
        """Say whether the group knows enough of this already, or the notice's epoch is over."""
        from inplace.common.wire.notice import BUSY, LISTED_MAX, LOSS, PAUSE, STALL, STEPS

        if notice.epoch != self._epoch():
            return True
        if notice.kind == BUSY:
            return self._excused_until_s - self._clock.monotonic_s() > ANEW_SHARE * notice.value
        listed = self._of_kind(notice.kind)
        is_listed = any(entry.get("pod") == self._config.pod_name for entry in listed)
        if notice.kind == PAUSE:  # it only takes back what the status lists: this Pod's stall
            return all(entry.get("pod") != self._config.pod_name for entry in self._of_kind(STALL))
        if notice.kind in (LOSS, STALL) and not is_listed:
            # Who was the first, or is furthest behind, tells even if other Pods have told already.
            steps = [entry.get("step") for entry in listed]
            return bool(listed) and (notice.step is None or any(_is_at_most(step, notice.step) for step in steps))
        if notice.kind == STEPS:
            return bool(listed)
        return is_listed or len(listed) >= LISTED_MAX

    async def _tell(self, notice: Notice) -> None:
        from inplace.common.wire.notice import BUSY, PAUSE, STALL, notice_text

        is_busy = notice.kind == BUSY
        delay_s = report_delay_s(self._config.herd.size, self._rng.random())
        await self._clock.sleep(delay_s if is_busy else PATIENCE * delay_s)
        if self._is_known(notice) or self._patches.left_s:
            return
        text = notice_text(notice)
        which = {"kind": notice.kind, "rank": notice.rank, "step": notice.step, "value": notice.value}
        self._log.info("notice_told", epoch=notice.epoch, **which)
        next_s = ANEW_SHARE * notice.value if is_busy else NEVER_S
        if notice.kind in (STALL, PAUSE):  # the next silence is a longer one, so an epoch has few of them
            next_s = float(notice.value)
        try:
            await self._patches.send(notice_request(self._config, text), SEND_S_MAX)
            self._metrics.requests["patch", "ok"] += 1
        except (ApiError, TransportError) as error:
            is_refused = isinstance(error, Forbidden | Invalid)  # deploy/admission is older than this agent
            again_s = min(AGAIN_S, ANEW_SHARE * next_s)
            next_s = NEVER_S if is_refused else again_s
            then = "it is told no more" if is_refused else f"it is told again in {again_s:g} s"
            self._log.warning("notice_not_told", kind=notice.kind, message=words_of(ending_of(error)), then=then)
        self._not_before_s = {key: at_s for key, at_s in self._not_before_s.items() if key[0] == notice.epoch} | {
            (notice.epoch, notice.kind): self._clock.monotonic_s() + next_s
        }


def _is_at_most(step: object, most: int) -> bool:
    return isinstance(step, int) and step <= most
