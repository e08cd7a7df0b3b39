"""`inplace logs`: all workers' logs in one stream, what the first failed Pod said last, or what is said now."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from typer import BadParameter

from inplace.cli.connection import Connection, command
from inplace.cli.group.read import read_jobset, read_pods
from inplace.cli.group.state import state_of_status
from inplace.cli.logs.container_log import Instance, instances_of, ranks_of
from inplace.cli.logs.first_failed import failure_of_status, print_first_failed
from inplace.cli.logs.lines import NS, LogLine
from inplace.cli.logs.printer import Printer
from inplace.cli.logs.reading import Reader, Wanted, bounded, merged
from inplace.cli.refusal import CliExit, RefusalError
from inplace.common.bare.record import record
from inplace.common.jobset.headline import ENDED

FOLLOW_SINCE_S: Final = 10.0  # so much of the past comes first with -f
_UNITS_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
PODS_GONE: Final = "its Pods are gone, and their logs with them; the last line of each failure is kept"
PRINTED_AT_ONCE: Final = 256  # lines, 4 MiB at most


@record
class LogOptions:
    """The options of the command.

    Args:
        epoch: its lines alone.
        ranks: of these Pods alone; empty is all.
        pattern: lines in which it is found alone.
        since_s: lines of so many seconds alone.
        follow: go on with what comes.
        first_failed: the failed Pod's last lines, and the others' before that; the default after a failure.
        everything: not that.
        as_json: for programs.
    """

    epoch: int | None = None
    ranks: tuple[range, ...] = ()
    pattern: re.Pattern[str] | None = None
    since_s: float | None = None
    follow: bool = False
    first_failed: bool = False
    everything: bool = False
    as_json: bool = False

    @property
    def chooses(self) -> bool:
        """Say whether the user asked for certain lines."""
        chosen = (self.epoch is not None, self.ranks, self.pattern, self.since_s is not None)
        return any(chosen) or self.follow or self.everything

    def check(self) -> LogOptions:
        """Return the same options.

        Raises:
            BadParameter: two of them exclude each other.
        """
        if self.first_failed and self.chooses:
            others = "--all, --epoch, --rank, --grep, --since or --follow"
            raise BadParameter(f"expected it alone, saw one of {others} as well", param_hint="--first-failed")
        if self.follow and self.epoch is not None:
            raise BadParameter("expected one of --epoch and --follow, saw both", param_hint="--epoch")
        return self


@command
async def run_logs(connection: Connection, name: str, options: LogOptions) -> int:
    """Print logs as of now; return the exit code."""
    return await print_logs(connection, name, options, now_s=time.time())


async def print_logs(connection: Connection, name: str, options: LogOptions, *, now_s: float) -> int:
    """Print what is asked for; return the exit code: it is 1 where no line was printed, and standard error says why."""
    raw = await read_jobset(connection, name)
    rank, ranks = ranks_of(raw)
    printer = Printer(as_json=options.as_json, ranks=ranks)
    reader = Reader(connection, printer.progress)
    since_s = options.since_s if options.since_s is not None else FOLLOW_SINCE_S if options.follow else now_s
    wanted = Wanted(options.epoch, options.pattern, max(0, int((now_s - since_s) * NS)))
    try:
        if options.first_failed or not (options.chooses or failure_of_status(raw) is None):
            await print_first_failed(raw, rank, reader, printer)
        elif options.follow:
            from inplace.cli.logs.follow import Follower  # and rich, which takes a fifth of a second

            return await Follower(name, rank, options.ranks, wanted, reader, printer).run()
        else:
            found = instances_of((await read_pods(connection, name)).pods, rank, options.ranks)
            if not found and state_of_status(raw).phase in ENDED:
                raise RefusalError(f"JobSet {name} has ended, {PODS_GONE}: inplace history {name}")
            await _print_merged(found, wanted, reader, printer)
    finally:
        printer.notes(reader.notes.lines())
    if printer.printed:
        return CliExit.DONE
    if not reader.notes.lines():
        printer.notes(["no line of these logs matches"])
    return CliExit.NOT_DONE


async def _print_merged(instances: Sequence[Instance], wanted: Wanted, reader: Reader, printer: Printer) -> None:
    """Print the lines of instances in the order of time."""
    asked = bounded(filter(wanted.may_have, instances))
    if not asked:
        place = reader.connection.place
        raise RefusalError(f"there is no log yet: no container of the chosen Pods in {place} has started")
    logs = [reader.log(one, wanted.since_ns) for one in asked]
    await reader.read_agents(logs)
    if wanted.epoch is not None:
        await reader.find_epochs(logs)
    lines: list[tuple[Instance, LogLine]] = []
    async with aclosing(merged(logs, wanted, reader)) as found:
        async for one in found:
            lines.append(one)
            if len(lines) >= PRINTED_AT_ONCE:
                printer.lines(lines)
                lines.clear()
    printer.lines(lines)
    reader.note_lost(logs)


def parse_pattern(text: str | None) -> re.Pattern[str] | None:
    """Read --grep.

    Raises:
        BadParameter: it is no regular expression.
    """
    try:
        return re.compile(text) if text is not None else None
    except re.error as error:
        raise BadParameter(f"expected a regular expression, saw {text!r}: {error}", param_hint="--grep") from error


def parse_ranks(texts: Sequence[str]) -> tuple[range, ...]:
    """Read --rank: `3`, `0-7` or several of them with commas between.

    Raises:
        BadParameter: a text is neither a rank nor a range; the message says what was expected.
    """
    ranges = []
    for text in (part.strip() for one in texts for part in one.split(",")):
        found = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", text, re.ASCII)
        first, last = (int(found[1]), int(found[2] or found[1])) if found is not None else (1, 0)
        if last < first:
            raise BadParameter(f"expected ranks such as 3, 0-7 or 0-7,12, saw {text!r}", param_hint="--rank")
        ranges.append(range(first, last + 1))
    return tuple(ranges)


def parse_duration(text: str | None) -> float | None:
    """Read --since, a duration as kubectl writes it: `30s`, `10m`, `1h30m`, `2d`; return seconds.

    Raises:
        BadParameter: the text is no duration; the message says what was expected.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(?:\d{1,6}[dhms])+", text, re.ASCII)
    if found is None:
        raise BadParameter(f"expected a duration such as 30s, 10m or 1h30m, saw {text!r}", param_hint="--since")
    return float(sum(int(count) * _UNITS_S[unit] for count, unit in re.findall(r"(\d+)([dhms])", text)))
