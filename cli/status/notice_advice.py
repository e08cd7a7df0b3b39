"""
Explain the notices of workers that run on: what is told, why it matters, what to do. Pure.

A rank that is busy is no obstacle; `busy_lines` says until when it excuses its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from inplace.cli.group.notices import ALL_SLOWER, busy_text, by_kind, in_scope, names_nobody
from inplace.cli.group.state import GroupState
from inplace.cli.status.advice import Obstacle
from inplace.cli.terminal.moments import count_text
from inplace.common.jobset.notices import GroupNotice, restart_on
from inplace.common.wire import names as wire
from inplace.common.wire.notice import BUSY, LOSS, SLOW, STALL, STEPS

INPUTS: Final = (
    "look for what changed for all ranks at that step: longer inputs, a slow file system or network; the metric "
    "inplace_agent_rank_work_seconds compares the ranks"
)


def obstacles_of_notices(state: GroupState, now_s: float) -> Iterator[Obstacle]:
    """Yield the numbers that go wrong in the epochs that run.

    Args:
        state: of a JobSet that runs.
        now_s: wall time.
    """
    for scope, kind, ones in by_kind(state.notices, now_s):
        for obstacle in _OF_KIND[kind](state, ones) if kind in _OF_KIND else ():
            yield Obstacle(obstacle.kind, in_scope(scope, obstacle.text), obstacle.advice, obstacle.pods)


def busy_lines(state: GroupState, now_s: float) -> list[str]:
    """Return a line for each scope in which a rank is busy."""
    return [in_scope(scope, busy_text(ones)) for scope, kind, ones in by_kind(state.notices, now_s) if kind == BUSY]


def _of_loss(state: GroupState, ones: Sequence[GroupNotice]) -> Iterator[Obstacle]:
    step = _first(ones).step
    at_step, older = "that step", "an older checkpoint"
    if step is not None:
        at_step, older = f"step {step}", f"a checkpoint from before step {step}"
    advice = (
        f"look at the data and the learning rate of {at_step}; then let the script load {older}: inplace restart "
        f"{state.name} -n {state.namespace}"
    )
    text = f"{_first(ones)}{_others(ones)}; {_effect(state, LOSS)}"
    yield Obstacle("LossNotFinite", text, advice, _pods(ones))


def _of_slow(state: GroupState, ones: Sequence[GroupNotice]) -> Iterator[Obstacle]:
    if names_nobody(SLOW, ones):
        yield Obstacle("SlowRanks", f"{ALL_SLOWER}; {_effect(state, SLOW)}", INPUTS, _pods(ones))
        return
    for one in ones:
        node, there = one.node or "NODE", f"node {one.node}" if one.node else "its node"
        advice = (
            f"look at {there} (GPU clocks, ECC errors, temperature); to move the Pod: kubectl cordon {node} && "
            f"kubectl delete pod {one.pod} -n {state.namespace}"
        )
        on_node = f" (node {one.node})" if one.node else ""
        text = f"{one}{on_node}; the others wait for it at each step; {_effect(state, SLOW)}"
        yield Obstacle("SlowRank", text, advice, (one.pod,))


def _of_steps(state: GroupState, ones: Sequence[GroupNotice]) -> Iterator[Obstacle]:
    advice = (
        "let the script tell how long each step waits for others: inplace.progress(step, waited_s=SECONDS); then the "
        "next notice names the slow rank"
    )
    text = f"{_first(ones)}{_others(ones)}; {_effect(state, STEPS)}"
    yield Obstacle("SlowSteps", text, advice, _pods(ones))


def _of_stall(state: GroupState, ones: Sequence[GroupNotice]) -> Iterator[Obstacle]:
    there = f"{state.name} -n {state.namespace}"
    advice = f"where its ranks were: inplace stacks {there} --last; if it hangs: inplace restart {there}"
    text = f"{_first(ones)}{_others(ones)}; {_effect(state, STALL)}"
    yield Obstacle("NoSteps", text, advice, _pods(ones))


_OF_KIND: Final[Mapping[str, Callable[[GroupState, Sequence[GroupNotice]], Iterator[Obstacle]]]] = {
    LOSS: _of_loss,
    SLOW: _of_slow,
    STEPS: _of_steps,
    STALL: _of_stall,
}


def _effect(state: GroupState, kind: str) -> str:
    """Say whether such a notice restarts the group."""
    if state.jobset is not None and kind in restart_on(state.jobset.annotations):
        return f"the group restarts because of it ({wire.RESTART_ON})"
    return f"nothing restarts because of it, as {wire.RESTART_ON} does not name {kind}"


def _first(ones: Sequence[GroupNotice]) -> GroupNotice:
    """Return the notice of the lowest step; of one step the first in the list."""
    return min(ones, key=lambda one: (one.step is None, one.step or 0))


def _others(ones: Sequence[GroupNotice]) -> str:
    return f"; {count_text(len(ones) - 1, 'other rank')} or more tell the same" if len(ones) > 1 else ""


def _pods(ones: Sequence[GroupNotice]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.pod for one in ones))
