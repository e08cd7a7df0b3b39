"""
Read quantities such as 1Gi, 500m and 1e3 as numbers.

Source: k8s.io/apimachinery pkg/api/resource, the grammar in quantity.go.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_FORM: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)")
_DECIMAL: Final = {
    suffix: Decimal(1000) ** power for suffix, power in zip("numkMGTPE", (-3, -2, -1, *range(1, 7)), strict=True)
}
_BINARY: Final = {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
_FACTORS: Final = _DECIMAL | _BINARY


def parse_quantity(value: object) -> Decimal | None:
    """Return a quantity as a number; None for another text."""
    found = _FORM.fullmatch(str(value))
    if found is None:
        return None
    number, exponent, suffix = found.groups()
    factor = Decimal(10) ** int(exponent) if exponent else _FACTORS[suffix] if suffix else Decimal(1)
    return Decimal(number) * factor


def quantity_text(amount: Decimal, *, is_bytes: bool) -> str:
    """Return a quantity as people write it: 960m, 1500, or of bytes 32Mi."""
    if is_bytes:
        suffix, factor = max(
            (one for one in _BINARY.items() if amount >= one[1] and amount % one[1] == 0),
            key=lambda one: one[1],
            default=("", Decimal(1)),
        )
        return f"{int(amount / factor)}{suffix}"
    return f"{int(amount)}" if amount == int(amount) else f"{int(amount * 1000)}m"
