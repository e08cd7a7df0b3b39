"""
`inplace stacks`: ask every rank where it is, and print who is elsewhere than the others.

The request is an annotation of the JobSet, which agents see in the watch that they have anyway. The answers are lines
of the workers' logs, which this command reads as `inplace logs` does, at most 32 at once. A log is read again until its
answer is there. Whoever asks within SHARED_S of another person shares that request. docs/adr/0099
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inplace.cli.connection import Connection, command
from inplace.cli.group.last_restart import last_restart
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.read import read_jobset, read_pods
from inplace.cli.group.state import state_of_status
from inplace.cli.logs.container_log import ContainerLog, Instance, has_spares, instances_of, ranks_of
from inplace.cli.logs.lines import NS
from inplace.cli.logs.printer import Printer
from inplace.cli.logs.reading import NAMES_MAX, Reader, bounded
from inplace.cli.refusal import CliExit, RefusalError
from inplace.cli.stacks.groups import Answer, Answers, Names, RankStack, data_of, groups_of, summary, text_of
from inplace.cli.terminal.moments import clock_text, count_text, names_text
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.headline import GroupPhase
from inplace.common.kube.errors import Forbidden
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.stacks import SILENCE, parse_request

if TYPE_CHECKING:
    from inplace.cli.documents import StacksDocument

SKEW_S: Final = 90.0  # a node's clock may be so much behind this machine's
SHARED_S: Final = 5.0  # half of what an agent takes between two answers
PAUSE_S: Final = 0.25  # before the logs without an answer are read again
BEFORE_S: Final = 300.0  # --last: so long before the last restart
LAST_S: Final = 600.0  # --last without a restart
TOGETHER_S: Final = 120.0  # --last: answers so much older than the newest belong to another moment
CANNOT: Final = {
    GroupPhase.SUSPENDED: "it is suspended",
    GroupPhase.COMPLETED: "it completed",
    GroupPhase.FAILED: "it failed; --last shows what was asked before, as long as its Pods are there",
}
UNASKED: Final = "no guard of inplace runs there, so it cannot be asked"


@dataclass(frozen=True, slots=True)
class StacksOptions:
    """The options of the command.

    Args:
        ranks: of these Pods alone; empty is all.
        timeout_s: wait so long for answers.
        last: ask nobody; show the stacks of the newest hang, or else the newest answers.
        as_json: for programs.
    """

    ranks: tuple[range, ...] = ()
    timeout_s: float = 15.0
    last: bool = False
    as_json: bool = False


@command
async def run_stacks(connection: Connection, name: str, options: StacksOptions) -> int:
    """Print where the ranks are as of now; return the exit code."""
    return await print_stacks(connection, name, options, now_s=time.time())


async def print_stacks(connection: Connection, name: str, options: StacksOptions, *, now_s: float) -> int:
    """Print where the ranks are; return the exit code: it is 1 if none answered."""
    raw = await read_jobset(connection, name)
    request = None if options.last else await _ask(connection, raw, now_s)
    rank, _ = ranks_of(raw)
    pods = (await read_pods(connection, name)).pods
    instances = instances_of(pods, rank, options.ranks)
    if request is not None:
        spared = {one.pod for one in instances if one.rank is None and has_spares(raw)}  # they have no worker to ask
        instances = [one for one in instances if one.ended_s is None and one.pod not in spared]
    asked = bounded(instances)
    if not asked:
        raise RefusalError(
            f"no container of the chosen Pods in {connection.place} runs: inplace explain {name} says why"
        )
    progress = Printer(as_json=options.as_json)
    reader = Reader(connection, progress.progress)
    since_s = _last_since_s(raw, now_s) if request is None else request / 1000 - SKEW_S
    logs = [reader.log(one, max(0, int(since_s * NS))) for one in asked]
    answers = {id(log): Answers(log.instance, request) for log in logs}
    if request is None:
        await reader.read_agents(logs)  # a restart may have removed the logs
    await _read(logs, answers, reader, 0.0 if request is None else options.timeout_s)
    progress.notes(())
    found = {each.instance: answer for each in answers.values() if (answer := each.newest()) is not None}
    if request is None:
        hangs = {each.instance: answer for each in answers.values() if (answer := each.of_hang()) is not None}
        found = _of_one_moment(hangs or found, _scopes(raw, pods))  # a look by hand does not replace a hang's stacks
    unanswered = _unanswered(asked, found) if request is not None else {}
    ranks = [one for answer in found.values() for one in answer.ranks.values()]
    _print(name, request, ranks, found, unanswered, as_json=options.as_json)
    for note in reader.notes.lines():
        print(f"inplace stacks: {note}", file=sys.stderr)
    return CliExit.DONE if ranks else CliExit.NOT_DONE


async def _ask(connection: Connection, raw: KubeObject, now_s: float) -> int:
    """Write a request, or share one that somebody has just written; return its id.

    Raises:
        RefusalError: no worker can run, or the right is missing.
    """
    metadata = raw["metadata"]
    phase = state_of_status(raw).phase
    if phase in CANNOT:
        raise RefusalError(f"no worker of JobSet {metadata['name']} runs: {CANNOT[phase]}")
    now_ms = int(now_s * 1000)
    try:
        last = parse_request(str((metadata.get("annotations") or {}).get(wire.STACKS_REQUESTED, "")))
    except RemoteProtocolError:
        last = 0
    if abs(now_ms - last) < SHARED_S * 1000:
        return last
    patch = {"metadata": {"uid": metadata["uid"], "annotations": {wire.STACKS_REQUESTED: str(now_ms)}}}
    try:
        await connection.client.patch(JOBSETS, connection.namespace, metadata["name"], patch)
    except Forbidden as error:
        cure = "ask for the right `patch` on `jobsets` in this namespace; --last needs no more than `get` on `pods/log`"
        raise RefusalError(f"not allowed: {error.message}; {cure}", CliExit.NOT_ALLOWED) from error
    return now_ms


async def _read(logs: Sequence[ContainerLog], answers: Mapping[int, Answers], reader: Reader, timeout_s: float) -> None:
    """Read logs until each has a whole answer, cannot be read, or the time is over; once at least."""
    clock = asyncio.get_running_loop().time
    by_s = clock() + timeout_s
    unreadable: set[int] = set()

    async def read(log: ContainerLog) -> None:
        was_read = False
        async with reader.open(log) as lines:
            async for line in lines:
                answers[id(log)].take(line)
            was_read = True
        if not was_read:
            unreadable.add(id(log))

    left = list(logs)
    while left:
        await reader.each(left, read)
        left = [log for log in left if id(log) not in unreadable and answers[id(log)].whole() is None]
        if not left or clock() + PAUSE_S > by_s:
            return
        await asyncio.sleep(PAUSE_S)


def _last_since_s(raw: KubeObject, now_s: float) -> float:
    """Return from when on answers are looked for without a request."""
    last = last_restart(raw.get("status") or {})
    began_s = unix_time(last.started_at) if last is not None else None
    return now_s - LAST_S if began_s is None else began_s - BEFORE_S


def _scopes(raw: KubeObject, pods: Iterable[PodFact]) -> Mapping[str, str]:
    """Return the scope of each Pod whose labels say it: the Pods that restart together."""
    jobset = state_of_status(raw).jobset
    jobs = {} if jobset is None else {job.name: jobset.scope_name(job) for job in jobset.replicated_jobs}
    slots = {pod.name: pod.slot for pod in pods}
    return {name: jobs[slot.replicated_job] for name, slot in slots.items() if slot and slot.replicated_job in jobs}


def _of_one_moment(found: Mapping[Instance, Answer], scopes: Mapping[str, str]) -> dict[Instance, Answer]:
    """Return the newest answer of each Pod, as far as it is of the newest moment, and of its scope's newest epoch."""
    newest_ns = max((answer.at_ns for answer in found.values()), default=0)
    epochs: dict[str | None, int] = {}
    for one, answer in found.items():
        scope = scopes.get(one.pod)
        epochs[scope] = max(epochs.get(scope, 0), answer.epoch or 0)
    return {
        one: answer
        for one, answer in found.items()
        if answer.at_ns >= newest_ns - TOGETHER_S * NS
        and (answer.epoch is None or answer.epoch >= epochs[scopes.get(one.pod)])
    }


def _unanswered(asked: Sequence[Instance], found: Mapping[Instance, Answer]) -> dict[str, list[str]]:
    """Return why containers gave no stacks: for each reason, which."""
    reasons: dict[str, list[str]] = {}
    for one in asked:
        answer = found.get(one)
        if answer is None:
            reason = "no answer in time" if one.has_marks else UNASKED
        elif not answer.ranks:
            reason = answer.problem or "no process of a worker was found"
        else:
            continue
        reasons.setdefault(reason, []).append(one.name)
    return reasons


def _print(
    name: str,
    request: int | None,
    ranks: Sequence[RankStack],
    found: Mapping[Instance, Answer],
    unanswered: Mapping[str, Sequence[str]],
    *,
    as_json: bool,
) -> None:
    names = Names(ranks)
    groups = groups_of(ranks, names)
    if as_json:
        data: StacksDocument = {
            "jobset": name,
            "request": request,
            "ranks": len(ranks),
            "groups": data_of(groups, names),
            "unanswered": {reason: list(of) for reason, of in unanswered.items()},
        }
        print(json.dumps(data))
        return
    if request is None:
        print(_moment(list(found.values()), name))
    if groups:
        print(summary(groups, names))
    for reason, pods in unanswered.items():
        print(f"{count_text(len(pods), 'container')} without stacks ({names_text(pods, NAMES_MAX)}): {reason}")
    if not ranks and request is not None:
        print(
            "inplace stacks: expected agents and a CRD of this version; an older one sees no request (docs/hangs.md)",
            file=sys.stderr,
        )
    for line in text_of(groups, names):
        print(line)


def _moment(found: Sequence[Answer], name: str) -> str:
    """Say when the newest answers were given, and who asked."""
    if not found:
        return f"no stacks of JobSet {name} are in its logs of that time"
    times = [answer.at_ns / NS for answer in found]
    first, last = clock_text(min(times)), clock_text(max(times))
    when = f"at {first}" if first == last else f"from {first} to {last}"
    epochs = {answer.epoch for answer in found}
    known = epochs.pop() if len(epochs) == 1 else None  # scopes have epochs of their own
    epoch = "" if known is None else f" in epoch {known}"
    why = "ranks were silent" if any(answer.request == SILENCE for answer in found) else "a person asked"
    return f"taken {when} UTC{epoch}, because {why}"
