"""
Compile and run CEL with the Kubernetes functions that this project's rules use.

Guarantees: an expression that the package cannot parse is reported once as a warning. Costs are not limited.
Source: k8s.io/apiserver/pkg/cel/library and cel-go ext/strings.go.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import cel

from inplace.common.kube.quantity import parse_quantity

UNKNOWN_FUNCTION: Final = "Undefined variable or function"
_PROGRAMS_MAX: Final = 2048
_ESCAPED: Final = re.compile(r"\.__(\w+?)__(?!\w)")
_VARIABLE: Final = re.compile(r"(?<![.\w])variables\.")
_VERB: Final = re.compile(r"%(?:[sd%])")


class CelUnsupportedWarning(UserWarning):
    """A rule is not evaluated, because the CEL package lacks something it needs."""


def _format(template: str, args: list[Any]) -> str:
    rest = iter(args)
    return _VERB.sub(lambda verb: "%" if verb[0] == "%%" else str(next(rest)), template)


def _quantity(text: str) -> str:
    """Return a text that is the same for equal quantities, since a value here has to be one of CEL's own types."""
    number = parse_quantity(text)
    if number is None:
        raise ValueError(f"quantity: expected one such as 500m or 1Gi, saw {text!r}")
    return str(number.as_integer_ratio())


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "format": _format,
    "isQuantity": lambda text: parse_quantity(text) is not None,
    "join": lambda items, separator="": separator.join(items),
    "min": min,
    "quantity": _quantity,
    "replace": lambda text, old, new: text.replace(old, new),
    "split": lambda text, separator: text.split(separator),
    "substring": lambda text, start, end: text[start:end],
    "sum": sum,
}


@lru_cache(maxsize=_PROGRAMS_MAX)
def compiled(expression: str) -> cel.Program | None:
    """Return the program of an expression; None, and a warning, when the package cannot parse it."""
    try:
        return cel.compile(unescaped(_VARIABLE.sub(variable_named(""), expression)))
    except ValueError as error:
        warn_once(expression, str(error))
        return None


def unescaped(expression: str) -> str:
    """Return an expression as the package reads it: a reserved word is an ordinary key there, and is not escaped."""
    return _ESCAPED.sub(r".\1", expression)


def variable_named(name: str) -> str:
    """Return how a program knows `variables.NAME`: with one map of all, each would be converted again for the next."""
    return f"variables_{name}"


class CelVariables:
    """The variables and Kubernetes functions that a program can use.

    A value is converted ONCE, however many programs look at it: that takes as long as a simple rule on a large object.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._context = cel.Context()
        for name, value in variables.items():
            self.set(name, value)
        for name, function in _FUNCTIONS.items():
            self._context.add_function(name, function)

    def set(self, name: str, value: Any) -> None:
        """Define a variable, or replace its value."""
        self._context.add_variable(name, value)

    def execute(self, program: cel.Program) -> Any:
        """Run a program.

        Raises:
            RuntimeError, TypeError, ValueError, KeyError: CEL's runtime errors, as the package maps them.
        """
        return program.execute(self._context)

    def text_of(self, expression: str) -> str:
        """Return a messageExpression's text; "" when it fails or is blank: then the server takes `message`."""
        program = compiled(expression)
        if program is None:
            return ""
        try:
            return str(self.execute(program)).strip()
        except (RuntimeError, TypeError, ValueError, KeyError):
            return ""


@lru_cache(maxsize=_PROGRAMS_MAX)
def warn_once(expression: str, why: str) -> None:
    """Warn that a rule is not evaluated."""
    warnings.warn(f"CEL rule is not evaluated: {expression!r}: {why}", CelUnsupportedWarning, stacklevel=2)
