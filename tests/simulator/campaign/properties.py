"""The properties that the campaign judges."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module

from inplace.simulator import campaign

_NAMED = re.compile(r"[SLM]\d+ ")


def properties() -> set[str]:
    """Return each property by the sentence that a violation prints: the campaign's constants that begin as `S1 `."""
    modules = [import_module(f"{campaign.__name__}.{found.name}") for found in pkgutil.iter_modules(campaign.__path__)]
    texts = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    return {text for text in texts if _NAMED.match(text)}
