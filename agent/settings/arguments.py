"""
Parse the command line of `inplace-agent`. Without arguments the agent is a sidecar, and this module is not imported.

It is written by hand: argparse costs 15 ms, and a worker's command line must stay untouched from its first word on.
Every option has an environment variable with the same meaning; the option wins. What a user sets for a whole JobSet is
no option but an annotation (docs/adr/0084).
"""

from __future__ import annotations

from inplace.agent.settings.address import LINK_FILE
from inplace.agent.settings.command import find_program
from inplace.common.bare.record import record
from inplace.common.bare.typed import TYPE_CHECKING, Callable, Final, Mapping, Sequence
from inplace.common.wire.stop_signal import signal_number

GRACE_S: Final = 2.0  # what kubelet gives a container when it restarts all of a Pod's
GRACE_S_MAX: Final = 86_400.0
CHECK_S: Final = 30.0  # a check of memory and links takes a few seconds; the whole group waits for it
CHECK_S_MIN: Final = 0.001  # the link to the agent tells milliseconds
CHECK_S_MAX: Final = 3600.0
PATTERN_BYTES_MAX: Final = 64  # of the text before a step, and of that after it
_PATTERN: Final = f"text of 1 to {PATTERN_BYTES_MAX} bytes, %d, and text of up to {PATTERN_BYTES_MAX}, such as step=%d"
STANDBY_ON: Final = "on"
STANDBY_ALWAYS: Final = "always"

USAGE: Final = f"""\
usage: inplace-agent                                        run beside the worker (sidecar)
       inplace-agent guard [OPTION...] [--] COMMAND [ARG...] run COMMAND as a child process, beside such an agent
       inplace-agent run [OPTION...] [--] COMMAND [ARG...]  run both in one container (supervisor)
       inplace-agent --version

COMMAND starts in each epoch when the barrier lifts. Its environment has INPLACE_EPOCH and INPLACE_RESTART_COUNT. If it
exits with 0, the Pod succeeds. If it fails, the group restarts in place.
  --grace SECONDS              time from SIGTERM to SIGKILL when the group restarts, or the agent ends; default
                               {GRACE_S:g} (WORKER_GRACE_S)
  --fail-on CODES              exit codes of COMMAND that end the Pod instead, such as 3,10-20
                               (WORKER_FAIL_ON)
  --clean PATH|ipc|off         remove what is at PATH after each run, BEFORE the next is announced: a file, or what is
                               in a folder. It must belong to this container or to an emptyDir. ipc: all files of the
                               user in /dev/shm, and its System V IPC. off: leave /dev/shm alone; by default what
                               COMMAND left there is removed. Can be repeated (WORKER_CLEAN: a line for each)
  --stop-signal NAME           the signal by which this Pod ends, if lifecycle.stopSignal or the image's STOPSIGNAL
                               names another than SIGTERM, such as SIGUSR1 or SIGRTMIN+3 (WORKER_STOP_SIGNAL)
  --on-stall COMMAND           run this by /bin/sh for at most 10 s BEFORE the worker that hangs is ended, say to dump
                               its stacks. INPLACE_STALL_PID is the silent rank's process, INPLACE_STALL_SILENT_S how
                               long it has been silent (ON_STALL)
  --step-pattern TEXT%dTEXT    take the number at %d in COMMAND's output for the Pod's step, such as step=%d, for one
                               that calls no inplace.progress (STEP_PATTERN)
  --standby                    start the next run's COMMAND while the present one still runs, if COMMAND calls
                               inplace.ready(). There it waits until its epoch lifts. Before that call it may import
                               modules, but touch no device, port or other worker. It needs memory for two
                               (WORKER_STANDBY=on)
  --standby=always             the same, and start COMMAND also while this Pod waits for a barrier without a worker, as
                               a spare does. Nobody has seen COMMAND call inplace.ready() then: you promise that it
                               does (WORKER_STANDBY=always)
  --before-announce COMMAND    run this by /bin/sh BEFORE this Pod joins an epoch, while the group restarts. If its exit
                               code is not 0, the Pod ends with code 6 and the last 2 KiB of output as its reason, and
                               its Job replaces it (BEFORE_ANNOUNCE)
  --before-announce-timeout SECONDS  then it is killed with all its processes; default {CHECK_S:g}
                               (BEFORE_ANNOUNCE_TIMEOUT_S)
  --before-announce-unanswered join|leave  what the Pod does if COMMAND did not end in time, or cannot be run; default:
                               join, and say so (BEFORE_ANNOUNCE_UNANSWERED)

guard: it and the agent mount the folder of LINK_FILE ({LINK_FILE}). The agent needs
CHECKS_BEFORE_ANNOUNCE, the number of guards with --before-announce. --standby needs inplace.dev/restart: process,
--standby=always does not.
run: if COMMAND fails a second time in a row without progress, this process ends with the code
CONTAINER_RESTART_EXIT_CODE, if that is set: kubelet then starts the container anew.

Annotations of the JobSet (inplace.dev/...) say how deep a group restart goes, how long a worker may save, when it
hangs, and when its Pod gets clean containers. All other settings are variables. Without arguments, if WORKER_COMMAND is
set, $SHELL runs it once, as with upstream's agent. Its exit code is the container's. A group restart ends the container
with IN_PLACE_RESTART_EXIT_CODE.
"""


class ArgumentsError(Exception):
    """A command line that cannot be used; the message says what was expected and what was seen."""


@record
class WorkerOptions:
    """The options of `run` and `guard`: how a worker's parent runs it.

    Args:
        command: the worker's argv.
        grace_s: from SIGTERM to SIGKILL when the group restarts, or a guard's agent ends.
        final_codes: exit codes of the worker that end the Pod.
        clean: what is removed after each run: paths, `ipc`, `off`.
        stop_signal: by which this Pod ends, beside SIGTERM; 0: no manifest says so.
        on_stall: a shell's command that looks at a worker that hangs, before it is ended; "" for none.
        step_pattern: the text before and after a step in the worker's output; None: the output is not searched.
        save_within_s: how long SIGTERM is held back from a worker that is asked to save; 0: not at all.
        before_announce: a shell's command that says whether this Pod may join an epoch; "" for none.
        check_timeout_s: how long that may take.
        joins_unanswered: the Pod joins although that command hangs or cannot be run.
        standby: STANDBY_ON: start the next worker's process while the present one runs, and hold it until the barrier
            lifts; STANDBY_ALWAYS: while none runs, too; "": not at all.
        listens: answer probes and scrapes; off under upstream's WORKER_COMMAND, whose agent opens no port then.
        once: end with the worker, whatever its code, and with the configured code when the group restarts.
    """

    command: tuple[str, ...]
    grace_s: float = GRACE_S
    final_codes: frozenset[int] = frozenset()
    clean: tuple[str, ...] = ()
    stop_signal: int = 0
    on_stall: str = ""
    step_pattern: tuple[bytes, bytes] | None = None
    save_within_s: float = 0.0
    before_announce: str = ""
    check_timeout_s: float = CHECK_S
    joins_unanswered: bool = True
    standby: str = ""
    listens: bool = True
    once: bool = False


def parse(arguments: Sequence[str], env: Mapping[str, str]) -> WorkerOptions | None:
    """Read the command line and its variables; None asks for help.

    Raises:
        ArgumentsError: it cannot be used.
    """
    if not arguments:
        return _upstream(env)
    verb, *rest = arguments
    if verb in ("--help", "-h", "help"):
        return None
    if verb not in _VERBS:
        raise ArgumentsError(f"expected run, guard or no argument, saw {verb!r}")
    given, command = _split(rest, tuple(_OPTIONS))
    if "--help" in given:
        return None
    values = {field: read(name, text) for field, name, read, text in _texts(given, env) if text}
    if not command:
        raise ArgumentsError(f"expected a worker's command, as in 'inplace-agent {verb} -- python train.py', saw none")
    values["save_within_s"] = _GRACE_S("SAVE_WITHIN_S", env.get("SAVE_WITHIN_S") or "0")
    if verb == "run" and env.get("WORKER_COMMAND"):
        raise ArgumentsError("expected a command or WORKER_COMMAND, saw both")
    return WorkerOptions(command=command, **values)  # type: ignore[arg-type]  # each reader gives its field's type


def exit_codes(name: str, text: str) -> frozenset[int]:
    """Read exit codes and ranges of them, such as 3,10-20.

    Raises:
        ArgumentsError: anything else, or a code that is none of 1 to 255.
    """
    codes: set[int] = set()
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        ends = (first, last if dash else first)
        if not all(end.isascii() and end.isdigit() and len(end) <= 3 for end in ends):
            raise ArgumentsError(f"{name}: expected exit codes such as 3,10-20, saw {text!r}")
        low, high = int(ends[0]), int(ends[1])
        if not 1 <= low <= high <= 255:
            raise ArgumentsError(f"{name}: expected codes from 1 to 255 (0 always completes the Pod), saw {word!r}")
        codes.update(range(low, high + 1))
    return frozenset(codes)


def clean_words(name: str, text: str) -> tuple[str, ...]:
    """Read what is to be cleaned, a line for each.

    Raises:
        ArgumentsError: a path that nobody may clean, or too many.
    """
    from inplace.agent.settings.paths import PATHS_MAX, problem_of_path

    words = tuple(word for word in text.split("\n") if word)
    for word in words:
        if word not in ("ipc", "off") and (problem := problem_of_path(word)):
            raise ArgumentsError(f"{name}: {problem}")
    if len(words) > PATHS_MAX:
        raise ArgumentsError(f"{name}: expected at most {PATHS_MAX} paths, saw {len(words)}")
    return words


def stop_signal(name: str, text: str) -> int:
    """Read the name of a signal.

    Raises:
        ArgumentsError: anything else, or a signal that nobody can pass on.
    """
    number = signal_number(text)
    if not number:
        expected = "a signal that a process can take, such as SIGUSR1 or SIGRTMIN+3"
        raise ArgumentsError(f"{name}: expected {expected}, saw {text[:40]!r}")
    return number


def _seconds(least: float, most: float) -> Callable[[str, str], float]:
    """Return a reader of seconds, which raises ArgumentsError at no number, or one out of range."""

    def read(name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not least <= value <= most:
            raise ArgumentsError(f"{name}: expected seconds from {least:g} to {most:g}, saw {text!r}")
        return value

    return read


def _either(yes: str, no: str) -> Callable[[str, str], bool]:
    """Return a reader of one of two words, which raises ArgumentsError at anything else."""

    def read(name: str, text: str) -> bool:
        if text not in (yes, no):
            raise ArgumentsError(f"{name}: expected {yes} or {no}, saw {text!r}")
        return text == yes

    return read


def _step_pattern(name: str, text: str) -> tuple[bytes, bytes]:
    """Return the text before and after %d; raise ArgumentsError where there is no %d, or a text is too long."""
    before, found, after = text.partition("%d")
    parts = before.encode(), after.encode()
    if not found or not parts[0] or max(map(len, parts)) > PATTERN_BYTES_MAX or "%d" in after:
        raise ArgumentsError(f"{name}: expected {_PATTERN}, saw {text[:80]!r}")
    return parts


def _standby(name: str, text: str) -> str:
    """Read when a process may be held; raise ArgumentsError at anything else."""
    if text not in (STANDBY_ON, STANDBY_ALWAYS, "off"):
        raise ArgumentsError(f"{name}: expected on, always or off, saw {text!r}")
    return "" if text == "off" else text


if TYPE_CHECKING:
    _Option = tuple[str, str, Callable[[str, str], object]]  # field, variable, reader
_GRACE_S: Final = _seconds(0.0, GRACE_S_MAX)
_OPTIONS: Final[Mapping[str, _Option]] = {
    "--grace": ("grace_s", "WORKER_GRACE_S", _GRACE_S),
    "--fail-on": ("final_codes", "WORKER_FAIL_ON", exit_codes),
    "--clean": ("clean", "WORKER_CLEAN", clean_words),
    "--stop-signal": ("stop_signal", "WORKER_STOP_SIGNAL", stop_signal),
    "--on-stall": ("on_stall", "ON_STALL", lambda _, text: text),
    "--step-pattern": ("step_pattern", "STEP_PATTERN", _step_pattern),
    "--before-announce": ("before_announce", "BEFORE_ANNOUNCE", lambda _, text: text),
    "--before-announce-timeout": ("check_timeout_s", "BEFORE_ANNOUNCE_TIMEOUT_S", _seconds(CHECK_S_MIN, CHECK_S_MAX)),
    "--before-announce-unanswered": ("joins_unanswered", "BEFORE_ANNOUNCE_UNANSWERED", _either("join", "leave")),
    "--standby": ("standby", "WORKER_STANDBY", _standby),
}
_VERBS: Final = ("run", "guard")


def _split(words: Sequence[str], known: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Take options from the front; the rest is the worker's command and stays untouched."""
    given: dict[str, str] = {}
    left = list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        if word == "--":
            break
        if word in ("--help", "-h"):
            return {"--help": ""}, ()
        name, equals, text = word.partition("=")
        if name not in known:
            raise ArgumentsError(f"expected {', '.join(known)} or -- before the command, saw {word!r}")
        if not equals and name == "--standby":
            text = STANDBY_ON
        elif not equals:
            if not left:
                raise ArgumentsError(f"{name}: expected a value, saw the end of the command line")
            text = left.pop(0)
        if not text:
            raise ArgumentsError(f"{name}: expected a value, saw ''")
        given[name] = f"{given[name]}\n{text}" if name == "--clean" and name in given else text
    return given, tuple(left)


def _texts(
    given: Mapping[str, str], env: Mapping[str, str]
) -> list[tuple[str, str, Callable[[str, str], object], str]]:
    """Return (field, name for messages, reader, text) for each option: the environment's first, so that options win."""
    from_env = [(field, variable, read, env.get(variable, "")) for field, variable, read in _OPTIONS.values()]
    return from_env + [(_OPTIONS[name][0], name, _OPTIONS[name][2], text) for name, text in given.items()]


def _upstream(env: Mapping[str, str]) -> WorkerOptions:
    """Return what upstream's contract asks for: $SHELL, or bash, runs WORKER_COMMAND once; no port is opened.

    Source: kubernetes-sigs/jobset, cmd/in-place-restart-agent.
    """
    probe = [name for name in ("STARTUP_PROBE_PATH", "STARTUP_PROBE_PORT") if env.get(name)]
    if probe:
        raise ArgumentsError(f"expected WORKER_COMMAND or {' and '.join(probe)} (which is for a sidecar), saw both")
    known = {field: read(name, text) for field, name, read, text in _texts({}, env) if text}
    command = (_shell(env), "-c", env["WORKER_COMMAND"])
    return WorkerOptions(command=command, listens=bool(env.get("BARRIER_PORT")), once=True, **known)  # type: ignore[arg-type]


def _shell(env: Mapping[str, str]) -> str:
    return env.get("SHELL") or ("bash" if find_program("bash", env) else "sh")
