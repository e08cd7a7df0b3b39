"""
The delays and numbers of one cluster, each with its source; the simulator and the models run with them.

`simulator/profiles/lab.toml` holds every quantity with its source. The other files, and a cluster owner's own
(`--profile my-cluster.toml`), hold only the quantities that differ. A quantity is a table with a `source` and one of

    value = 56                                      # a number
    uniform_s = [0.3, 0.6]                          # seconds, evenly between the two
    median_s = 0.4, p99_s = 2.0, max_s = 10.0       # seconds, log-normal: with a tail

or `recorded = "controller.json"` alone: the median under the quantity's name in that file of simulator/recorded.

Guarantees: an unknown quantity, an impossible value or a missing source is refused BEFORE the run; two profiles never
mix.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from inplace.common.kube.bounded_read import read_bounded
from inplace.simulator.cluster.timings import ZERO, Delay, Latency, Tailed, Timings

PROFILE_BYTES_MAX: Final = 1 << 20  # the shipped ones have some 3 kB
FOLDER: Final = Path(__file__).parent / "profiles"
RECORDED: Final = Path(__file__).parent / "recorded"
BASE: Final = "lab"
DELAY_S_MAX: Final = 600.0  # a longer delay of one step is a fault to inject, not a cluster's profile
_ABOUT = ("description", "base")


class ProfileError(ValueError):
    """A profile is not valid; the message says what was expected and what was seen."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The allowed values of a number."""

    low: float
    high: float
    whole: bool = False


COUNT = Bounds(1, 10_000, whole=True)
CPU_S = Bounds(0.0, 1.0)
NUMBERS: Final[Mapping[str, Bounds]] = MappingProxyType(
    {
        "apiserver.servers": Bounds(1, 9, whole=True),
        "apiserver.cores": Bounds(1, 512, whole=True),
        "apiserver.handshake_cpu_s": CPU_S,
        "apiserver.list_cpu_s": CPU_S,
        "apiserver.patch_cpu_s": CPU_S,
        "apiserver.watch_cpu_s": CPU_S,
        "apiserver.event_cpu_s": CPU_S,
        "fairness.total_seats": COUNT,
        "fairness.seats_idle": COUNT,
        "fairness.seats": COUNT,
        "fairness.queued_max": Bounds(0, 1_000_000, whole=True),
        "fairness.lend_period_s": Bounds(0.1, 600.0),
        "kubelet.relist_s": Bounds(0.0, 60.0),
        "kubelet.status_writes": Bounds(0, 20, whole=True),
        "node.cores": Bounds(0, 512, whole=True),
        "node.restart_cpu_s": CPU_S,
        "node.start_cpu_s": CPU_S,
        "node.supervised_cpu_s": CPU_S,
        "controller.event_cpu_s": CPU_S,
        "controller.batch_s": Bounds(0.0, 10.0),
        "recreate.pods_per_s": Bounds(0.1, 100_000.0),
        "upstream.start_cpu_s": CPU_S,
        "upstream.event_cpu_s": CPU_S,
        "upstream.event_cpu_s_per_pod": Bounds(0.0, 0.001),
        "upstream.controller_cores": Bounds(1, 64, whole=True),
        "upstream.node_share": Bounds(0.0, 2.0),
        "upstream.backoff_s": Bounds(0.0, 60.0),
    }
)
DELAYS: Final = (
    "network.one_way",
    "apiserver.commit",
    "apiserver.watch_lag",
    "kubelet.sandbox",
    "kubelet.container_start",
    "kubelet.process_exit",
    "kubelet.probe",
    "agent.start",
    "agent.think",
    "supervisor.stop",
    "supervisor.start",
    "worker.first_step",
    "scheduler.bind",
)


@dataclass(frozen=True, slots=True)
class Profile:
    """One cluster's numbers.

    Args:
        numbers, delays: by name, every one of NUMBERS and DELAYS.
        sources: the source of each.
    """

    name: str
    description: str
    numbers: Mapping[str, float]
    delays: Mapping[str, Delay]
    sources: Mapping[str, str]

    def __getitem__(self, name: str) -> float:
        """Return a number."""
        return self.numbers[name]

    def timings(self) -> Timings:
        """Return the delays from which the embedded cluster draws."""
        return Timings(
            pleg_relist_s=self["kubelet.relist_s"],
            sandbox=self.delays["kubelet.sandbox"],
            container_start=self.delays["kubelet.container_start"],
            process_exit=self.delays["kubelet.process_exit"],
            agent_start=self.delays["agent.start"],
            supervised_exit=self.delays["supervisor.stop"],
            supervised_left=ZERO,  # included in supervisor.stop
            worker_first_step=self.delays["worker.first_step"],
            barrier_answer=self.delays["kubelet.probe"],
            api=self.delays["network.one_way"],
            watch=self.delays["apiserver.watch_lag"],
            bind=self.delays["scheduler.bind"],
        )

    def shown(self) -> dict[str, Any]:
        """Return the lines that are printed beside a result: every quantity with its source."""
        found: dict[str, Any] = {"name": self.name, "description": self.description}
        for name in (*NUMBERS, *DELAYS):
            value: Any = self.numbers.get(name)
            if name in self.delays:
                delay = self.delays[name]
                value = {key: getattr(delay, key) for key in delay.__slots__}
            found[name] = {"value": value, "source": self.sources[name]}
        return found


def shipped() -> tuple[str, ...]:
    """Return the names of the profiles that come with this program."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def read_profile(name: str) -> Profile:
    """Return a shipped profile by its name, or a user's profile by its path, which ends in .toml.

    Raises:
        ProfileError: there is no such profile, or it is not valid.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        found = tomllib.loads(read_bounded(str(path), PROFILE_BYTES_MAX).decode())
    except FileNotFoundError:
        raise ProfileError(f"expected a profile ({', '.join(shipped())}) or a .toml file, saw {name!r}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProfileError(f"{name}: expected a readable TOML file, saw {error}") from error
    base = read_profile(BASE) if path.stem != BASE or path.parent != FOLDER else None
    return _checked(path.stem, found, base)


def _checked(name: str, found: Mapping[str, Any], base: Profile | None) -> Profile:
    numbers: dict[str, float] = {} if base is None else dict(base.numbers)
    delays: dict[str, Delay] = {} if base is None else dict(base.delays)
    sources: dict[str, str] = {} if base is None else dict(base.sources)
    for quantity, table in _tables(name, found):
        where = f"{name}: {quantity}"
        if isinstance(table, dict) and set(table) == {"recorded"}:
            table = _recorded(where, quantity, table["recorded"])
        if not isinstance(table, dict) or not isinstance(table.get("source"), str) or not table["source"].strip():
            raise ProfileError(f"{where}: expected a table with a source (where the number comes from), saw {table!r}")
        given = {key: value for key, value in table.items() if key != "source"}
        if quantity in NUMBERS:
            numbers[quantity] = _number(where, given, NUMBERS[quantity])
        elif quantity in DELAYS:
            delays[quantity] = _delay(where, given)
        else:
            known = ", ".join((*NUMBERS, *DELAYS))
            raise ProfileError(f"{where}: expected one of {known}; saw {quantity!r}")
        sources[quantity] = table["source"]
    missing = [quantity for quantity in (*NUMBERS, *DELAYS) if quantity not in sources]
    if missing:
        raise ProfileError(f"{name}: expected every quantity, saw none of {', '.join(missing)}")
    if numbers["fairness.seats_idle"] > numbers["fairness.seats"]:
        raise ProfileError(
            f"{name}: fairness.seats_idle: expected at most fairness.seats ({numbers['fairness.seats']:g}): an idle "
            f"cluster has lent seats out; saw {numbers['fairness.seats_idle']:g}"
        )
    about = str(found.get("description", ""))
    return Profile(name, about, MappingProxyType(numbers), MappingProxyType(delays), MappingProxyType(sources))


def _tables(name: str, found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return (quantity, its table) of a file."""
    pairs = []
    for group, tables in found.items():
        if group in _ABOUT:
            continue
        if not isinstance(tables, dict):
            raise ProfileError(
                f"{name}: {group}: expected a group of quantities such as [apiserver.cores], saw {tables!r}"
            )
        pairs += [(f"{group}.{quantity}", table) for quantity, table in tables.items()]
    return pairs


def _recorded(where: str, quantity: str, name: str) -> dict[str, Any]:
    """Return the table of a quantity that was measured and recorded."""
    try:
        record = json.loads((RECORDED / name).read_text())
        source = f"{record['command']}; {record['machine']}; {record['source']}"
        return {"value": record["measured"][quantity][1], "source": source}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ProfileError(f"{where}: expected {quantity} in {RECORDED.name}/{name}, saw {error!r}") from error


def _number(where: str, given: Mapping[str, Any], bounds: Bounds) -> float:
    value = given.get("value")
    kind = "a whole number" if bounds.whole else "a number"
    if (
        set(given) == {"value"}
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and bounds.low <= value <= bounds.high
        and not (bounds.whole and value != int(value))
    ):
        return value
    allowed = f"value = {kind} from {bounds.low:g} to {bounds.high:g}"
    raise ProfileError(f"{where}: expected {allowed}, saw {dict(given)!r}")


def _delay(where: str, given: Mapping[str, Any]) -> Delay:
    forms = "uniform_s = [low, high], or median_s, p99_s and max_s"
    numbers = given.get("uniform_s", [given.get("median_s"), given.get("p99_s"), given.get("max_s")])
    is_known = set(given) in ({"uniform_s"}, {"median_s", "p99_s", "max_s"}) and isinstance(numbers, list)
    if not is_known or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers):
        raise ProfileError(f"{where}: expected {forms}, in seconds; saw {dict(given)!r}")
    if numbers != sorted(numbers) or numbers[0] < 0 or numbers[-1] > DELAY_S_MAX:
        raise ProfileError(f"{where}: expected rising seconds from 0 to {DELAY_S_MAX:g}, saw {numbers}")
    if "uniform_s" not in given:
        if not 0 < numbers[0] < numbers[1]:
            raise ProfileError(f"{where}: expected a median_s above 0 and a p99_s above it, saw {numbers}")
        return Tailed(*numbers)
    if len(numbers) != 2:
        raise ProfileError(f"{where}: expected uniform_s = [low, high], saw {numbers}")
    return Latency(*numbers)
