"""Breadth-first exploration of one configuration, and the search for states with no way back together."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Generic

from tests.model.moves import Explored, S
from tests.model.pods import Config
from tests.model.rules import STUCK
from tests.model.world import World


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one exploration.

    Args:
        states, transitions: of the whole space, also those for which a state that is like them was explored.
        rule: the first rule broken, or "".
        trace: the shortest way there, one line per move.
        complete: every reachable state was visited.
        seconds: of one core; whoever runs the exploration notes them.
    """

    name: str
    states: int
    transitions: int
    depth: int
    rule: str = ""
    trace: tuple[str, ...] = ()
    complete: bool = True
    seconds: float = 0.0


class Exploration(Generic[S]):
    """Visits every reachable state in order of distance, so that the first violation has a shortest trace."""

    def __init__(self, world: Explored[S], states_max: int = 10**9) -> None:
        self.world = world
        self.states_max = states_max
        self.first = world.initial()
        first = world.canonical(self.first)
        self.states: list[S] = [first]  # canonical ones
        self.numbers: dict[S, int] = {first: 0}
        self.parents = array("i", [-1])
        self.edges = array("i")  # targets of moves that are no faults
        self.edge_ends = array("q")  # for each state, where its edges end
        self.visited = 0
        self.transitions = 0
        self.rule = ""
        self.trace: tuple[str, ...] = ()

    def run(self) -> None:
        """Visit every reachable state; stop at the first broken rule."""
        number = 0
        while number < len(self.states) and not self.rule and len(self.states) <= self.states_max:
            self._expand(number)
            number += 1
        if not self.rule and self.is_complete():
            self._find_stuck()

    def is_complete(self) -> bool:
        """Return whether every reachable state was expanded."""
        return len(self.edge_ends) == len(self.states)

    def depth(self) -> int:
        """Return the distance of the last state from the first."""
        return len(self._path(len(self.states) - 1)) - 1

    def _expand(self, number: int) -> None:
        state, canonical = self.states[number], self.world.canonical
        numbers, states, parents, edges = self.numbers, self.states, self.parents, self.edges
        alike, moves = self.world.alike(state), 0
        self.visited += alike
        if rule := self.world.broken(state):
            self._report(rule, number, is_move=False)
            return
        for _, after, fault, rule in self.world.moves(state):
            if rule:
                self._report(rule, number, is_move=True)
                return
            moves += 1
            target = canonical(after)
            found = numbers.get(target)
            if found is None:
                found = numbers[target] = len(states)
                states.append(target)
                parents.append(number)
            if not fault:
                edges.append(found)
        self.edge_ends.append(len(edges))
        self.transitions += alike * moves

    def _find_stuck(self) -> None:
        """Mark the states that reach a good state without faults; BFS order makes backward passes converge fast."""
        count = len(self.states)
        marked = bytearray(self.world.is_good(state) for state in self.states)
        pending = [number for number in range(count - 1, -1, -1) if not marked[number]]
        edges, ends = self.edges, self.edge_ends
        while pending:
            rest = []
            for number in pending:
                begin = ends[number - 1] if number else 0
                if any(marked[edges[at]] for at in range(begin, ends[number])):
                    marked[number] = 1
                else:
                    rest.append(number)
            if len(rest) == len(pending):
                self._report(STUCK, rest[-1], is_move=False)
                return
            pending = rest

    def _path(self, number: int) -> list[int]:
        path = []
        while number >= 0:
            path.append(number)
            number = self.parents[number]
        return path[::-1]

    def _report(self, rule: str, number: int, *, is_move: bool) -> None:
        """Name the moves on the way to a violation: go it once more, from the first state, among the states it meets.

        Args:
            rule: that a move of this state breaks, or the state itself.
            number: of the state.
            is_move: a move breaks it.
        """
        here, lines = self.first, list[str]()
        for at in self._path(number)[1:]:
            canonical, there = self.world.canonical, self.states[at]
            text, here = next(move[:2] for move in self.world.moves(here) if canonical(move.state) == there)
            lines.append(text)
        if is_move:
            lines.append(next(move.text for move in self.world.moves(here) if move.rule == rule))
        self.rule, self.trace = rule, tuple(lines)


def explore(config: Config, states_max: int = 10**9) -> Result:
    """Explore one configuration."""
    return explore_world(str(config), World(config), states_max)


def explore_world(name: str, world: Explored[S], states_max: int = 10**9) -> Result:
    """Visit every state of a world, and look for those from which the group cannot come together."""
    run = Exploration(world, states_max)
    run.run()
    complete = bool(run.rule) or run.is_complete()
    return Result(name, run.visited, run.transitions, run.depth(), run.rule, run.trace, complete)
