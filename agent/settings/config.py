"""
The agent's settings, from environment variables: the seed's names and upstream's.

Values are refused before any request is sent, all at once.

Which defaults apply: upstream's (port 8081, path /barrier-is-down, exit code 1) when none of NAMESPACE,
RESTART_POD_IN_PLACE_EXIT_CODE, BARRIER_PATH and BARRIER_PORT is set, else ours (8080, /barrier-is-lifted,
88). A manifest written for upstream's agent sets none of the four; one written after the seed sets NAMESPACE.
An explicit value of either family is taken under both. The barrier answers on both default paths beside the
configured one.
"""

from __future__ import annotations

from collections.abc import Mapping

from inplace.agent.settings.address import progress_dir, save_file
from inplace.agent.settings.command import PROGRESS_DIR
from inplace.agent.settings.environment import Environment, is_integer, is_object_name
from inplace.agent.settings.exit_code import UPSTREAM_RESTART_IN_PLACE, ExitCode
from inplace.agent.settings.herd import GROUP_SIZE_MAX, RATE_PER_S, RATE_PER_S_MAX, WINDOW_S, WINDOW_S_MAX, Herd
from inplace.common.bare.record import record
from inplace.common.bare.typed import TYPE_CHECKING, Final
from inplace.common.kube.http.credentials import is_address, service_account_dir
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire.barrier import HEALTH_PATH, METRICS_PATH, OUR_PATH, OUR_PORT, UPSTREAM_PATH, UPSTREAM_PORT
from inplace.common.wire.names import DEPTH_CONTAINERS, DEPTH_PROCESS

if TYPE_CHECKING:
    from inplace.agent.settings.watch_settings import WatchSettings

SAVE_WITHIN_S_MAX: Final = 3600.0  # as a request's, see common/jobset/requests.py
CLEAN_AFTER: Final = 2  # failures in a row without progress: one is chance, a second one may be the container's
CLEAN_AFTER_MAX: Final = 1000
GUARDS_MAX: Final = 16  # of a Pod, see `agent.link.server`
_OURS: Final = ("NAMESPACE", "RESTART_POD_IN_PLACE_EXIT_CODE", "BARRIER_PATH", "BARRIER_PORT")


class ConfigError(Exception):
    """Settings that cannot be used.

    Attributes:
        problems: a sentence for each, with the variable, what is expected and what was seen.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@record
class AgentConfig:
    """What one agent needs to know.

    Args:
        prefer_table: ask for Table rows first. Off under upstream's names: upstream's CRD lacks the columns,
            and finding that out would cost each start a third request. Off for a first Pod whose worker saves.
        herd: this Pod's place in its group.
        start_slot_s: seconds from the process's start to its first request; 0 for small groups, and after a head
            start that was in time, see `agent.settings.herd`.
        link_file: where the agent serves the guards of the worker's containers; "" if there are none.
        restart_depth: `containers`, or `process` for guards that start their workers' processes anew.
        checks_awaited: so many guards run a check before each announcement.
        guards_awaited: so many workers start behind the startup probe, each by a guard if its image lets one in; 0:
            each worker's command is its guard's.
        restart_scope: the part of the JobSet that this Pod restarts with; "" is the whole.
        slot: the number of this Pod's unit in a group with spares: its own, or its Job's; None in a group without.
        index: this Pod's number in its Job, where that is the unit; None elsewhere.
        hosts: the host names of such a group, with "*" for a unit; "*" if its Pods have none.
        ran_epoch: the last epoch in which this Pod started a worker; 0 for none.
        watch: what the watchdog watches; None where only the JobSet's annotations may ask for it.
        progress_dir: where the worker's ranks say how far they are; "" if there is no folder for that, or
            PROGRESS_FILE names other files.
        save_within_s: how long a worker may take to save before a planned stop; 0: it is not asked.
        save_file: where it sees that it is asked; "" if it is not.
        container_restart_exit_code: kubelet starts a supervisor's container anew after this code; None: it does not.
        clean_after: after so many failures of its worker in a row this Pod gets clean containers; 0: never.
        fence_after_s: the length of the worker's lease, see `agent.announce.lease_keeper`; 0 for none.
        phases_annotation: announce with the durations of the last restart's phases, see `common.wire.phases`.
        warnings: what is odd but no reason to stop.
    """

    namespace: str
    pod_name: str
    jobset_name: str
    restart_exit_code: int = int(ExitCode.RESTART_IN_PLACE)
    barrier_path: str = OUR_PATH
    barrier_port: int = OUR_PORT
    barrier_address: str = ""
    previous_epoch: int | None = None
    reached_epoch: int = 0
    epoch_file: str = ""
    link_file: str = ""
    checks_awaited: int = 0
    guards_awaited: int = 0
    restart_depth: str = DEPTH_CONTAINERS
    pod_uid: str = ""
    jobset_uid: str = ""
    herd: Herd = Herd()
    start_slot_s: float = 0.0
    prefer_table: bool = True
    restart_scope: str = ""
    slot: int | None = None
    index: int | None = None
    hosts: str = ""
    ran_epoch: int = 0
    watch: WatchSettings | None = None
    progress_dir: str = ""
    save_within_s: float = 0.0
    save_file: str = ""
    container_restart_exit_code: int | None = None
    clean_after: int = CLEAN_AFTER
    fence_after_s: int = 0
    phases_annotation: bool = True
    log_format: str = "json"
    log_level: str = "info"
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> AgentConfig:
        """Read the settings.

        Raises:
            ConfigError: every variable that is missing, malformed or contradicts another (the manifest is at
                fault).
        """
        read = Environment(env)
        upstream = not any(env.get(name) for name in _OURS)
        warnings: list[str] = []
        previous_epoch = _read_or_warn(read, "PREVIOUS_EPOCH", 1, INT32_MAX, "as unknown", warnings)
        herd = _herd(read, warnings)
        save_within_s = _save_within_s(read)
        slot, index, hosts = _slot(read) if read.get("MEMBERS") else (None, None, "")
        config = cls(
            namespace=_namespace(read, f"{service_account_dir(env)}/namespace"),
            pod_name=read.name("POD_NAME", 253),
            jobset_name=read.name("JOBSET_NAME", 253),
            restart_exit_code=read.either(
                "RESTART_POD_IN_PLACE_EXIT_CODE",
                "IN_PLACE_RESTART_EXIT_CODE",
                lambda name: read.integer(name, 1, 255),
                UPSTREAM_RESTART_IN_PLACE if upstream else int(ExitCode.RESTART_IN_PLACE),
            ),
            barrier_path=read.either(
                "BARRIER_PATH",
                "STARTUP_PROBE_PATH",
                lambda name: read.path(name, reserved=(METRICS_PATH, HEALTH_PATH)),
                UPSTREAM_PATH if upstream else OUR_PATH,
            ),
            barrier_port=read.either(
                "BARRIER_PORT",
                "STARTUP_PROBE_PORT",
                lambda name: read.integer(name, 1, 65535),
                UPSTREAM_PORT if upstream else OUR_PORT,
            ),
            barrier_address=_address(read),
            previous_epoch=previous_epoch,
            epoch_file=read.file("EPOCH_FILE"),
            link_file=read.file("LINK_FILE"),
            checks_awaited=_guards(read, "CHECKS_BEFORE_ANNOUNCE"),
            guards_awaited=_guards_awaited(read),
            restart_depth=_restart_depth(read),
            pod_uid=read.uid("POD_UID"),
            jobset_uid=read.uid("JOBSET_UID"),
            herd=herd,
            start_slot_s=herd.start_slot_s,
            prefer_table=not (upstream or (save_within_s > 0 and _is_first(read))),
            restart_scope=read.name("RESTART_SCOPE", 63) if read.get("RESTART_SCOPE") else "",
            slot=slot,
            index=index,
            hosts=hosts,
            watch=_watch(read),
            progress_dir=_progress_dir(read),
            save_within_s=save_within_s,
            save_file=save_file(_shared_folder(read)) if save_within_s > 0 else "",
            container_restart_exit_code=read.integer("CONTAINER_RESTART_EXIT_CODE", 1, 255),
            clean_after=_clean_after(read),
            fence_after_s=_fence_after_s(read) if read.get("FENCE_AFTER_S") else 0,
            phases_annotation=read.choice("PHASES_ANNOTATION", ("on", "off")) == "on",
            log_format=read.choice("LOG_FORMAT", ("json", "console")),
            log_level=read.choice("LOG_LEVEL", ("info", "debug", "warning", "error")),
            warnings=tuple(warnings),
        )
        if read.problems:
            raise ConfigError(tuple(read.problems))
        return config


def _namespace(read: Environment, file: str) -> str:
    """Return NAMESPACE, or the mounted service account's namespace in `file` (upstream's way)."""
    if read.get("NAMESPACE"):
        return read.name("NAMESPACE", 63)
    try:
        with open(file, encoding="utf-8") as lines:  # noqa: PTH123 - pathlib costs 3 ms on the start path
            text = lines.read().strip()
    except (OSError, ValueError) as error:
        read.refuse("NAMESPACE", f"a namespace, or one in {file} ({error})")
        return ""
    if not is_object_name(text, 63):
        read.refuse(f"NAMESPACE (from {file})", "a namespace of at most 63 characters", text)
    return text


def _restart_depth(read: Environment) -> str:
    """Return RESTART_DEPTH: a process can be restarted only by its guard, and is unless the variable says otherwise."""
    guarded = bool(read.get("LINK_FILE"))
    depths = (DEPTH_PROCESS, DEPTH_CONTAINERS) if guarded else (DEPTH_CONTAINERS, DEPTH_PROCESS)
    depth = read.choice("RESTART_DEPTH", depths)
    if depth == DEPTH_PROCESS and not guarded:
        read.refuse("LINK_FILE", "the path of the link to the worker's guard beside RESTART_DEPTH=process")
    return depth


def _guards(read: Environment, name: str) -> int:
    """Return a number of guards; there are none without a link."""
    count = read.integer(name, 0, GUARDS_MAX) or 0
    if count and not read.get("LINK_FILE"):
        read.refuse("LINK_FILE", f"the path of the link to the worker's guard beside {name}")
    return count


def _guards_awaited(read: Environment) -> int:
    """Return GUARDS_AWAITED; what needs a guard must not await one that may not come."""
    count = _guards(read, "GUARDS_AWAITED")
    for name in ("FENCE_AFTER_S", "CHECKS_BEFORE_ANNOUNCE") if count else ():
        if read.get(name):
            read.refuse(name, "none beside GUARDS_AWAITED: a worker may run without a guard", read.get(name))
    return count


def _slot(read: Environment) -> tuple[int | None, int | None, str]:
    from inplace.agent.settings.slot import read_slot

    return read_slot(read)


def _watch(read: Environment) -> WatchSettings | None:
    """Return the watchdog's settings; nothing of it is loaded where none is set."""
    if not (read.get("STALL_AFTER_S") or read.get("START_STALL_AFTER_S") or read.get("PROGRESS_FILE")):
        return None
    from inplace.agent.settings.watch_settings import read_watch_settings

    return read_watch_settings(read, _progress_dir(read))


def _fence_after_s(read: Environment) -> int:
    from inplace.common.protocol.lease import LENGTH_S_MAX, LENGTH_S_MIN

    return read.integer("FENCE_AFTER_S", LENGTH_S_MIN, LENGTH_S_MAX) or 0


def _clean_after(read: Environment) -> int:
    count = read.integer("CLEAN_AFTER_FAILURES", 0, CLEAN_AFTER_MAX)
    return CLEAN_AFTER if count is None else count


def _progress_dir(read: Environment) -> str:
    return "" if read.get("PROGRESS_FILE") else _shared_folder(read)


def _shared_folder(read: Environment) -> str:
    """Return the folder in which agent and worker write; "" for none."""
    return progress_dir(read.get(PROGRESS_DIR), read.get("LINK_FILE") or read.get("EPOCH_FILE"))


def _save_within_s(read: Environment) -> float:
    """Return SAVE_WITHIN_S; the worker must see the file by which it is asked."""
    within_s = read.seconds("SAVE_WITHIN_S", SAVE_WITHIN_S_MAX)
    if within_s > 0 and not _shared_folder(read).startswith("/"):
        read.problems.append(
            "SAVE_WITHIN_S: expected EPOCH_FILE or LINK_FILE on the Pod's emptyDir beside it, saw neither"
        )
    return within_s


def _is_first(read: Environment) -> bool:
    """Say whether this Pod is its replicatedJob's first, as far as the environment says: it sees whole objects.

    A request to save stands in the status, and no row has it. One worker that is asked is enough for its group.
    """
    return read.get("JOB_COMPLETION_INDEX") in ("", "0") and read.get("JOB_INDEX") in ("", "0")


def _address(read: Environment) -> str:
    """Return BARRIER_ADDRESS when it is an IP literal or unset."""
    text = read.get("BARRIER_ADDRESS")
    if text and not is_address(text):
        read.refuse("BARRIER_ADDRESS", "an IPv4 or IPv6 address without brackets")
    return text


def _herd(read: Environment, warnings: list[str]) -> Herd:
    """Return this Pod's place in its group. Without a size, a group of one: no Pod waits for a slot."""
    rate_per_s = read.integer("START_RATE_PER_S", 1, RATE_PER_S_MAX) or RATE_PER_S
    window_s_max = read.seconds("START_WINDOW_S", WINDOW_S_MAX, default=WINDOW_S)
    size = _read_or_warn(read, "GROUP_SIZE", 1, GROUP_SIZE_MAX, "as a group of one: no slots", warnings) or 1
    if size == 1:
        return Herd(1, rate_per_s=rate_per_s, window_s_max=window_s_max)
    from zlib import crc32  # a hash that every process agrees on; a group of one needs none

    own = crc32(read.get("POD_NAME").encode())
    offset = _read_or_warn(read, "GROUP_OFFSET", 0, GROUP_SIZE_MAX, "as unknown: a random slot", warnings)
    index = _read_or_warn(read, "JOB_COMPLETION_INDEX", 0, GROUP_SIZE_MAX, "as unknown: a random slot", warnings)
    place = own if offset is None or index is None else offset + index
    return Herd(size, place, (own & 0xFFFF) / 0x10000, rate_per_s, window_s_max)


def _read_or_warn(read: Environment, name: str, least: int, most: int, taken: str, warnings: list[str]) -> int | None:
    """Read the Pod's fields from the downward API; garbage is reported, and the agent starts without it."""
    text = read.get(name)
    if not text or is_integer(text, least, most):
        return int(text) if text else None
    warnings.append(f"{name}: expected an integer from {least} to {most}, saw {text[:80]!r}; taken {taken}")
    return None
