"""A planted bug, which the model checker must find: an uncaught one shows that the checker, or a rule, is blind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.mistakes.mistake import Mistake, planted
from tests.model.explore import Result, explore
from tests.model.pods import Config


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug.

    Args:
        name: what is wrong.
        where: it shows: in the world of a group, or in another exploration.
        mistake: in the code; None if the environment is at fault.
        slow: takes too long for --quick.
    """

    name: str
    where: Config | Callable[[], Result]
    mistake: Mistake | None = None
    slow: bool = False

    def hunt(self) -> Result:
        """Explore the code with the bug in it, where it shows."""
        with planted(*([self.mistake] if self.mistake is not None else [])):
            return explore(self.where) if isinstance(self.where, Config) else self.where()


def dropped(name: str, assumption: str, config: Config, *, slow: bool = False) -> Bug:
    """Drop an assumption about the environment."""
    return Bug(f"environment: {name}", replace(config, dropped=frozenset({assumption})), slow=slow)
