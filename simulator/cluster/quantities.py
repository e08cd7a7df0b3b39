"""Kubernetes quantities: "500m", "2Gi", "1e3"."""

from __future__ import annotations

_SUFFIXES = {
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}


def parse_quantity(text: str | float) -> float:
    """Return a quantity's value; raises ValueError for any other text."""
    if not isinstance(text, str):
        return float(text)
    for length in (2, 1):
        if text[-length:] in _SUFFIXES:
            return float(text[:-length]) * _SUFFIXES[text[-length:]]
    return float(text)
