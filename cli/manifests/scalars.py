"""
What a plain scalar of YAML is to kubectl: null, a boolean, a number or text. It reads YAML 1.1 as go-yaml v2 does.

Source: go.yaml.in/yaml/v2 resolve.go; Go's strconv (ParseInt with base 0, ParseFloat); sigs.k8s.io/yaml for keys.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from math import inf, isfinite, isinf, isnan, nan
from typing import Final

Scalar = str | int | float | bool | None

INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
_WORDS: Final[Mapping[str, Scalar]] = {
    form: value
    for value, words in {True: "y yes true on", False: "n no false off"}.items()
    for word in words.split()
    for form in (word, word.capitalize(), word.upper())
} | dict.fromkeys(("", "~", "null", "Null", "NULL"))
_NOT_FINITE: Final[Mapping[str, float]] = {
    **dict.fromkeys((".nan", ".NaN", ".NAN"), nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -inf),
}
_INTEGER: Final = re.compile(
    "(?P<sign>[-+]?)(?:0[xX](?P<x>[0-9a-fA-F]+)|0[bB](?P<b>[01]+)|0[oO]?(?P<o>[0-7]+)|(?P<d>0|[1-9][0-9]*))"
    "|0b(?P<inner>[-+])(?P<signed>[01]+)"  # go-yaml's own reader of 0b takes a sign there
)
_BASES: Final = {"x": 16, "b": 2, "signed": 2, "o": 8, "d": 10}
_DIGITS_MAX: Final = 64  # of an integer of 64 bits, in base 2
_NUMBER: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FRACTION: Final = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")  # Go itself reads its `_`
_EXPONENTS_WRITTEN_OUT: Final = range(-4, 6)  # Go writes others as 1e+06


def read_scalar(text: str) -> Scalar:
    """Return what a plain scalar stands for; a float may be infinite or no number, which JSON cannot say."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    plain = text.replace("_", "")
    if text[0] == ".":
        return _number(text, plain) if _FRACTION.fullmatch(text) else text
    if (number := _integer(plain)) is not None:
        return number
    return _number(text, plain) if _NUMBER.fullmatch(plain) else text


def in_json(value: Scalar) -> Scalar:
    """Return a value as JSON's readers in Go give it: a number without a fraction is an integer if it has 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        return value
    return int(value) if -INT_MAX <= value <= INT_MAX else float(value)  # -2**63 too, as kubectl prints it


def key_text(value: Scalar) -> str | None:
    """Return what a key is in JSON; None if kubectl refuses it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if value <= INT_MAX else None
        case float():
            return _short_text(value)
    return value


def _integer(plain: str) -> int | None:
    """Return an integer of 64 bits; None if it is none."""
    if (found := _INTEGER.fullmatch(plain)) is None:
        return None
    parts = {name: part for name, part in found.groupdict().items() if part is not None}
    sign = parts.pop("sign", "") or parts.pop("inner", "")
    ((base, digits),) = parts.items()
    if len(digits.lstrip("0")) > _DIGITS_MAX:
        return None
    value = int(sign + digits, _BASES[base])
    return value if -INT_MAX - 1 <= value <= (INT_MAX if sign else UINT_MAX) else None


def _number(text: str, plain: str) -> float | str:
    """Return a number; one beyond floats is text."""
    value = float(plain)
    return text if isinf(value) else value


def _short_text(value: float) -> str:
    """Return the shortest text that gives a number back with 32 bits, as Go's FormatFloat(value, 'g', -1, 32)."""
    bits = struct.pack("f", value)
    (single,) = struct.unpack("f", bits)
    if not isfinite(single):
        return ".nan" if isnan(single) else ".inf" if single > 0 else "-.inf"
    texts = (f"{single:.{digits}e}" for digits in range(9))  # nine digits tell any two apart
    shortest = next(text for text in texts if struct.pack("f", float(text)) == bits)
    mantissa, _, exponent = shortest.partition("e")
    if int(exponent) not in _EXPONENTS_WRITTEN_OUT:
        return shortest
    decimals = len(mantissa.lstrip("-").replace(".", "")) - 1 - int(exponent)
    return f"{float(shortest):.{max(0, decimals)}f}"
