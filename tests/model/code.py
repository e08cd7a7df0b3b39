"""
The code under check: production's modules, or the same text with one planted mistake.

A supervisor built on a planted agent, or a sidecar on a planted telling, is production's text too: it finds the planted
module where it imports that one.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest import mock

import inplace.common.epoch.agent
import inplace.common.epoch.guard
import inplace.common.epoch.lease
import inplace.common.epoch.ledger
import inplace.common.epoch.sidecar
import inplace.common.epoch.supervisor
import inplace.common.epoch.telling
import inplace.common.linked_worker
import inplace.common.wire

_SERIAL: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class Code:
    """The modules of one protocol; `Any`, because a planted module has types of its own."""

    agent: Any = inplace.common.epoch.agent
    lease: Any = inplace.common.epoch.lease
    ledger: Any = inplace.common.epoch.ledger
    supervisor: Any = inplace.common.epoch.supervisor
    guard: Any = inplace.common.epoch.guard
    sidecar: Any = inplace.common.epoch.sidecar
    telling: Any = inplace.common.epoch.telling
    linked_worker: Any = inplace.common.linked_worker
    wire: Any = inplace.common.wire


def planted(module: str, old: str, new: str) -> Code:
    """Return production code in which `old` reads `new`.

    Raises:
        AssertionError: `old` does not occur exactly once in the module.
    """
    original: ModuleType = getattr(Code(), module)
    path = Path(str(original.__file__))
    text = path.read_text()
    if text.count(old) != 1:
        raise AssertionError(f"{path.name}: expected {old!r} exactly once, saw it {text.count(old)} times")
    copy = _module(module, text.replace(old, new), f"{path} with {new!r}")
    if module == "agent":
        lease = _built_on("lease", "agent", copy)
        return Code(agent=copy, lease=lease, supervisor=_built_on("supervisor", "agent", copy))
    if module == "telling":
        return Code(telling=copy, sidecar=_built_on("sidecar", "telling", copy))
    return Code(**{module: copy})


def _built_on(name: str, below: str, copy: ModuleType) -> ModuleType:
    """Return production's module `name`, built on another module than production's `below`."""
    path = Path(str(getattr(Code(), name).__file__))
    with mock.patch.dict(sys.modules, {f"inplace.common.epoch.{below}": copy}):
        return _module(name, path.read_text(), str(path))


def _module(name: str, text: str, origin: str) -> ModuleType:
    module = ModuleType(f"planted_{name}_{next(_SERIAL)}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(text, origin, "exec"), module.__dict__)  # noqa: S102  our own source
    return module
