"""The code under check: production's modules, or the same text with one planted mistake."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import common.epoch.agent
import common.epoch.ledger

_SERIAL: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class Code:
    """The two modules of one protocol; `Any`, because a planted module has types of its own."""

    agent: Any = common.epoch.agent
    ledger: Any = common.epoch.ledger


def planted(module: str, old: str, new: str) -> Code:
    """Return production code in which `old` reads `new`.

    Raises:
        AssertionError: `old` does not occur exactly once in common/epoch/<module>.py.
    """
    original: ModuleType = getattr(Code(), module)
    path = Path(str(original.__file__))
    text = path.read_text()
    if text.count(old) != 1:
        raise AssertionError(f"{path.name}: expected {old!r} exactly once, saw it {text.count(old)} times")
    copy = ModuleType(f"planted_{module}_{next(_SERIAL)}")
    sys.modules[copy.__name__] = copy  # dataclasses look their module up
    exec(compile(text.replace(old, new), f"{path} with {new!r}", "exec"), copy.__dict__)  # noqa: S102  our own source
    return Code(**{module: copy})
