"""
The documents that commands print for programs, as types: `-o json`, `-o yaml`, `--json`.

`make rewrite` writes a JSON schema of each into docs/schemas. The functions that make a document return its type, so
mypy sees a field that is missing or misspelt. A new document needs its type here and a line in DOCUMENTS. Only programs
that check types, and the schemas, import this module.
"""

from __future__ import annotations

from typing import Any, Final, NotRequired, TypedDict

from inplace.cli.status.fields import Restarts, StatusDocument


class JobSetRow(TypedDict):
    """One JobSet of a list."""

    namespace: str
    name: str
    phase: str
    epochs: list[int]
    jobs: int
    jobsReady: int
    restarts: Restarts
    waitsFor: str | None


class Happened(TypedDict):
    """An event of the past; its time is seconds since 1970, null where it is not known."""

    at: float | None
    text: str


class CauseFields(TypedDict):
    """A reason why a JobSet waits or failed, and what to do."""

    kind: str
    text: str
    pods: list[str]
    advice: str


class AvoidedNodeFields(TypedDict):
    """A node that new Pods avoid, until a time in seconds since 1970."""

    node: str
    failures: int
    until: float
    why: str


class ExplainDocument(TypedDict):
    """Why one JobSet waits or failed: `inplace explain`."""

    namespace: str
    name: str
    phase: str
    headline: str
    happened: list[Happened]
    causes: list[CauseFields]
    avoidedNodes: list[AvoidedNodeFields]
    unread: list[str]


class TimelineRow(TypedDict):
    """One Pod, or one Job of a large group; ends has the seconds at which each stage ended, by the stage's name."""

    name: str
    pods: int
    ends: dict[str, float | None]


class TimelineDocument(TypedDict):
    """The last group restart: `inplace timeline`. beganAt is seconds since 1970, all others count from it."""

    epoch: int
    beganAt: float
    synced: float | None
    rows: list[TimelineRow]


class LintFinding(TypedDict):
    """One problem of a manifest or a cluster."""

    object: str
    rule: str
    severity: str
    path: str
    found: str
    needed: str
    why: str
    fix: str


class LintDocument(TypedDict):
    """The problems of a manifest's JobSets: `inplace lint`; policies are sentences, by the JobSet's name."""

    jobsets: list[str]
    errors: int
    warnings: int
    findings: list[LintFinding]
    policies: NotRequired[dict[str, list[str]]]


class RankPlace(TypedDict):
    """A rank, by its number, its container, its name and its process."""

    rank: int | None
    pod: str
    container: str
    name: str
    pid: int
    step: int | None


class ThreadFrames(TypedDict):
    """A thread's frames, the innermost first; leftOut says that there are more."""

    name: str
    frames: list[str]
    leftOut: bool


class StackGroup(TypedDict):
    """Ranks that are at the same place; the threads are those of the first of them."""

    place: str
    by: str
    silent: bool
    state: str
    note: str
    ranks: list[RankPlace]
    threads: list[ThreadFrames]


class StacksDocument(TypedDict):
    """Where every rank is: `inplace stacks`; unanswered has the containers without an answer, by the reason."""

    jobset: str
    request: int | None
    ranks: int
    groups: list[StackGroup]
    unanswered: dict[str, list[str]]


class FailureFields(TypedDict):
    """A first failure that the status keeps; null is what is not known."""

    pod: str | None
    node: str | None
    exitCode: int | None
    reason: str | None
    lastLine: str | None


class PastRestartFields(TypedDict):
    """A restart that was; seconds is null where the group did not come back, costSeconds and steps where not known."""

    epoch: int
    scope: str | None
    trigger: str
    startedAt: str
    seconds: float | None
    decidedSeconds: float | None
    request: str | None
    failureClass: str | None
    firstFailure: FailureFields | None
    lastStep: int | None
    resumeStep: int | None
    resumeKind: str | None
    observed: list[str]
    lostSteps: int | None
    costSeconds: float | None


class HistoryDocument(TypedDict):
    """The last restarts of one JobSet, the oldest first: `inplace history`."""

    namespace: str
    name: str
    phase: str
    restarts: list[PastRestartFields]


class JobSetCostFields(TypedDict):
    """What restarts cost one JobSet; cost is null without --price."""

    namespace: str
    name: str
    phase: str
    pods: int
    restarts: int
    trainingTimeRatio: float | None
    costSeconds: float
    podHours: float
    cost: float | None


class CauseShare(TypedDict):
    """Restarts that one trigger began."""

    trigger: str
    restarts: int
    podHours: float


class NodeShare(TypedDict):
    """Restarts that began on one node."""

    node: str
    restarts: int
    podHours: float


class ObservedShare(TypedDict):
    """Answers of one kind that were not applied; of those neither right nor wrong nobody knows yet."""

    answer: str
    count: int
    right: int
    wrong: int


class ReportDocument(TypedDict):
    """The restarts of many JobSets: `inplace report`."""

    trainingTimeRatio: float | None
    restarts: int
    podHours: float
    cost: float | None
    jobsets: list[JobSetCostFields]
    causes: list[CauseShare]
    nodes: list[NodeShare]
    observed: list[ObservedShare]


class LogLineFields(TypedDict):
    """One line of a log: `inplace logs --json` prints one object for each."""

    time: str
    rank: int | None
    pod: str
    container: str
    epoch: int | None
    line: str
    bytesLeftOut: NotRequired[int]


DOCUMENTS: Final[dict[str, Any]] = {
    "explain": ExplainDocument,
    "history": HistoryDocument,
    "lint": LintDocument,
    "logs": LogLineFields,
    "report": ReportDocument,
    "stacks": StacksDocument,
    "status": StatusDocument,
    "status-list": list[JobSetRow],
    "timeline": TimelineDocument,
}
