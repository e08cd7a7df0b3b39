"""A problem in a manifest or a cluster: `inplace inject` refuses it, and `inplace lint` reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REFUSED: Final = "inject"  # the rule of all that inject refuses


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem.

    Args:
        rule: the id of the rule; `cli.lint.catalogue` has its severity and its reason.
        path: the field, or the object of the cluster.
        found: what is there.
        needed: what has to be there.
        fix: what to do.
    """

    rule: str
    path: str
    found: str
    needed: str
    fix: str

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.path}: found {self.found}, needed {self.needed}; {self.fix}"


def shown(value: object) -> str:
    """Return a value of a manifest for `found`."""
    return "nothing" if value is None else f"{value!r:.80}"


def refusal(path: str, found: object, needed: str, fix: str) -> Finding:
    """Return a refusal of inject; `found` is words, or a value of the manifest."""
    return Finding(REFUSED, path, found if isinstance(found, str) else shown(found), needed, fix)
