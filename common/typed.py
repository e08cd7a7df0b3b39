"""
typing's names for modules on the agent's start path, without typing: importing that takes a tenth of a start.

A type checker sees the real names. At run time annotations are never evaluated, so a name that stands in annotations
alone may be anything; Protocol is a plain base class, and TypeVar returns its argument.
"""

TYPE_CHECKING = False  # type checkers take a name like this for True

if TYPE_CHECKING:
    from typing import Any as Any
    from typing import Final as Final
    from typing import Protocol as Protocol
    from typing import TextIO as TextIO
    from typing import TypeVar as TypeVar
else:
    Any = Final = TextIO = None

    class Protocol:
        """The base class of a seam."""

    def TypeVar(name: str) -> str:  # noqa: N802 - typing's name
        """Stand for a type."""
        return name
