"""`python -m simulator.campaign`: run seeds and report violations."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

from inplace.common.wire.mode import Mode
from inplace.simulator.campaign.catalogue import CATALOGUE, Fault
from inplace.simulator.campaign.partition import PARTITION, run_partition
from inplace.simulator.campaign.report import (
    describe,
    plan_command,
    replay_command,
    soak_command,
    table,
    tell_kinds,
    tell_watched,
)
from inplace.simulator.campaign.run import run_restart, run_seed
from inplace.simulator.campaign.saving import DRAIN, KINDS, REQUEST, run_saving
from inplace.simulator.campaign.sieve import SITUATIONS, plans, run_plan
from inplace.simulator.campaign.soak import SEEDS_TOGETHER_MAX, Tally, fresh_first, in_processes, shrink
from inplace.simulator.campaign.stalls import run_stalls

SEEDS_DEFAULT = 500
STALLS_COMMAND = "python -m simulator.campaign stalls"
PROGRESS_EVERY_S = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the subcommand; return 1 when a property broke."""
    options = _parser().parse_args(arguments)
    status: int = options.do(options)
    return status


def _run(options: argparse.Namespace) -> int:
    """Run one seed and print its report."""
    outcome = run_seed(options.seed, only=options.only, faults=options.faults, keeps=options.trace)
    _print(outcome.lines)
    _print(describe(outcome))
    return 1 if outcome.violation is not None else 0


def _soak(options: argparse.Namespace) -> int:
    """Run many seeds to their end; print the faults that struck, and a shortened run of each kind of violation."""
    first = fresh_first(time.time()) if options.first is None else options.first
    seeds = range(first, first + options.seeds)
    print(f"seeds {seeds[0]} to {seeds[-1]}; the same again: {soak_command(seeds)}", flush=True)
    began_s = said_s = time.monotonic()
    tally = Tally()
    for seed, outcome in in_processes(run_seed, seeds, options.processes):
        tally.add(outcome)
        if outcome.violation is not None:
            print(f"seed {seed}: {outcome.violation}\n  replay: {replay_command(outcome)}", file=sys.stderr)
        if time.monotonic() - said_s > PROGRESS_EVERY_S:
            said_s = time.monotonic()
            failures = tally.violations.total()
            print(f"{tally.seeds} seeds, {failures} failures, {said_s - began_s:.0f} s", file=sys.stderr)
    _print(table(tally.fired))
    silent = [name for name in CATALOGUE if not tally.fired[name]]
    print(
        f"{tally.seeds} seeds, {tally.events} events, {tally.virtual_s / 3600:.1f} virtual hours in "
        f"{time.monotonic() - began_s:.0f} s; {len(CATALOGUE)} faults, {sum(tally.fired.values())} times, "
        f"{len(silent)} never{': ' + ', '.join(silent) if silent else ''}; {tally.violations.total()} violations"
    )
    print(f"{tally.groups_watched} groups with a watchdog: {tell_watched(tally.watched)}")
    _print(tell_kinds(tally, shrink))
    return 1 if tally.violations or (silent and options.seeds >= SEEDS_DEFAULT) else 0


def _stalls(options: argparse.Namespace) -> int:
    """Watch many workers, healthy ones and some that hang, without a cluster; print each seed that fails."""
    began_s, failures, late_s, count = time.monotonic(), 0, list[float](), Counter[str]()
    seeds = range(options.first, options.first + options.seeds)
    for seed, outcome in in_processes(run_stalls, seeds, options.processes):
        count += outcome.count
        late_s.append(outcome.late_s)
        if outcome.violation:
            failures += 1
            print(f"seed {seed}: {outcome.violation}\n  replay: {STALLS_COMMAND} --first {seed} --seeds 1")
    print(f"{options.seeds} seeds in {time.monotonic() - began_s:.0f} s: {tell_watched(count)}")
    print(
        f"{failures} violations; a hang was found {median(late_s):.2f} s after its limit, {max(late_s):.2f} s at most"
    )
    return 1 if failures else 0


def _saving(options: argparse.Namespace) -> int:
    """Stop groups that train, in each planned way; print what it cost, and each seed that fails."""
    seeds, failures = range(options.first, options.first + options.seeds), 0
    for kind, saves in [*((kind, True) for kind in KINDS), (REQUEST, False), (DRAIN, False)]:
        outcomes = [one for _, one in in_processes(partial(run_saving, kind, saves=saves), seeds, options.processes)]
        waited_s, lost = [one.waited_s for one in outcomes], sum(one.lost for one in outcomes)
        failures += sum(bool(one.violation) for one in outcomes)
        name = kind if saves else f"{kind}, unsaved"
        print(
            f"{name:16} {len(seeds)} runs, {lost} steps lost; "
            f"waited {median(waited_s):.1f} s, {max(waited_s):.1f} s at most",
            flush=True,
        )
        _print([f"  seed {one.seed}: {one.violation}" for one in outcomes if one.violation])
    print(f"{failures} violations")
    return 1 if failures else 0


def _partitions(options: argparse.Namespace) -> int:
    """Cut a node off beside other faults, with and without leases; print each seed that fails."""
    seeds, failures = range(options.first, options.first + options.seeds), 0
    for leased in (True, False):
        outcomes = [one for _, one in in_processes(partial(run_partition, leased=leased), seeds, options.processes)]
        broken = [one for one in outcomes if one.violation is not None]
        cuts = sum(bool(one.fired[PARTITION]) for one in outcomes)
        name = "with leases" if leased else "without"
        print(f"{name:12} {len(seeds)} runs, {cuts} with a node cut off, {len(broken)} violations", flush=True)
        _print([f"  seed {one.seed}: {one.violation}" for one in broken])
        failures += len(broken)
    return 1 if failures else 0


def _sieve(options: argparse.Namespace) -> int:
    """Disturb situations at every write and delivery; print each plan that fails."""
    failures = 0
    for name in [options.situation] if options.situation else SITUATIONS:
        every = list(enumerate(plans(name)))[options.start :]
        chosen = every[:1] if options.one else every[:: options.every]
        run = partial(run_plan, keeps=options.trace)
        outcomes = in_processes(run, [plan for _, plan in chosen], 1 if options.one else options.processes)
        broken = 0
        for (number, plan), (_, outcome) in zip(chosen, outcomes, strict=True):
            _print(outcome.lines)
            if outcome.violation is not None:
                broken += 1
                print(f"  {plan}\n  VIOLATION {outcome.violation}\n  replay: {plan_command(plan, number)}")
        print(f"{name}: {len(chosen)} plans, {broken} violations", flush=True)
        failures += broken
    return 1 if failures else 0


def _restart(options: argparse.Namespace) -> int:
    """Start a group, let a worker die, and print how long the restart took."""
    began_s = time.process_time()
    outcome = run_restart(options.seed, options.pods, options.mode)
    _print(describe(outcome))
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{time.process_time() - began_s:.1f} s of CPU time, {memory_mib:.0f} MiB at most")
    return 1 if outcome.violation is not None else 0


def _faults(_: argparse.Namespace) -> int:
    """Print the catalogue."""
    for fault in CATALOGUE.values():
        print(f"{fault.name:28} {fault.place.value:20} {fault.what}")
    return 0


def _print(lines: Sequence[str] | Iterator[str]) -> None:
    for line in lines:
        print(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator.campaign", description=__doc__, allow_abbrev=False)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    one = verbs.add_parser("run", help="run one seed", allow_abbrev=False)
    one.add_argument("--seed", type=_number, required=True, metavar="N")
    one.add_argument(
        "--only", type=_numbers, metavar="N,N", help="numbers of the faults to keep, or none (default: all)"
    )
    one.add_argument(
        "--faults", type=_chosen, metavar="NAME,NAME", help="draw the schedule from these faults (default: all)"
    )
    one.add_argument("--trace", action="store_true", help="print every event")
    one.set_defaults(do=_run)
    _many(verbs, "soak", _soak, "run many seeds", "number of seeds", SEEDS_DEFAULT)
    _many(verbs, "stalls", _stalls, "watch many workers without a cluster", "number of seeds", SEEDS_DEFAULT)
    _many(verbs, "saving", _saving, "stop groups that train, and count lost steps", "runs of each kind", 100)
    _many(verbs, "partitions", _partitions, "cut a node off beside other faults", "runs with and without", 100)
    sieve = verbs.add_parser("sieve", help="disturb ten situations at every write and delivery", allow_abbrev=False)
    sieve.add_argument("--situation", choices=SITUATIONS, metavar="NAME", help=f"one of {', '.join(SITUATIONS)}")
    sieve.add_argument("--start", type=_number, default=0, metavar="N", help="the first plan (default: 0)")
    sieve.add_argument("--every", type=_count, default=1, metavar="N", help="run every n-th plan only (default: all)")
    sieve.add_argument("--one", action="store_true", help="run the first plan only")
    sieve.add_argument("--processes", type=_count, default=os.cpu_count() or 1, metavar="N", help="default: all cores")
    sieve.add_argument("--trace", action="store_true", help="print every event")
    sieve.set_defaults(do=_sieve)
    large = verbs.add_parser("restart", help="run one undisturbed restart of a group of any size", allow_abbrev=False)
    large.add_argument("--seed", type=_number, default=0, metavar="N", help="default: 0")
    large.add_argument("--pods", type=_count, required=True, metavar="N", help="number of Pods")
    large.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.PROBE, help="default: %(default)s")
    large.set_defaults(do=_restart)
    verbs.add_parser("faults", help="list all faults", allow_abbrev=False).set_defaults(do=_faults)
    return parser


def _many(verbs: Any, name: str, do: Callable[[argparse.Namespace], int], what: str, of: str, seeds: int) -> None:
    """Add a verb that runs many seeds."""
    parser = verbs.add_parser(name, help=what, allow_abbrev=False)
    first, shown = (None, "a new one, from the date") if do is _soak else (0, "0")
    parser.add_argument("--seeds", type=_seeds, default=seeds, metavar="N", help=f"{of} (default: {seeds})")
    parser.add_argument("--first", type=_number, default=first, metavar="N", help=f"the first seed (default: {shown})")
    parser.add_argument("--processes", type=_count, default=os.cpu_count() or 1, metavar="N", help="default: all cores")
    parser.set_defaults(do=do)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected an integer of at least 0, saw {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, saw {text!r}")
    return int(text)


def _seeds(text: str) -> int:
    if (number := _count(text)) > SEEDS_TOGETHER_MAX:
        raise argparse.ArgumentTypeError(f"expected at most {SEEDS_TOGETHER_MAX} seeds, saw {text!r}")
    return number


def _numbers(text: str) -> list[int]:
    return [] if text == "none" else [_number(part) for part in text.split(",")]


def _chosen(text: str) -> list[Fault]:
    unknown = [name for name in text.split(",") if name not in CATALOGUE]
    if unknown:
        raise argparse.ArgumentTypeError(f"expected names of {', '.join(CATALOGUE)}; saw {', '.join(unknown)}")
    return [CATALOGUE[name] for name in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
