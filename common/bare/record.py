"""
Frozen, slotted records: like `dataclass(frozen=True, slots=True)`, at a tenth of its cost.

The module dataclasses imports inspect, ast and tokenize, and makes each class twice. On the agent's start path that
took a third of the time, for 5,000 Pods at every restart. Code off that path uses dataclasses, or records where a
command of the CLI would wait for them. A record has no fields that are not arguments, no default factories, no
inheritance and no order.
"""

from __future__ import annotations

from _operator import attrgetter  # `operator` is a module of Python around it

from inplace.common.bare.typed import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from typing import dataclass_transform
else:  # it does nothing, and typing costs a start

    def dataclass_transform(**_: Any) -> Any:  # noqa: D103
        return lambda decorator: decorator


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class with annotated fields a frozen record; methods that it defines itself stay."""
    names = tuple(cls.__dict__.get("__annotations__", {}))  # noqa: RUF063 - inspect is what this avoids
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    kept = {name: value for name, value in cls.__dict__.items() if name not in (*names, "__dict__", "__weakref__")}
    made: Any = type(
        cls.__name__,
        cls.__bases__,
        {"__slots__": names, "__match_args__": names, "__qualname__": cls.__qualname__, **_FROZEN, **kept},
    )
    made.__init__ = _initializer(made, names, defaults)
    made.__eq__, made.__hash__ = _comparison(names)
    return made  # type: ignore[no-any-return]


def replace(old: T, **changes: Any) -> T:
    """Return a record like `old` but for some fields."""
    cls: Any = type(old)
    made: T = cls(**({name: getattr(old, name) for name in cls.__match_args__} | changes))
    return made


def _initializer(made: Any, names: tuple[str, ...], defaults: dict[str, Any]) -> Any:
    """Compile `__init__`, so that it costs what one written by hand costs: the model checker makes millions."""
    scope: dict[str, Any] = {f"_set_{name}": made.__dict__[name].__set__ for name in names}
    scope |= {f"_default_{name}": value for name, value in defaults.items()}
    parameters = ", ".join(f"{name}=_default_{name}" if name in defaults else name for name in names)
    body = "; ".join(f"_set_{name}(self, {name})" for name in names) or "pass"
    exec(f"def __init__(self, {parameters}): {body}", scope)  # noqa: S102 - our own names, as dataclasses does
    return scope["__init__"]


def _comparison(names: tuple[str, ...]) -> tuple[Any, Any]:
    """Return `__eq__` and `__hash__` by the fields' values."""
    values: Any = attrgetter(*names) if names else lambda _: ()

    def equals(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: Any) -> int:
        return hash(values(self))

    return equals, hash_of


def _reduce(self: Any) -> tuple[Any, tuple[Any, ...]]:
    return type(self), tuple(getattr(self, name) for name in self.__match_args__)


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__match_args__)})"


def _refuse(self: Any, name: str, *_: Any) -> None:
    raise AttributeError(
        f"{type(self).__qualname__} is frozen: {name} cannot be changed; see common.bare.record.replace"
    )


_FROZEN = {"__repr__": _repr, "__reduce__": _reduce, "__setattr__": _refuse, "__delattr__": _refuse}
