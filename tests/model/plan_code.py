"""The controller's plan under check: production's modules, or the same with one planted mistake in them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock


@dataclass(frozen=True, slots=True)
class PlanCode:
    """The code under check, and what the shell around it forgets.

    Args:
        module: its name in the chain; "" for production's code.
        old, new: the planted mistake.
        forgets: a leader keeps the uses of a ladder in its memory, not in the status.
    """

    module: str = ""
    old: str = ""
    new: str = ""
    forgets: bool = False

    def load(self, chain: Mapping[str, ModuleType]) -> dict[str, Any]:
        """Return modules by name; those that import the planted one import the mistake.

        Args:
            chain: production's; each imports from the ones before it.

        Raises:
            AssertionError: `old` does not occur exactly once in the module.
        """
        modules: dict[str, Any] = dict(chain)
        replaced: dict[str, ModuleType] = {}
        for name, module in chain.items() if self.module else ():
            if name == self.module or replaced:
                mistake = (self.old, self.new) if name == self.module else ("", "")
                with mock.patch.dict(sys.modules, replaced):
                    replaced[module.__name__] = modules[name] = _copy(module, *mistake)
        return modules


def _copy(module: ModuleType, old: str, new: str) -> ModuleType:
    """Return a module anew, with a mistake in it."""
    path = Path(str(module.__file__))
    text = path.read_text()
    if old and text.count(old) != 1:
        raise AssertionError(f"{path.name}: expected {old!r} exactly once, saw it {text.count(old)} times")
    copy = ModuleType(f"planted_{module.__name__.replace('.', '_')}")
    sys.modules[copy.__name__] = copy  # dataclasses look their module up
    exec(compile(text.replace(old, new) if old else text, str(path), "exec"), copy.__dict__)  # noqa: S102  our own
    return copy
