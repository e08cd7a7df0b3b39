"""
Print what the Pod that failed first said last, and what the others said in the second before.

The failed Pod's log is read first, with three requests more than its own: JobSet, Pod, agent's log. A log with marks is
cut where the next epoch begins. Where kubelet has removed the container since, its log is gone; that is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inplace.cli.group.last_restart import first_failure, last_restart
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.read import read_pod, read_pods
from inplace.cli.logs.container_log import ContainerLog, Instance, Ranks, instances_of
from inplace.cli.logs.lines import NS, LastLines, LogLine
from inplace.cli.logs.printer import Printer
from inplace.cli.logs.reading import BUFFER_BYTES, GONE, Reader, bounded
from inplace.cli.refusal import CliExit, RefusalError
from inplace.cli.status.document import failure_text
from inplace.cli.terminal.moments import clock_text, date_text
from inplace.cli.terminal.visible import one_line
from inplace.common.bare.record import record
from inplace.common.jobset.causes import Trigger, unix_time
from inplace.common.jobset.furthest_behind import silent_text
from inplace.common.kube.errors import NotFound
from inplace.common.kube.resources import KubeObject

LAST_LINES: Final = 200
BEFORE_S: Final = 1
LOOK_BACK_S: Final = 60  # is read first; the rest of the log only where that has too few lines
LINES_OF_ANOTHER: Final = 100  # the last ones of each other log
WHOLE_SECOND_NS: Final = NS - 1  # kubelet and the status have whole seconds: something happened within one


@record
class Failed:
    """The first failure.

    Args:
        pod: its name; "" for a hang of which steps cannot tell whose it is.
        container: "" where it is not known.
        epoch: whose worker failed; None where it is not known.
        at_s: when, Unix time, in whole seconds or better; None where it is not known.
        words: the failure in one line.
    """

    pod: str
    container: str
    epoch: int | None
    at_s: float | None
    words: str


def failure_of_status(raw: KubeObject) -> Failed | None:
    """Return the first failure that the status tells of; None where it tells of none."""
    last = last_restart(raw.get("status") or {})
    found = last.first_failure if last is not None else None
    if last is None or found is None or not isinstance(found.get("pod"), str) or not found["pod"]:
        return None
    at_s = unix_time(found.get("finishedAt")) or unix_time(last.started_at)
    epoch = last.epoch - 1 if last.epoch > 1 else None
    if last.trigger == Trigger.STALLED.value:  # any Pod may be the first to tell
        silent = last.first_silent
        if silent is None:
            return Failed("", "", epoch, at_s, "a hang, and the Pods have not said yet how far they were")
        if not silent.only:
            words = f"a hang: {silent.count:,} Pods were furthest behind, {silent.where}; steps cannot tell whose it is"
            return Failed("", "", epoch, at_s, words)
        return Failed(silent.only, "", epoch, at_s, silent_text(silent, last.trigger, found))
    return Failed(found["pod"], str(found.get("container") or ""), epoch, at_s, failure_text(found))


async def print_first_failed(raw: KubeObject, rank: Ranks, reader: Reader, printer: Printer) -> None:
    """Print both parts.

    Raises:
        RefusalError: neither the status nor the Pods tell of a failure.
    """
    name, failed, pods = str(raw["metadata"]["name"]), failure_of_status(raw), None
    if failed is None:
        pods = (await read_pods(reader.connection, name)).pods
        failed = _guessed(pods, name)
    if not failed.pod:
        printer.head(f"first failure: {one_line(failed.words)}")
        printer.head(
            f"inplace stacks --last {name} says where each rank was, inplace logs --all {name} what each Pod said"
        )
        return
    at_ns = await _print_failed(failed, rank, reader, printer)
    if at_ns is None:
        return
    if pods is None:
        pods = (await read_pods(reader.connection, name)).pods
    others = [pod for pod in pods if pod.name != failed.pod]
    if not others:
        return
    candidates = instances_of(others, rank)
    # An instance without marks is of one epoch: one that started in the second of the failure may be of the next.
    ran = [one for one in candidates if _ran(one, at_ns) and (one.has_marks or not _is_later(one.epoch, failed))]
    still_there = {one.uid for one in ran}
    later = [one for one in candidates if one.has_marks and one.uid not in still_there]  # the agents may have tails
    found, was_read = await _before(bounded([*ran, *later]), len(ran), failed, at_ns, reader)
    what = (
        "what the others said" if found else "the others said nothing" if was_read else "kubelet has no log of others"
    )
    printer.head(f"\n{what} from {_moment(at_ns - BEFORE_S * NS)} to {_moment(at_ns)} UTC")
    printer.lines(sorted(found, key=lambda one: one[1].at_ns))


def _moment(at_ns: int) -> str:
    return f"{clock_text(at_ns // NS)}.{at_ns // 1_000_000 % 1_000:03d}"


def _day(wall_s: float) -> str:
    return date_text(wall_s).partition(" ")[0]


def _guessed(pods: Sequence[PodFact], name: str) -> Failed:
    """Return the first failure that the containers' last states tell of."""
    found = first_failure(pods)
    if found is None:
        message = f"no failure of {name} is known, from its status or its Pods; --all shows all its logs"
        raise RefusalError(message, CliExit.NOT_DONE)
    words = f"guessed from the Pods: {failure_text(found.fields)}"
    return Failed(str(found.fields["pod"]), str(found.fields["container"]), None, found.at_s, words)


async def _print_failed(failed: Failed, rank: Ranks, reader: Reader, printer: Printer) -> int | None:
    """Print the last lines of the failed Pod; return when it failed, by its node's clock if that can be."""
    epoch = f", epoch {failed.epoch}" if failed.epoch is not None else ""
    at = f", {_day(failed.at_s)} {clock_text(failed.at_s)} UTC" if failed.at_s is not None else ""
    printer.head(f"first failure: {one_line(failed.words)}{epoch}{at}")
    known_ns = None if failed.at_s is None else int(failed.at_s * NS) + WHOLE_SECOND_NS
    try:
        pod = await read_pod(reader.connection, failed.pod)
    except NotFound:
        reader.notes.say(failed.pod, GONE)
        return known_ns
    candidates = instances_of([pod], rank)
    candidates = [one for one in candidates if failed.container in ("", one.container)]
    lines: list[tuple[Instance, LogLine]] = []
    agents = [reader.log(one) for one in candidates]
    await reader.read_agents(agents)
    for agent in sorted(agents, key=lambda one: not _ran(one.instance, known_ns)):  # the likely one first
        if not any(one.container == agent.instance.container for one, _ in lines):
            lines += [(agent.instance, line) for line in await _last_lines(agent, failed, reader)]
    if not lines:
        reader.notes.say(failed.pod, f"kubelet has no log of it{epoch} any more")
        return known_ns
    lines.sort(key=lambda one: one[1].at_ns)
    printer.lines(lines)
    ends = [line.at_ns for _, line in lines if line.ended_epoch is not None and line.ended_epoch == failed.epoch]
    last_ns = ends[-1] if ends else lines[-1][1].at_ns
    return last_ns if known_ns is None else min(last_ns, known_ns)


def _ran(instance: Instance, at_ns: int | None) -> bool:
    """Say whether an instance ran at a moment, as far as whole seconds tell."""
    if at_ns is None:
        return not instance.is_previous
    began = instance.began_s is None or instance.began_s * NS <= at_ns
    return began and (instance.ended_s is None or instance.ended_s * NS + WHOLE_SECOND_NS >= at_ns - BEFORE_S * NS)


async def _last_lines(agent: ContainerLog, failed: Failed, reader: Reader) -> Sequence[LogLine]:
    """Return the last lines of the failed epoch in one log, of which `agent` has what its agent says."""
    instance = agent.instance
    known_ns = None if failed.at_s is None else int(failed.at_s * NS) + WHOLE_SECOND_NS
    look_back_ns = max(0, int((failed.at_s - LOOK_BACK_S) * NS)) if failed.at_s is not None else 0
    until_ns = None if failed.epoch is not None and instance.has_marks else known_ns
    lines: Sequence[LogLine] = []
    for since_ns in dict.fromkeys((look_back_ns, 0)):
        if len(lines) < LAST_LINES:
            log = reader.log(instance, since_ns)
            log.lifts, log.tails = agent.lifts, list(agent.tails)
            lines = await _said(log, failed, until_ns, LastLines(LAST_LINES, BUFFER_BYTES), reader) or ()
    ran = _ran(instance, known_ns)
    own = (failed.epoch, None) if ran else (failed.epoch,)
    if instance.has_marks and not (ran and failed.epoch is None) and not any(line.epoch in own for line in lines):
        return []  # what a guard says before its first worker, and the tails of earlier runs
    return [line._replace(epoch=failed.epoch) if line.epoch is None else line for line in lines]


async def _said(
    log: ContainerLog, failed: Failed, until_ns: int | None, last: LastLines, reader: Reader
) -> Sequence[LogLine] | None:
    """Return the lines of the failed epoch up to a moment; None if the log has no part of that epoch."""
    epoch = None
    began_s = log.instance.began_s
    is_new = began_s is not None and failed.at_s is not None and began_s >= int(failed.at_s)
    has_tails = bool(log.tails)
    async with reader.open(log) as lines:
        async for line in lines:
            if _is_later(line.epoch, failed):
                if is_new and epoch is None:
                    return None  # its first worker is of a later epoch
                break
            if until_ns is not None and line.at_ns > until_ns:
                break
            if is_new and has_tails and line.epoch is None:
                continue  # what a guard says before its first worker
            epoch = line.epoch
            last.append(line)
        return last.all()
    return last.all() or None


def _is_later(epoch: int | None, failed: Failed) -> bool:
    """Say whether an epoch is known to come after the failed one."""
    return epoch is not None and failed.epoch is not None and epoch > failed.epoch


async def _before(
    others: Sequence[Instance], ran: int, failed: Failed, at_ns: int, reader: Reader
) -> tuple[list[tuple[Instance, LogLine]], bool]:
    """Return what the others said in the second before a moment, and whether any of their logs could be read.

    The first `ran` of the others ran then; of the rest the tails may be there.
    """
    found: list[tuple[Instance, LogLine]] = []
    was_read = False
    room = BUFFER_BYTES // max(1, len(others))

    async def read(log: ContainerLog) -> None:
        nonlocal was_read
        lines = await _said(log, failed, at_ns, LastLines(LINES_OF_ANOTHER, room), reader)
        was_read = was_read or lines is not None
        recent = (line for line in lines or () if line.at_ns >= from_ns)
        found.extend((log.instance, line._replace(epoch=line.epoch or failed.epoch)) for line in recent)

    from_ns = at_ns - BEFORE_S * NS
    # The log of a container that has just started is read from its beginning, where the mark of its epoch is.
    since_ns = [0 if (one.began_s or 0.0) * NS + WHOLE_SECOND_NS >= from_ns else from_ns for one in others]
    logs = [reader.log(one, at) for one, at in zip(others, since_ns, strict=True)]
    await reader.read_agents(logs[ran:])
    await reader.each([*logs[:ran], *(log for log in logs[ran:] if log.tails)], read)
    return found, was_read
