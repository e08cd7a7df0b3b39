"""The document of `inplace status JOBSET` as a type, part by part; see cli/documents.py."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Restarts(TypedDict):
    """Restarts that count, and how many may; null where nothing restarts in place."""

    used: int | None
    max: int | None


class RunFields(TypedDict):
    """The run that goodput is told of."""

    firstStep: int
    lastStep: int
    stepMicroseconds: int
    firstStepTime: str


class GoodputFields(TypedDict):
    """What restarts cost a scope in training time; ratio is useful / (useful + lost + restart)."""

    restarts: int
    usefulMilliseconds: int
    lostMilliseconds: int
    restartMilliseconds: int
    lostSteps: int
    run: NotRequired[RunFields]
    ratio: float | None


class MembersFields(TypedDict):
    """How many members and spares; slotOfRank has the ranks that another slot plays than that of their own number.

    Where whole Jobs are members, all of them are Jobs, of podsPerJob Pods each; null where Pods are.
    """

    max: int
    min: int
    spares: int
    sparesExpected: int
    slotOfRank: dict[str, int]
    podsPerJob: int | None


class ResumeFields(TypedDict):
    """From which "local" or "shared" step the epoch that runs went on, and the newest shared one; null for none."""

    step: int
    kind: str
    shared: int | None


class ScopeFields(TypedDict):
    """What restarts together; the name is empty for the whole JobSet."""

    name: str
    phase: str
    syncedEpoch: int
    deprecatedEpoch: int
    targetEpoch: int
    expected: int
    arrived: int
    working: int
    podsByEpoch: dict[str, int]
    goodput: GoodputFields | None
    members: MembersFields | None
    resume: ResumeFields | None


class StragglerFields(TypedDict):
    """A slot that its group waits for."""

    slot: str
    pod: str | None
    node: str | None
    epoch: int
    reason: str


class FirstSilent(TypedDict):
    """The Pods whose workers had the lowest step when their epoch ended."""

    pods: list[str]
    count: int
    step: NotRequired[int]
    quietMilliseconds: int


class SlowRankFields(TypedDict):
    """A rank that was slow in the run before the last restart: the median of its own work on a step."""

    pod: str
    node: str
    rank: int | None
    workMilliseconds: int


class VerdictFields(TypedDict):
    """What was to blame for a failure, by which words, what was done, and what helps."""

    failureClass: str
    pod: str | None
    node: str | None
    proof: str | None
    action: str
    advice: str | None


class LastRestartFields(TypedDict):
    """The last group restart; firstFailure has pod, node, container, exitCode, reason and message, as far as known."""

    epoch: int
    trigger: str | None
    escalationStep: str | None
    startedAt: str | None
    syncedAt: str | None
    seconds: float | None
    firstFailure: dict[str, str | int] | None
    firstSilent: FirstSilent | None
    verdict: VerdictFields | None
    slowRanks: list[SlowRankFields]
    typicalWorkMilliseconds: int | None


class NoticeFields(TypedDict):
    """What a Pod tells of a rank that works on; value is in seconds (busy), steps (loss), or percent (slow, steps)."""

    kind: str
    epoch: int
    scope: str
    value: int
    rank: str
    step: int | None
    pod: str
    node: str
    at: str


class StatusDocument(TypedDict):
    """One JobSet: `inplace status JOBSET`."""

    namespace: str
    name: str
    phase: str
    headline: str | None
    managedBy: str | None
    pods: int
    expected: int
    arrived: int
    secondsLeft: float | None
    barrierWaiting: str | None
    restarts: Restarts
    conditions: dict[str, str]
    scopes: list[ScopeFields]
    stragglers: list[StragglerFields]
    lastRestart: LastRestartFields | None
    notices: list[NoticeFields]
