"""
The process around an agent: read the settings, start, and turn every ending into an exit code.

The announcement leaves before there is an event loop, so this module imports none; `agent.start.loop` is its
other half. `listen` binds the barrier's port. `agent.start.sidecar` has the way to the announcement.
"""

from __future__ import annotations

import errno
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from inplace.agent.report.log import LazyLog
from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.report.phases import PhaseFile, RestartPhases, boot_s, process_started_s
from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.settings.epoch_file import EpochFile
from inplace.agent.settings.exit_code import ExitCode, StartError
from inplace.agent.version import VERSION
from inplace.common.bare.record import record, replace
from inplace.common.bare.typed import TYPE_CHECKING, Final
from inplace.common.kube.http.credentials import Credentials, in_cluster
from inplace.common.kube.http.request import CredentialsError

if TYPE_CHECKING:
    import ssl


SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # IPv6 compiled in but switched off


class SignalledError(BaseException):
    """A signal came before there was a loop to take it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class BarrierError(StartError):
    """The barrier cannot listen where the manifest says."""

    event = "barrier_unavailable"
    code = ExitCode.BARRIER_UNAVAILABLE


@record
class Shell:
    """What an agent's process has before it has a loop.

    Args:
        context: TLS settings, None for plain HTTP.
        signals: those that came before there was a loop.
    """

    config: AgentConfig
    credentials: Credentials
    context: ssl.SSLContext | None
    log: LazyLog
    memory: EpochFile
    metrics: AgentMetrics
    phases: RestartPhases
    signals: list[int]


def run_shell(env: Mapping[str, str], start: Callable[[Shell], int]) -> int:
    """Read the settings and run `start`; return the process's exit code."""
    log = LazyLog()
    try:
        with _signals_raised() as signals:
            config, credentials, context = read_settings(env)
            log = LazyLog(config.log_format, config.log_level)
            for warning in config.warnings:
                log.warning("setting_ignored", message=warning)
            memory = EpochFile(config.epoch_file)
            metrics = AgentMetrics()
            phases = phases_of(config, metrics)
            return start(Shell(config, credentials, context, log, memory, metrics, phases, signals))
    except SignalledError as signalled:
        name, code = signal.Signals(signalled.number).name, 128 + signalled.number
        log.info("signalled", signal=name, then=f"exit {code}")
        return code
    except ConfigError as error:
        for problem in error.problems:
            log.error("setting_refused", message=problem, then=f"exit {ExitCode.CONFIG.value}; nothing was sent")
        return ExitCode.CONFIG
    except StartError as error:
        log.error(error.event, message=str(error), then=f"exit {error.code}; nothing was announced")
        return error.code
    except Exception as error:  # noqa: BLE001 - the process's boundary: kubelet wants a code
        import traceback

        log.error("bug", message=repr(error), trace=traceback.format_exc())
        return ExitCode.BUG
    finally:
        log.load()
        log.flush()


def begin(shell: Shell, **fields: object) -> Shell:
    """Log that the agent starts, and correct the environment's epoch by the one that was kept; return the new shell."""
    config = with_kept_epoch(shell.config, shell.log)
    shell.log.info("agent_started", version=VERSION, pod=config.pod_name, previous=config.previous_epoch, **fields)
    return replace(shell, config=config)


@contextmanager
def _signals_raised() -> Iterator[list[int]]:
    """Let a signal end what runs inside, with words; outside again it ends the process at once.

    Yields the list of the signals that came.
    """
    signals: list[int] = []

    def raise_signalled(number: int, _frame: FrameType | None) -> None:
        signals.append(number)
        raise SignalledError(number)

    before = [(number, signal.signal(number, raise_signalled)) for number in SIGNALS]
    try:
        yield signals
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def read_settings(env: Mapping[str, str]) -> tuple[AgentConfig, Credentials, ssl.SSLContext | None]:
    """Read everything that comes from outside.

    Raises:
        ConfigError: all that is wrong with it.
    """
    problems: list[str] = []
    try:
        config = AgentConfig.from_env(env)
    except ConfigError as error:
        problems.extend(error.problems)
    try:
        credentials = credentials_from_env(env)
        context = credentials.ssl_context()
    except CredentialsError as error:
        problems.append(str(error))
    if problems:
        raise ConfigError(tuple(problems))
    return config, credentials, context


def credentials_from_env(env: Mapping[str, str]) -> Credentials:
    """Return the kubeconfig's credentials when KUBECONFIG is set, else the Pod's service account's.

    Raises:
        CredentialsError: neither can be used (the environment is at fault).
    """
    if env.get("KUBECONFIG"):
        from inplace.common.kube.kubeconfig import read_kubeconfig

        return read_kubeconfig(env["KUBECONFIG"])
    return in_cluster(env)


def with_kept_epoch(config: AgentConfig, log: LazyLog) -> AgentConfig:
    """Let the epoch in EPOCH_FILE correct an older PREVIOUS_EPOCH; a garbled file makes it unknown.

    What this Pod announced it chose from the S before, and where its worker ran S was: both are certain.
    """
    file = EpochFile(config.epoch_file)
    ran, problem = file.recall_run()
    if problem is not None:
        log.warning("epoch_not_recalled", message=problem, then="the agent trusts the status, even a lost one")
    config = replace(config, ran_epoch=ran or 0)
    kept, problem = file.recall()
    if problem is not None:
        log.warning("epoch_not_recalled", message=problem, then="the agent reads a consistent view")
        return replace(config, previous_epoch=None, reached_epoch=ran or 0)
    known = [epoch for epoch in (config.previous_epoch, kept) if epoch is not None]
    return replace(config, previous_epoch=max(known, default=None), reached_epoch=max(ran or 0, (kept or 1) - 1))


def phases_of(config: AgentConfig, metrics: AgentMetrics) -> RestartPhases:
    """Time this process from its first moment; EPOCH_FILE's folder survives it."""
    return RestartPhases(
        metrics,
        now_s=boot_s,
        started_s=process_started_s(boot_s()),
        file=PhaseFile(f"{config.epoch_file}.phases") if config.epoch_file else None,
        annotate=config.phases_annotation,
    )


def listen(address: str, port: int) -> socket.socket:
    """Return the barrier's listening socket on one address, or on all of both families where the system has both.

    It is bound BEFORE anything is announced: an agent may announce its Pod only if its barrier can be asked, because
    kubelet's startup probe holds the worker back. Binding takes no name look-up and no thread.

    Raises:
        BarrierError: another program listens there, or this host lacks the address.
    """
    try:
        return _listen(address, port)
    except OSError as error:
        where = f"{address or 'every address'} port {port}"
        raise BarrierError(f"cannot listen on {where}: {error.strerror or error}") from error


def _listen(address: str, port: int) -> socket.socket:
    if not address and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family)
