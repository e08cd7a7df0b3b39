"""
A queue that no namespace can fill for the others.

Namespaces have turns, one after the other; in its turn a namespace's oldest item comes. So a new item waits for one
turn of each other namespace, however much they have queued. A namespace alone has every turn.

A turn pays for one place. Who takes more owes the rest, and lets later turns pass until it is paid. So over time
namespaces get as many places each. Who waits alone pays at once.

Every operation takes constant time, on average over the places taken.

Source: deficit round robin (M. Shreedhar and G. Varghese, 1995), with debts instead of credits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairQueue(Generic[T]):
    """Items that wait, each once, and whose turn it is."""

    def __init__(self) -> None:
        # In the order of their turns; each has items or owes.
        self._lines: OrderedDict[Hashable, OrderedDict[T, None]] = OrderedDict()
        self._owed: dict[Hashable, int] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def count(self, namespace: Hashable) -> int:
        """Return how many items of a namespace wait."""
        return len(self._lines.get(namespace, ()))

    def put(self, namespace: Hashable, item: T) -> None:
        """Let an item wait behind those of its namespace."""
        if (line := self._lines.get(namespace)) is None:
            line = self._lines[namespace] = OrderedDict()
        line[item] = None
        self._waiting += 1

    def head(self, may: Callable[[Hashable], bool] = lambda _: True) -> tuple[Hashable, T] | None:
        """Return whose turn it is, and the item, of the namespaces that `may` have one; None when none waits."""
        while self._waiting:
            namespace = next(iter(self._lines))
            if namespace not in self._owed:
                break
            self._charge(namespace, self._owed.pop(namespace))
        for namespace, line in self._lines.items():
            if namespace not in self._owed and may(namespace):
                return namespace, next(iter(line))
        return None

    def take(self, namespace: Hashable, places: int = 1) -> T:
        """Take the oldest item of a namespace, whose turn ends; it takes so many places."""
        item, _ = self._lines[namespace].popitem(last=False)
        self._waiting -= 1
        self._charge(namespace, places)
        return item

    def discard(self, namespace: Hashable, item: T) -> bool:
        """Remove an item, if it waits; all turns stay as they are."""
        line = self._lines.get(namespace)
        if line is None or item not in line:
            return False
        del line[item]
        self._waiting -= 1
        self._charge(namespace, 0)
        return True

    def _charge(self, namespace: Hashable, places: int) -> None:
        """End a turn, which pays for one of the places; 0: there was none."""
        if not self._waiting:  # nothing waits, so no namespace loses when debts are forgotten
            self._lines.clear()
            self._owed.clear()
        elif places > 1:
            self._owed[namespace] = self._owed.get(namespace, 0) + places - 1
            self._lines.move_to_end(namespace)
        elif not self._lines[namespace] and namespace not in self._owed:
            del self._lines[namespace]
        elif places:
            self._lines.move_to_end(namespace)
