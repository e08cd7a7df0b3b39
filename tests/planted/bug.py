"""A planted bug, and who must find it: an uncaught one shows that the finder, or a rule, is blind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from tests.model.explore import Result, explore
from tests.model.pods import Config
from tests.planted.mistake import Mistake, planted

World = Config | Callable[[], Result]
CAMPAIGN, MODEL, STORIES = "campaign", "model", "stories"


class Area(Enum):
    """The part of the system that has the bug."""

    PROTOCOL = "protocol"
    AGENT = "agent"
    WATCHDOG = "watchdog"
    INFORMER = "informer"
    QUEUE = "queue"
    LEADER = "leader election"
    BACKOFF = "backoff"
    CONTROLLER = "controller"
    BUDGET = "budget"
    KUBELET = "kubelet"
    PLAN = "plan"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted bug.

    Args:
        name: the mistake, in words.
        mistakes: what is wrong in the code; none where the environment is at fault.
        model: the other project's bug that it is modelled on; "" for a bug of our own invention.
        faults: the campaign of faults finds it, with seeds of these faults where ordinary ones do not do; None: it does
            not hunt it.
        worlds: in each the model checker finds it: the world of a group, or another exploration.
        slow: the model checker takes too long for --quick.
        stories: a family; one of its stories turns red.
    """

    name: str
    area: Area
    mistakes: tuple[Mistake, ...] = ()
    model: str = ""
    faults: tuple[str, ...] | None = None
    worlds: tuple[World, ...] = ()
    slow: bool = False
    stories: str = ""

    @property
    def finders(self) -> tuple[str, ...]:
        """Return who must find it."""
        by = {CAMPAIGN: self.faults is not None, MODEL: self.worlds, STORIES: self.stories}
        return tuple(name for name, does in by.items() if does)

    def check(self) -> Result:
        """Explore the code with the bug in it, where it shows; return the last result, or the first without a find."""
        with planted(*self.mistakes):
            for world in self.worlds:
                result = explore(world) if isinstance(world, Config) else world()
                if not result.rule:
                    break
            return result


def hunted(
    name: str,
    area: Area,
    mistakes: tuple[Mistake, ...],
    model: str = "",
    *,
    faults: tuple[str, ...] = (),
    worlds: tuple[World, ...] = (),
) -> Bug:
    """Return a bug that the campaign finds."""
    return Bug(name, area, mistakes, model, faults, worlds)


def checked(
    name: str,
    world: World,
    mistake: Mistake | None = None,
    *,
    slow: bool = False,
    stories: str = "",
    area: Area = Area.PROTOCOL,
) -> Bug:
    """Return a bug that the model checker finds."""
    return Bug(name, area, (mistake,) if mistake is not None else (), worlds=(world,), slow=slow, stories=stories)


def dropped(name: str, assumption: str, config: Config, *, slow: bool = False) -> Bug:
    """Drop an assumption about the environment."""
    world = replace(config, dropped=frozenset({assumption}))
    return checked(f"environment: {name}", world, slow=slow, area=Area.ENVIRONMENT)
