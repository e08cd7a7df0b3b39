"""
Find what an engine, envsubst or a reader should have replaced: ${NAME}, $NAME, $(NAME), {{ .Name }}, <name>. Pure.

Texts in which such words may have a meaning of their own are left out: commands, values of variables, annotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from inplace.common.injection.finding import Finding
from inplace.common.kube.resources import KubeObject

_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|\$[A-Za-z_]\w*|\{\{.*?\}\}|<[A-Za-z][^<>]*>")
_OWN_MEANING: Final = frozenset(
    ("command", "args", "value", "annotations", "subPathExpr", "exec", "workingDir", "onJobFailureMessagePatterns")
)


def check_placeholders(jobset: KubeObject) -> Iterator[Finding]:
    """Yield each place with a variable."""
    for path, text in _texts(jobset, ""):
        if found := _PLACEHOLDER.search(text):
            command = "helm template CHART" if found[0].startswith("{{") else "envsubst < FILE"
            fix = f"fill the template in first, as with {command} | inplace lint -f -; the rest is judged then"
            if found[0].startswith("<"):
                fix = "write the value in its place; the rest is judged then"
            yield Finding("unexpanded-variable", path, f"{found[0]} in {text!r:.80}", "its value", fix)


def _texts(part: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield all texts with their paths; items of a list by their names, as all our paths have them."""
    if isinstance(part, str):
        yield path, part
    elif isinstance(part, dict):
        for key, value in part.items():
            if key not in _OWN_MEANING:
                yield f"the key in {path}", str(key)
                yield from _texts(value, f"{path}.{key}" if path else str(key))
    elif isinstance(part, list):
        for index, item in enumerate(part):
            name = item.get("name") if isinstance(item, dict) else None
            label = f'name="{name}"' if isinstance(name, str) and name else str(index)
            yield from _texts(item, f"{path}[{label}]")
