"""
The table of settings: every annotation by which a user says what a JobSet does about failures. Pure.

A value is a number or a word, or parts `name=value,...`; a value alone is that of the first part. One part that cannot
be read makes the whole annotation mean nothing: `effect` says what holds then. The condition SpecProblem says so
(controller/plan/problems), `inplace lint` before it, and docs/settings.md has the table as a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from inplace.common.bare.record import record, replace
from inplace.common.kube.quantity import parse_quantity
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.lease import LENGTH_S_MAX, LENGTH_S_MIN
from inplace.common.protocol.members import SLOTS_MAX
from inplace.common.wire import names as wire
from inplace.common.wire.last_progress import LONG_S
from inplace.common.wire.notice import RESTARTING
from inplace.common.wire.parts import SEEN_CHARS_MAX, parts_of
from inplace.common.wire.stall_limit import AFTER, EXPECTED, START, parse_limit

DAY_S: Final = 24 * 3600
SAVE_S_MAX: Final = 3600  # a worker that needs longer does not save for a restart, it hangs
CLEAN_AFTER_MAX: Final = 1000  # as the agent's, see agent/settings/config.py
START_WINDOW_S_MAX: Final = 300  # as the agent's, see agent/settings/herd.py
KEEP_MIN: Final = 2**20  # bytes; one page holds no checkpoint
KEEP_MAX: Final = 2**50
BARRIER_S: Final = 600  # a Pod that pulls a large image is there by then
BARRIER_S_MAX: Final = 7 * DAY_S
WAIT_S: Final = 60  # longer than a Job takes to replace a Pod (10 s) and a node to pull an image that it has
EVENT: Final = "Event"
RECREATE_JOBS: Final = "RecreateJobs"
BACKOFF_S: Final = 5  # a restart in place takes 0.1 to 3 s: a group that waits 5 s sends less than a healthy one
BACKOFF_MAX_S: Final = 300  # as kubelet's CrashLoopBackOff
BACKOFF_LIMIT_S: Final = 3600  # who waits longer should fail instead
EPOCHS_MAX: Final = 16  # without progress; status.restartHistory tells of all
SAME: Final = 3  # failures from which on a condition says that restarts do not help
SAME_MIN: Final = 2
SAME_MAX: Final = 8  # status.restartHistory has no more whole ones, if all their words are long
SHORT_S_MAX: Final = 7 * DAY_S
STEP_NAMES: Final = ("InPlace", "ReplacePod", "RecreateJob", "RecreateJobs")
USES_MAX: Final = 64  # of one step of the escalation; each is 60 to 400 bytes of the status
WINDOW_S_MAX: Final = 30 * DAY_S
NODE_FAILURES_MAX: Final = 8
NODE_WINDOW_S_MIN: Final = 60
LEAVE: Final = "leave"
STAY: Final = "stay"
RESOURCE_NAMES: Final = ("cpu", "memory", "ephemeral-storage")
RESOURCE_KINDS: Final = ("requests", "limits")
WORKERS: Final = "workers"
ACT: Final = "act"
OBSERVE: Final = "observe"
OFF: Final = "off"


@record
class Part:
    """One part of a setting.

    Args:
        name: before its "=".
        expected: what a value looks like, in words.
        read: returns what a value means; None, or a ValueError, where it means nothing.
        says: what it decides, for people.
        default: what holds without it, for people.
    """

    name: str
    expected: str
    read: Callable[[str], Any]
    says: str
    default: str = "off"


@record
class Setting:
    """One annotation.

    Args:
        key: its name.
        says: what it is about, for people.
        effect: what holds where it cannot be read.
        parts: what may stand in it; the first may stand alone.
    """

    key: str
    says: str
    effect: str
    parts: tuple[Part, ...]

    @property
    def where(self) -> str:
        """Return where it stands in a JobSet."""
        return f"metadata.annotations[{self.key}]"

    def named(self, part: str) -> str:
        """Return how people call one of its parts."""
        return f"{part} in {self.key}"

    def read(self, annotations: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is said, by the names of the parts; nothing where the annotation is absent.

        Raises:
            RemoteProtocolError: it cannot be read (its author is at fault).
        """
        if (text := annotations.get(self.key)) is None:
            return {}
        known, found = {part.name: part for part in self.parts}, dict[str, Any]()
        try:
            given = parts_of(text, self.parts[0].name) if isinstance(text, str) else {}
        except ValueError:
            given = {}
        if not given:
            raise self._unreadable("", self._form(), str(text))
        for name, value in given.items():
            if name not in known:
                raise self._unreadable("", self._form(), name)
            found[name] = _meaning(known[name], value)
            if found[name] is None:
                raise self._unreadable(name, known[name].expected, value)
        return found

    def read_or_default(self, annotations: Mapping[str, Any]) -> dict[str, Any]:
        """Return the same; nothing where it cannot be read, which `controller.plan.problems` tells."""
        try:
            return self.read(annotations)
        except RemoteProtocolError:
            return {}

    def with_part(self, annotations: Mapping[str, Any], part: str, value: object) -> dict[str, str]:
        """Return the annotation with one more part, unless it says that already, or cannot be read."""
        text = str(annotations.get(self.key, ""))
        try:
            given = parts_of(text, self.parts[0].name) if text else {}
        except ValueError:
            return {self.key: text}
        return {self.key: ",".join(f"{name}={said}" for name, said in ({part: str(value)} | given).items())}

    def _form(self) -> str:
        names = [part.name for part in self.parts]
        if len(names) == 1:
            return self.parts[0].expected
        return f"parts name=value with commas between, each once, of the names {', '.join(names)}"

    def _unreadable(self, part: str, expected: str, seen: str) -> RemoteProtocolError:
        where = f"{self.where}.{part}" if part and len(self.parts) > 1 else self.where
        return RemoteProtocolError(
            f"{where}: expected {expected}, saw {seen[:SEEN_CHARS_MAX]!r}; {self.effect}; correct it"
        )


def _meaning(part: Part, text: str) -> Any:
    try:
        return part.read(text)
    except ValueError:
        return None


def _whole(name: str, least: int, most: int, says: str, default: str = "off") -> Part:
    def read(text: str) -> int | None:
        is_number = text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= most
        return int(text) if is_number else None

    return Part(name, f"an integer from {least} to {most}", read, says, default)


def _word(name: str, words: tuple[str, ...], says: str, default: str) -> Part:
    expected = f"{', '.join(words[:-1])} or {words[-1]}"
    return Part(name, expected, lambda text: text if text in words else None, says, default)


def _or_off(part: Part) -> Part:
    """Let the word off mean 0."""
    return replace(part, expected=f"{part.expected}, or {OFF}", read=lambda text: 0 if text == OFF else part.read(text))


def _limit(name: str, says: str) -> Part:
    return Part(name, EXPECTED, lambda text: parse_limit(text) or 0.0, says)


def _kinds(text: str) -> frozenset[str] | None:
    kinds = frozenset(text.split("+"))
    return kinds if kinds <= set(RESTARTING) else None


def _names(text: str) -> tuple[str, ...] | None:
    names = tuple(name.strip() for name in text.split("+"))
    return names if all(names) else None


def _amount(text: str) -> str | None:
    number = parse_quantity(text)
    return text if number is not None and number > 0 else None


def _memory(text: str) -> str | None:
    number = parse_quantity(text)
    return text if number is not None and KEEP_MIN <= number <= KEEP_MAX and number == int(number) else None


MODE: Final = _word("mode", (ACT, OBSERVE), "observe: say what would be done, and do nothing of it", ACT)
RESTART: Final = Setting(
    wire.RESTART,
    "how a group restarts in place; a Pod template may say it for its own Pods",
    "the Pods get none of it",
    (
        _word(
            "depth",
            (wire.DEPTH_PROCESS, wire.DEPTH_CONTAINERS),
            "what starts again: the worker's process, or all containers of its Pod",
            "by the template ([modes.md](modes.md#which-depth))",
        ),
        _whole("save-within", 0, SAVE_S_MAX, "seconds for which a worker may save before a planned stop", "0"),
        _whole("clean-after", 0, CLEAN_AFTER_MAX, "failures in a row that give a Pod clean containers; 0: never", "2"),
        _whole("window", 0, START_WINDOW_S_MAX, "seconds over which a large group spreads its starts", "by its size"),
        Part(
            "keep",
            "an amount of memory such as 64Gi",
            _memory,
            "the size of a worker's folder in memory that outlives every restart in place (INPLACE_KEEP_DIR)",
            "none",
        ),
    ),
)
FAILURES: Final = Setting(
    wire.FAILURES,
    "failures without progress",
    f"the back-off is {BACKOFF_S} to {BACKOFF_MAX_S} s, and nothing is judged by its progress",
    (
        _whole("no-progress", 1, EPOCHS_MAX, "failed epochs in a row without progress that fail the JobSet"),
        _whole("short", 1, SHORT_S_MAX, "seconds; where no Pod tells steps, a longer epoch is progress", f"{LONG_S:g}"),
        _whole("same", SAME_MIN, SAME_MAX, "failures in a row by one error from one place, as no-progress"),
        _whole("backoff", 0, BACKOFF_LIMIT_S, "seconds before the second restart in vain; 0: never", str(BACKOFF_S)),
        _whole("backoff-max", 0, BACKOFF_LIMIT_S, "the longest wait in seconds", f"{BACKOFF_MAX_S}"),
        replace(MODE, says="observe: say when no-progress would fail the JobSet"),
    ),
)
ESCALATION: Final = Setting(
    wire.ESCALATION,
    "which restart comes after which failure: the first step that has uses left",
    "maxRestarts alone bounds restarts",
    (
        _whole(STEP_NAMES[0], 1, USES_MAX, "how often all workers may restart in their Pods"),
        _whole(STEP_NAMES[1], 1, USES_MAX, "how often the Pod that failed first may be replaced"),
        _whole(STEP_NAMES[2], 1, USES_MAX, "how often its Job may be recreated"),
        _whole(STEP_NAMES[3], 1, USES_MAX, "how often all Jobs may be recreated"),
        _whole("window", 1, WINDOW_S_MAX, "the seconds in which uses count", f"{DAY_S}"),
        MODE,
    ),
)
BARRIER: Final = Setting(
    wire.BARRIER,
    "a barrier that waits for Pods that are missing",
    f"an Event says so each time that a barrier has waited {BARRIER_S} s",
    (
        _whole("deadline", 0, BARRIER_S_MAX, "seconds that it may wait; 0: no limit", f"{BARRIER_S}"),
        _word("action", (EVENT, RECREATE_JOBS), "what is done then; the Jobs are those of the missing Pods", EVENT),
    ),
)
STALL: Final = Setting(
    wire.STALL,
    "the watchdog, for agents whose own settings have no limits",
    "the agents leave their limits as they were",
    (
        _limit(AFTER, "seconds between two steps after which a worker hangs; 0: off"),
        _limit(START, "seconds from the start to the first step; 0: off"),
    ),
)
RESTART_ON: Final = Setting(
    wire.RESTART_ON,
    "notices that are failures",
    "a notice restarts nothing",
    (Part("kinds", f"some of {', '.join(RESTARTING)}, with + between", _kinds, "kinds, such as loss+slow"), MODE),
)
NODES: Final = Setting(
    wire.NODES,
    "nodes that Pods leave",
    "no pod leaves a bad node, and pods leave marked nodes",
    (
        _or_off(
            _whole(
                "failures",
                1,
                NODE_FAILURES_MAX,
                "first failures on a node, in different epochs, that make it bad",
                "2, told; a spare takes over",
            )
        ),
        _whole("within", NODE_WINDOW_S_MIN, WINDOW_S_MAX, "seconds in which they count, and of its avoidance", "3600"),
        _whole("percent", 1, 100, "the share of the nodes in use that may be avoided; one always", "10"),
        _word("marked", (LEAVE, STAY), "what a Pod that fails on a cordoned or tainted node does", LEAVE),
        replace(MODE, says="observe: say which node is bad, and let pods stay; marked nodes are left"),
    ),
)
FENCE_AFTER: Final = Setting(
    wire.FENCE_AFTER,
    "a node that Kubernetes cannot reach",
    "a dead node is given up after 300 s, as without it",
    (
        _whole(
            "seconds", LENGTH_S_MIN, LENGTH_S_MAX, "seconds without the API server after which an agent ends its worker"
        ),
    ),
)
MEMBERS: Final = Setting(
    wire.MEMBERS,
    "how many Pods of a replicatedJob train, or Jobs of one with several; the others are spares; its "
    "template.metadata may say it as well",
    "all pods train, and the group waits for all",
    (
        _whole("max", 1, SLOTS_MAX, "how many train where there are enough", "all"),
        _whole("min", 1, SLOTS_MAX, "with how few the group goes on", "max"),
        _whole("step", 1, SLOTS_MAX, "sizes are max, max - step, and so on", "1"),
        _whole("wait", 0, DAY_S, "seconds for which the barrier waits for max before it lifts for fewer", f"{WAIT_S}"),
    ),
)
AGENT: Final = Setting(
    wire.AGENT,
    "the agent that the controller adds",
    "the agent is added as without it",
    (
        _word("added", (wire.AGENT_ON, wire.AGENT_OFF), "whether it is added", "by the controller's flags"),
        Part(WORKERS, "names of containers with + between", _names, "the containers that train", "the only one"),
        *(
            Part(name, "an amount such as 100m or 64Mi", _amount, "what its container gets", "by the worker's")
            for name in (*RESOURCE_NAMES, *(f"{kind}.{name}" for kind in RESOURCE_KINDS for name in RESOURCE_NAMES))
        ),
    ),
)
OF_GROUPS: Final = (RESTART, FAILURES, ESCALATION, BARRIER, STALL, RESTART_ON, NODES, FENCE_AFTER, MEMBERS, AGENT)
"""They mean nothing where groups do not restart in place. RESTART_IN_PLACE and RESTART_SCOPE have their own readers."""

ON_PODS: Final = {
    "depth": wire.RESTART_DEPTH,
    "save-within": wire.SAVE_WITHIN,
    "clean-after": wire.CLEAN_AFTER,
    "window": wire.START_WINDOW,
    "keep": wire.KEEP,
}


def carried(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Return what RESTART says as the annotations that Pods get, for their agents to read (docs/adr/0084)."""
    return {ON_PODS[name]: str(value) for name, value in RESTART.read_or_default(annotations).items()}


def save_within_s(annotations: Mapping[str, Any], job_template: Mapping[str, Any]) -> int:
    """Return for how many seconds a worker may save before a planned stop; 0 for none.

    Args:
        annotations: of the JobSet.
        job_template: of the worker's replicatedJob, whose Pods may say otherwise.
    """
    template = (job_template.get("spec") or {}).get("template") or {}
    own = (template.get("metadata") or {}).get("annotations") or {}
    text = {**carried(annotations), **carried(own), **own}.get(wire.SAVE_WITHIN, "0")
    return int(text) if text.isdigit() else 0


def planned_save_s(annotations: Mapping[str, Any], job_templates: Iterable[Mapping[str, Any]]) -> int:
    """Return for how many seconds the workers of several replicatedJobs may save before a planned restart."""
    return max((save_within_s(annotations, template) for template in job_templates), default=0)
