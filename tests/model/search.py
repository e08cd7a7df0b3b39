"""Visit every state of one Pod's world, nearest first; for the worlds that a list of moves describes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from inplace.common.bare.record import replace
from inplace.common.protocol.agent import AgentPhase
from tests.model.explore import Result

P = TypeVar("P")


class World(Protocol[P]):
    """Knows the first state, every move, and which states break a rule."""

    def first(self) -> P:
        """Return the first state."""

    def moves(self, pod: P) -> Iterator[tuple[str, P]]:
        """Yield every move: its name and the state after it."""

    def judge(self, pod: P) -> str:
        """Name the rule that a state breaks, or return ""."""


def search(name: str, world: World[P], *, is_last: Callable[[P], bool], may_be: Callable[[P], bool]) -> Result:
    """Visit every state; stop at the first that breaks a rule.

    Args:
        name: of the result.
        world: of one Pod.
        is_last: nothing is explored beyond such a state.
        may_be: other states are not visited.
    """
    first = world.first()
    came: dict[P, tuple[P, str] | None] = {first: None}
    waiting, transitions = deque([first]), 0
    while waiting:
        pod = waiting.popleft()
        if rule := world.judge(pod):
            return Result(name, len(came), transitions, 0, rule, _trace(came, pod), complete=False)
        if is_last(pod):
            continue
        for text, after in world.moves(pod):
            transitions += 1
            if after not in came and may_be(after):
                came[after] = (pod, text)
                waiting.append(after)
    return Result(name, len(came), transitions, 0)


def _trace(came: dict[P, tuple[P, str] | None], pod: P) -> tuple[str, ...]:
    texts = []
    while (step := came[pod]) is not None:
        pod, text = step
        texts.append(text)
    return tuple(reversed(texts))


def canonical(state: Any) -> Any:
    """Forget whether a view was consistent once the epoch is chosen: nothing reads it then.

    Args:
        state: a machine's, which has the agent's as `agent`.
    """
    view = state.agent.view
    if view is None or state.agent.phase in (AgentPhase.STARTING, AgentPhase.CONFIRMING):
        return state
    return replace(state, agent=replace(state.agent, view=replace(view, consistent=False)))
