"""
The lines that an agent and its guard exchange over the link: a Unix socket in a folder that both containers mount.

    both             inplace-link DEPTH    the first line of each side; the agent's says the depth, the guard's is 1:
                                           1 containers: the guard ends with its worker; 2 process: it stays
    agent -> guard   lifted EPOCH          the worker may start; epoch 0 when in-place restart is off
                     lifted EPOCH [RANK SIZE HOST [JOB JOBS]] [STEP]
                                           the same in a group with spares: the rank that this Pod plays, of so many,
                                           and the host name of rank 0, "-" if it has none; where whole Jobs play ranks
                                           that of its Job, of so many; and where the group knows it, the step from
                                           which it goes on
                     completed             the group has completed: end with 0 if no worker runs
                     signal NUMBER         depth 2: end the worker by this signal, and stay
                     examine PID SECONDS   the worker hangs for so long: run the command for that; 0 is no known process
                     take-stacks REQUEST   write the stacks of the worker's ranks to its log; the number is the
                                           request's, 0 for the watchdog's
                     leaving               the agent's process ends now: end the worker
    guard -> agent   started EPOCH         the worker's process runs
                     failed EPOCH CODE     the worker ended, and the group must restart
                     ended EPOCH CODE      the worker ended, and the group goes on: code 0, or a final code
                     ending EPOCH          this Pod ends: whatever the worker's end is, it is no failure
                     absent MILLISECONDS   depth 2: no process of a worker is left here, and the guard waits for a lift;
                                           a worker gets so long from SIGTERM to SIGKILL
                     examines              there is such a command, and it does not run; said after each run, too
                     checking MILLISECONDS a check runs here, for so long at most: announce nothing before it is over
                     fit                   no check runs here any more, and the last one let this Pod join
    both             unfit                 a check failed here, or in another container: this Pod ends

The end of the connection is a message, too: to the guard it says that the agent left, to the agent that the worker's
container is gone, however it ended. Any process of the Pod may connect, so every line is read strictly and is short.
Pure, and on the guard's start path. docs/adr/0062
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import TYPE_CHECKING, Any, Final
from inplace.common.protocol.bounds import CODE_MAX, INT32_MAX, REQUEST_MAX, STEP_MAX, decimal
from inplace.common.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from typing import TypeGuard

LINK_CONTAINERS: Final = 1  # the depths of a restart
LINK_PROCESS: Final = 2
LINE_BYTES_MAX: Final = 310  # the longest line, a lift with a DNS name, a Job and a step, has 304
SLOTS_MAX: Final = 5_500  # as `common.protocol.members` has it, which a guard need not load
HOST_CHARACTERS_MAX: Final = 253
_HOST_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
_NO_HOST: Final = "-"
SIGNAL_MAX: Final = 64  # SIGRTMAX


@record
class Hello:
    """The first line of each side."""

    depth: int = LINK_CONTAINERS


@record
class PlayedRank:
    """What this Pod's worker is in an epoch of a group with spares.

    Args:
        rank: that it plays, below `size`.
        size: how many members there are.
        host: the name of rank 0's Pod; "" if Pods have none.
        job: the rank of its Job, below `jobs`, where whole Jobs play ranks.
        jobs: how many Jobs are members; 0 where Pods are.
    """

    rank: int
    size: int
    host: str = ""
    job: int = 0
    jobs: int = 0


@record
class Lifted:
    """The worker may start.

    Args:
        epoch: 0 when in-place restart is off.
        played: in a group with spares.
        step: from which the group goes on; None where nobody can say.
    """

    epoch: int
    played: PlayedRank | None = None
    step: int | None = None


@record
class Completed:
    """The group has completed: what runs no worker ends with 0."""


@record
class Signal:
    """End the worker by this signal, and wait for the next lift."""

    number: int


@record
class Examine:
    """The worker hangs: run the command that looks at it, and say `Examines` when it is over."""

    pid: int
    silent_s: int


@record
class TakeStacks:
    """Write the stacks of the worker's ranks to its log; `request` is an id of `common.wire.stacks`."""

    request: int


@record
class Leaving:
    """The agent's process ends."""


@record
class Started:
    """The worker's process runs."""

    epoch: int


@record
class Failed:
    """The worker ended, and the group must restart; `code` is 128 + n after signal n."""

    epoch: int
    code: int


@record
class Ended:
    """The worker ended, and the group goes on."""

    epoch: int
    code: int


@record
class Ending:
    """The Pod ends, and with it the worker."""

    epoch: int


@record
class Absent:
    """No process of a worker is left in this container, and the guard waits for a lift."""

    grace_ms: int


@record
class Examines:
    """The guard has a command for a worker that hangs, and the command does not run."""


@record
class Checking:
    """A check runs in the guard's container, for so long at most."""

    limit_ms: int


@record
class Fit:
    """The check is over, and this Pod may announce."""


@record
class Unfit:
    """A check failed, and this Pod ends."""


# word -> message, and the largest value of each of its numbers
_MESSAGES: Final[dict[str, tuple[Any, tuple[int, ...]]]] = {
    "inplace-link": (Hello, (INT32_MAX,)),
    "signal": (Signal, (SIGNAL_MAX,)),
    "examine": (Examine, (INT32_MAX, INT32_MAX)),
    "leaving": (Leaving, ()),
    "started": (Started, (INT32_MAX,)),
    "failed": (Failed, (INT32_MAX, CODE_MAX)),
    "ended": (Ended, (INT32_MAX, CODE_MAX)),
    "ending": (Ending, (INT32_MAX,)),
    "absent": (Absent, (INT32_MAX,)),
    "examines": (Examines, ()),
    "checking": (Checking, (INT32_MAX,)),
    "fit": (Fit, ()),
    "unfit": (Unfit, ()),
    "completed": (Completed, ()),
    "take-stacks": (TakeStacks, (REQUEST_MAX,)),
}
_WORDS: Final = {message: word for word, (message, _) in _MESSAGES.items()}
Message = (
    Hello
    | Lifted
    | Signal
    | Examine
    | Leaving
    | Started
    | Failed
    | Ended
    | Ending
    | Absent
    | Examines
    | Checking
    | Fit
    | Unfit
    | Completed
    | TakeStacks
)


def line_of(message: Message) -> bytes:
    """Return a message's line."""
    if isinstance(message, Lifted):
        member, step = message.played, message.step
        more = [] if member is None else [str(member.rank), str(member.size), member.host or _NO_HOST]
        more += [str(member.job), str(member.jobs)] if member is not None and member.jobs else []
        last = () if step is None else (str(step),)
        return " ".join(["lifted", str(message.epoch), *more, *last]).encode("ascii") + b"\n"
    numbers = [str(getattr(message, name)) for name in type(message).__match_args__]
    return " ".join([_WORDS[type(message)], *numbers]).encode("ascii") + b"\n"


def is_completion(message: Message) -> TypeGuard[Ended]:
    """Say whether a worker of an epoch ended by itself with exit code 0."""
    return isinstance(message, Ended) and message.epoch > 0 and message.code == 0


class LineReader:
    """Turn the bytes of a link into messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._greeted = False

    def feed(self, received: bytes) -> list[Message]:
        """Return the messages whose lines are complete now; the first one of a link is `Hello`.

        Raises:
            RemoteProtocolError: something else than these lines (the peer is at fault); the link is to be closed.
        """
        *lines, self._rest = (self._rest + received).split(b"\n")
        messages = [_read(line) for line in lines]
        if len(self._rest) > LINE_BYTES_MAX:
            raise RemoteProtocolError(f"expected a line of at most {LINE_BYTES_MAX} bytes, saw {self._rest[:40]!r}...")
        if messages and not self._greeted:
            self._greeted = True
            first = messages[0]
            if not isinstance(first, Hello) or first.depth not in (LINK_CONTAINERS, LINK_PROCESS):
                expected = f"expected 'inplace-link {LINK_CONTAINERS}' or 'inplace-link {LINK_PROCESS}' first"
                do = "run the same inplace-agent in all containers of the Pod"
                raise RemoteProtocolError(f"{expected}, saw {lines[0][:40]!r}; {do}")
        return messages


def _read(line: bytes) -> Message:
    word, *numbers = line[: LINE_BYTES_MAX + 1].decode("latin-1").split(" ")
    if word == "lifted" and (lifted := _lifted(numbers)) is not None:
        return lifted
    cls, most = _MESSAGES.get(word, (None, ()))
    if cls is not None and len(numbers) == len(most) and all(map(_is_number, numbers, most)):
        message: Message = cls(*map(int, numbers))
        return message
    raise RemoteProtocolError(f"expected a line of the link, such as 'lifted 3', saw {line[:40]!r}")


def _lifted(words: list[str]) -> Lifted | None:
    """Return a lift; None if the words are not one's: an epoch, 3 or 5 words of a member's, and a step, or without."""
    if (of_member := {1: 0, 2: 0, 4: 3, 5: 3, 6: 5, 7: 5}.get(len(words))) is None:
        return None
    member, step = words[1 : 1 + of_member], words[1 + of_member :]
    if not all(map(_is_number, [words[0], *step], (INT32_MAX, STEP_MAX))):
        return None
    played = _played(*member) if member else None
    epoch = int(words[0])
    if (member and played is None) or (not epoch and len(words) > 1):
        return None
    return Lifted(epoch, played, int(step[0]) if step else None)


def _played(rank_text: str, size_text: str, host: str, *of_job: str) -> PlayedRank | None:
    """Return what a member is; None if the words do not say it."""
    numbers = (rank_text, size_text, *of_job)
    if not all(map(_is_number, numbers, (SLOTS_MAX - 1, SLOTS_MAX) * 2)):
        return None
    rank, size, job, jobs = map(int, numbers if of_job else (*numbers, "0", "0"))
    is_host = set(host) <= _HOST_CHARACTERS and 0 < len(host) <= HOST_CHARACTERS_MAX
    is_sound = rank < size and is_host and (job < jobs <= size or not of_job)
    return PlayedRank(rank, size, "" if host == _NO_HOST else host, job, jobs) if is_sound else None


def _is_number(text: str, most: int) -> bool:
    """Say whether a text is a decimal number up to `most`, in its only spelling."""
    number = decimal(text, most)
    return number is not None and str(number) == text
