"""
The delays of one cluster, each with its source; the simulator draws from them.

`simulator/profiles/lab.toml` holds every delay with its source. The other files, and a cluster owner's own
(`--profile my-cluster.toml`), hold only the delays that differ. A delay is a table with a `source` and one of

    value = 1.0                                     # seconds: kubelet.relist_s alone, which is a fixed period
    uniform_s = [0.3, 0.6]                          # seconds, evenly between the two
    median_s = 0.4, p99_s = 2.0, max_s = 10.0       # seconds, log-normal: with a tail

Guarantees: an unknown delay, an impossible value or a missing source is refused BEFORE the run; two profiles never
mix.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from inplace.common.kube.bounded_read import read_bounded
from inplace.simulator.cluster.timings import ZERO, Delay, Latency, Tailed, Timings

PROFILE_BYTES_MAX: Final = 1 << 20  # the shipped ones have some 3 kB
FOLDER: Final = Path(__file__).parent / "profiles"
BASE: Final = "lab"
DELAY_S_MAX: Final = 600.0  # a longer delay of one step is a fault to inject, not a cluster's profile
PERIOD: Final = "kubelet.relist_s"  # the one delay that is a fixed period
PERIOD_S_MAX: Final = 60.0
DELAYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        PERIOD: "pleg_relist_s",
        "network.one_way": "api",
        "apiserver.watch_lag": "watch",
        "kubelet.sandbox": "sandbox",
        "kubelet.container_start": "container_start",
        "kubelet.process_exit": "process_exit",
        "kubelet.probe": "barrier_answer",
        "agent.start": "agent_start",
        "supervisor.stop": "supervised_exit",
        "worker.first_step": "worker_first_step",
        "scheduler.bind": "bind",
    }
)
"""The field of `Timings` that each delay of a profile is."""

_ABOUT: Final = "description"


class ProfileError(ValueError):
    """A profile is not valid; the message says what was expected and what was seen."""


def shipped() -> tuple[str, ...]:
    """Return the names of the profiles that come with this program."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def read_profile(name: str) -> Timings:
    """Return the delays of a shipped profile by its name, or of a user's by its path, which ends in .toml.

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
    delays = _checked(path.stem, found)
    if path == FOLDER / f"{BASE}.toml":
        if missing := DELAYS.keys() - delays.keys():
            raise ProfileError(f"{name}: expected every delay, saw none of {', '.join(sorted(missing))}")
        base = Timings(supervised_left=ZERO)  # included in supervisor.stop
    else:
        base = read_profile(BASE)
    return replace(base, **{DELAYS[delay]: value for delay, value in delays.items()})


def _checked(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the delays of a file."""
    delays: dict[str, Any] = {}
    for delay, table in _tables(name, found):
        where = f"{name}: {delay}"
        if not isinstance(table, dict) or not isinstance(table.get("source"), str) or not table["source"].strip():
            raise ProfileError(f"{where}: expected a table with a source (where the number comes from), saw {table!r}")
        if delay not in DELAYS:
            raise ProfileError(f"{where}: expected one of {', '.join(DELAYS)}; saw {delay!r}")
        given = {key: value for key, value in table.items() if key != "source"}
        delays[delay] = _period(where, given) if delay == PERIOD else _delay(where, given)
    return delays


def _tables(name: str, found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return (delay, its table) of a file."""
    pairs = []
    for group, tables in found.items():
        if group == _ABOUT:
            continue
        if not isinstance(tables, dict):
            raise ProfileError(f"{name}: {group}: expected a group of delays such as [agent.start], saw {tables!r}")
        pairs += [(f"{group}.{delay}", table) for delay, table in tables.items()]
    return pairs


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _period(where: str, given: Mapping[str, Any]) -> float:
    value: Any = given.get("value")
    if set(given) != {"value"} or not _is_number(value) or not 0 <= value <= PERIOD_S_MAX:
        raise ProfileError(f"{where}: expected value = a number from 0 to {PERIOD_S_MAX:g}, saw {dict(given)!r}")
    return float(value)


def _delay(where: str, given: Mapping[str, Any]) -> Delay:
    forms = "uniform_s = [low, high], or median_s, p99_s and max_s"
    numbers = given.get("uniform_s", [given.get("median_s"), given.get("p99_s"), given.get("max_s")])
    is_known = set(given) in ({"uniform_s"}, {"median_s", "p99_s", "max_s"}) and isinstance(numbers, list)
    if not is_known or not all(map(_is_number, numbers)):
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
