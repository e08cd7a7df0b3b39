"""What a run says to people: what happened, what is wrong, and how to see it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from simulator.campaign.catalogue import CATALOGUE
from simulator.campaign.run import Outcome
from simulator.campaign.sieve import Plan

COMMAND = "python -m simulator.campaign run"


def replay_command(outcome: Outcome, only: Iterable[int] | None = None) -> str:
    """Return the command that runs it again, with its trace."""
    chosen = "" if only is None else f" --only {','.join(map(str, only)) or 'none'}"
    return f"{COMMAND} --seed {outcome.seed}{chosen} --trace"


def plan_command(plan: Plan, number: int) -> str:
    """Return the command that carries out one plan of the sieve again."""
    return f"python -m simulator.campaign sieve --situation '{plan.situation}' --start {number} --one --trace"


def describe(outcome: Outcome) -> Iterator[str]:
    """Yield the lines about one run."""
    yield f"seed {outcome.seed}: {outcome.scenario}"
    yield f"trace hash {outcome.hash}, {outcome.events} events in {outcome.at_s:.3f} virtual seconds"
    for strike in outcome.strikes:
        yield f"  strike {strike}"
    if outcome.restart_s is not None:
        yield f"a restart that nothing disturbed took {outcome.restart_s:.2f} virtual seconds"
    if outcome.violation is not None:
        yield f"VIOLATION {outcome.violation}"


def table(fired: Counter[str]) -> Iterator[str]:
    """Yield each fault of the catalogue with the number of times it had an effect."""
    width = max(map(len, CATALOGUE))
    for name, fault in CATALOGUE.items():
        yield f"  {name:{width}} {fired[name]:8}  {fault.place.value}"
