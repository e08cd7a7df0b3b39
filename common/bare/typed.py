"""
typing's names for modules on the agent's start path, without importing typing, which takes a tenth of a start.

The names of collections.abc are for modules that a guard loads, which need nothing else of collections.

A type checker sees the real names. At run time annotations are never evaluated, so a name that stands in annotations
only may be anything; Protocol is a plain base class, and TypeVar returns its argument.
"""

TYPE_CHECKING = False  # type checkers take a name like this for True

if TYPE_CHECKING:
    from collections.abc import Callable as Callable
    from collections.abc import Mapping as Mapping
    from collections.abc import Sequence as Sequence
    from typing import Any as Any
    from typing import Final as Final
    from typing import Protocol as Protocol
    from typing import TextIO as TextIO
    from typing import TypeVar as TypeVar
else:
    Any = Callable = Final = Mapping = Sequence = TextIO = None

    class Protocol:
        """The base class of a seam."""

    def TypeVar(name: str) -> str:  # noqa: N802 - typing's name
        """Stand for a type."""
        return name
