"""Report a run to people: its faults, its violation, and the command that replays it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.run import Outcome
from inplace.simulator.campaign.sieve import SievePlan
from inplace.simulator.campaign.soak import Tally

COMMAND = "python -m simulator.campaign run"
SOAK_COMMAND = "python -m simulator.campaign soak"


def replay_command(outcome: Outcome, only: Iterable[int] | None = None) -> str:
    """Return the command that runs the seed again and prints its trace."""
    chosen = "" if only is None else f" --only {','.join(map(str, only)) or 'none'}"
    return f"{COMMAND} --seed {outcome.seed}{chosen} --trace"


def plan_command(plan: SievePlan, number: int) -> str:
    """Return the command that carries out one plan of the sieve again."""
    return f"python -m simulator.campaign sieve --situation '{plan.situation}' --start {number} --one --trace"


def soak_command(seeds: range) -> str:
    """Return the command that runs the same seeds again."""
    return f"{SOAK_COMMAND} --first {seeds.start} --seeds {len(seeds)}"


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


def tell_watched(watched: Counter[str]) -> str:
    """Return what happened to the ranks that agents watched."""
    return ", ".join(f"{count} {what}" for what, count in sorted(watched.items()) if count)


def tell_kinds(tally: Tally, shrink: Callable[[Outcome], tuple[list[int], Outcome]]) -> Iterator[str]:
    """Yield each kind of violation: how often, by which seeds, and one shortened run."""
    for rule, count in tally.violations.most_common():
        seeds, witness = tally.seeds_of[rule], tally.witnesses[rule]
        more = f" and {count - len(seeds)} more" if count > len(seeds) else ""
        yield ""
        yield f"{count} of {tally.seeds} seeds: {rule}"
        yield f"seeds {', '.join(map(str, seeds))}{more}"
        kept, least = shrink(witness)
        yield f"seed {witness.seed} needs {len(kept)} of its {len(witness.strikes)} faults:"
        yield from describe(least)
        yield f"replay: {replay_command(witness, kept)}"
