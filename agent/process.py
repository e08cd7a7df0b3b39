"""
Read the settings, bind the barrier, announce, run the agent in a loop, and turn every ending into an exit code.

The order keeps the start short: only what the announcement needs comes before it. asyncio and the modules that use it
are imported after the announcement has left, structlog after that.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from inplace.agent.agent_file import leave_agent_file
from inplace.agent.config import AgentConfig, ConfigError
from inplace.agent.epoch_file import EpochFile, EpochMemory, NoMemory
from inplace.agent.exit_code import ExitCode
from inplace.agent.listener import BarrierError, listen
from inplace.agent.log import LazyLog
from inplace.agent.metrics import AgentMetrics
from inplace.agent.phases import PhaseFile, RestartPhases, boot_s, process_started_s
from inplace.agent.prelude import head_start
from inplace.agent.version import VERSION
from inplace.common.kube.credentials import Credentials, CredentialsError, in_cluster
from inplace.common.record import replace
from inplace.common.typed import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class _SignalledError(BaseException):
    """A signal came before there was a loop to take it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_process(env: Mapping[str, str]) -> int:
    """Run the agent; return the process's exit code."""
    log = LazyLog()
    try:
        config, credentials = read_settings(env)
        log = LazyLog(config.log_format, config.log_level)
        for warning in config.warnings:
            log.warning("setting_ignored", message=warning)
        config = with_kept_epoch(config, log)
        log.info("agent_started", version=VERSION, pod=config.pod_name, previous=config.previous_epoch)
        return _start(config, credentials, log)
    except _SignalledError as signalled:
        name, code = signal.Signals(signalled.number).name, 128 + signalled.number
        log.info("signalled", signal=name, then=f"exit {code}")
        return code
    except BarrierError as error:
        log.error("barrier_unavailable", message=str(error), then="exit; nothing was announced")
        return ExitCode.BARRIER_UNAVAILABLE
    except ConfigError as error:
        for problem in error.problems:
            log.error("setting_refused", message=problem, then=f"exit {ExitCode.CONFIG.value}; nothing was sent")
        return ExitCode.CONFIG
    except Exception as error:  # noqa: BLE001 - the process's boundary: kubelet wants a code
        import traceback

        log.error("bug", message=repr(error), trace=traceback.format_exc())
        return ExitCode.BUG
    finally:
        log.load()


def _start(config: AgentConfig, credentials: Credentials, log: LazyLog) -> int:
    """Bind, announce, then load the rest of the agent in the shadow of the server's answer, and run it.

    Raises:
        BarrierError, ConfigError: nothing was announced.
    """
    try:
        context = credentials.ssl_context()
    except CredentialsError as error:
        raise ConfigError((str(error),)) from error
    memory: EpochMemory = EpochFile(config.epoch_file) if config.epoch_file else NoMemory()
    metrics = AgentMetrics()
    phases = phases_of(config, metrics)
    with listen(config.barrier_address, config.barrier_port) as listener, _signals_raised() as signalled:
        gc.disable()  # what is imported stays; looking for garbage in it is for nothing
        ahead = head_start(config, credentials, context, memory, phases)
        problem = leave_agent_file(config.agent_file) if config.agent_file else None
        if problem is not None:
            log.warning("agent_file_not_left", message=problem, then="the worker may not find its file")
        from inplace.agent.session import Session

        gc.freeze()
        gc.enable()
        session = Session(
            config=config,
            credentials=credentials,
            context=context,
            log=log,
            memory=memory,
            metrics=metrics,
            phases=phases,
            listener=listener,
            ahead=ahead,
        )
        if signalled:  # and what that raised was lost: Python drops it in a destructor, of which imports have many
            raise _SignalledError(signalled[0])
        return session.run()


@contextmanager
def _signals_raised() -> Iterator[list[int]]:
    """Let a signal end what runs inside, with words; outside again it ends the process at once.

    Yields the list of the signals that came.
    """
    signalled: list[int] = []

    def raise_signalled(number: int, _frame: FrameType | None) -> None:
        signalled.append(number)
        raise _SignalledError(number)

    before = [(number, signal.signal(number, raise_signalled)) for number in SIGNALS]
    try:
        yield signalled
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def read_settings(env: Mapping[str, str]) -> tuple[AgentConfig, Credentials]:
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
    except CredentialsError as error:
        problems.append(str(error))
    if problems:
        raise ConfigError(tuple(problems))
    return config, credentials


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
    if not config.epoch_file:
        return config
    file = EpochFile(config.epoch_file)
    ran, problem = file.recall_run()
    if problem is not None:
        log.warning("epoch_not_recalled", message=problem, then="the agent trusts the status, even a lost one")
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
