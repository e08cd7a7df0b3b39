"""inplace-controller: flags, logs, signals, exit codes; `runtime.Controller` does the rest."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import structlog
from structlog.typing import EventDict

from inplace.common.injection.pod import InjectOptions
from inplace.common.jobset.node_taints import TaintLimits, read_limits
from inplace.common.jobset.settings import START_WINDOW_S_MAX
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.credentials import account_namespace
from inplace.common.kube.http.request import CredentialsError
from inplace.common.kube.timestamps import precise_time
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.api.credentials import load_credentials
from inplace.controller.api.transport import open_transport
from inplace.controller.config import ControllerConfig
from inplace.controller.metrics import VERSION
from inplace.controller.runtime import Controller

DEFAULT_NAMESPACE = "inplace-system"
_SIGNAL_BASE = 128
PROBE_PORT = 8081
METRICS_PORT = 8080  # both as controller-runtime's programs have them
PORT_MAX = 65535
IMAGE_CHARACTERS_MAX = 1024
GC_THRESHOLDS = (50_000, 20, 1_000_000)  # objects, and twice collections; Python has (700, 10, 10)
FULL_COLLECTION_EVERY_S = 60.0  # takes 0.1 s beside 100,000 Pods
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from outside the Pod


class ExitCode(IntEnum):
    """How the process ends; 128 + n for signal n."""

    DONE = 0
    CRASHED = 1
    USAGE = 2  # argparse's
    CONFIGURATION = 3


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the controller until a signal ends it."""
    options = _parser().parse_args(arguments)
    configure_logs(options.log_level, options.log_format)
    gc.freeze()  # what is imported stays, and need not be looked through
    gc.set_threshold(*GC_THRESHOLDS)
    sys.exit(asyncio.run(_run(options)))


def _collect_all_garbage(loop: asyncio.AbstractEventLoop) -> None:
    """Collect garbage of every age, now and again and again, each time in a turn of the loop that does nothing else.

    By Python's thresholds the plan for 10,000 Jobs, 10,000 objects that are gone a moment later, paid for it each time.
    """
    gc.collect()
    loop.call_later(FULL_COLLECTION_EVERY_S, _collect_all_garbage, loop)


async def _run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    log = structlog.get_logger("controller")
    clock = LoopClock()
    try:
        credentials = await load_credentials(options.kubeconfig, clock=clock)
        async with open_transport(credentials) as transport:
            log.info("controller_starting", server=credentials.host, namespace=options.namespace or "(all)")
            return await _run_until_signal(Controller(transport, clock=clock, config=_config(options), log=log))
    except CredentialsError as error:
        log.error("setting_refused", message=str(error))
        return ExitCode.CONFIGURATION


async def _run_until_signal(controller: Controller) -> int:
    """Run; at a signal finish the write in flight and release the Lease, and say which signal it was."""
    log = structlog.get_logger("controller")
    received: list[int] = []
    failed = False

    def stop(number: int) -> None:
        log.info("signalled", signal=signal.Signals(number).name)
        received.append(number)
        controller.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    loop.call_later(FULL_COLLECTION_EVERY_S, _collect_all_garbage, loop)
    try:
        await controller.run()
    except* OSError as group:
        log.error("port_unavailable", message=str(group.exceptions[0]))
        failed = True
    if failed:
        return ExitCode.CONFIGURATION
    return _SIGNAL_BASE + received[0] if received else ExitCode.DONE


def _config(options: argparse.Namespace) -> ControllerConfig:
    return ControllerConfig(
        namespace=options.namespace or None,
        leader_elect=options.leader_elect,
        identity=f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}",
        lease_namespace=options.leader_elect_namespace,
        workers=options.workers,
        probe_address=options.probe_bind_address,
        metrics_address=options.metrics_bind_address,
        is_beside=options.beside,
        job_settings=JobSettings(
            options.start_window, _agent(options), options.agent_opt_in, by_version=options.agent_restart_rule == "auto"
        ),
        taint_limits=options.taint_bad_nodes,
        on_cluster=True,
    )


def _agent(options: argparse.Namespace) -> InjectOptions | None:
    """Return how the agent is added to Jobs of JobSets that restart in place; None: it is not."""
    if options.agent_image is None:
        return None
    has_rules = options.agent_restart_rule != "off"
    return InjectOptions(agent_image=options.agent_image, copies_image=options.agent_copy, restart_rule=has_rules)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="inplace-controller",
        description="The JobSet controller that restarts groups in place.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"inplace-controller {VERSION}")
    add("--kubeconfig", metavar="FILE", help="default: the Pod's own account, then $KUBECONFIG, ~/.kube/config")
    add("--namespace", default="", metavar="NAME", help="reconcile JobSets of this namespace only (default: all)")
    add(
        "--beside",
        action="store_true",
        help="another JobSet controller runs in this cluster: take only JobSets whose spec.managedBy is "
        + wire.MANAGED_BY_US,
    )
    add(
        "--start-window",
        type=_window_s,
        metavar="SECONDS",
        help="spread the starts of large groups over so long at most, 0 to "
        f"{START_WINDOW_S_MAX}; 0 beside deploy/apf, which queues them (default: the agents' own 3)",
    )
    add(
        "--agent-image",
        type=_image,
        metavar="IMAGE",
        help="add the agent to JobSets that restart in place and have none (default: add none)",
    )
    add(
        "--agent-copy",
        action="store_true",
        help="an init container copies the agent's programs into the Pod: for nodes without image volumes, which "
        "Kubernetes has since 1.35; below an older API server it is done without this flag",
    )
    add(
        "--agent-restart-rule",
        choices=("auto", "on", "off"),
        default="auto",
        help="let kubelet start the containers of a Pod anew by rules when its worker fails again and again; auto: as "
        "the API server's version has them, which is Kubernetes 1.36 (default: auto)",
    )
    add(
        "--agent-opt-in",
        action="store_true",
        help=f'add it only to JobSets with the annotation {wire.AGENT}: "{wire.AGENT_ON}", and to those of namespaces '
        f'with this label that say nothing (default: to all but those with the annotation "{wire.AGENT_OFF}")',
    )
    add(
        "--taint-bad-nodes",
        type=_taint_limits,
        metavar="NODES/SECONDS[/NAMESPACE...]",
        help="taint a bad node, so that Kueue's Topology Aware Scheduling moves its Pod: so many nodes at the same "
        "time at most (half of them for one namespace), each for so long at most; 0 taints none. JobSets of two "
        "namespaces must find the node bad, or those of one of the trusted namespaces that are named here. It needs "
        "the right of deploy/overlays/taints (default: 0)",
    )
    add(
        "--workers",
        type=_positive,
        default=4,
        metavar="N",
        help="JobSets decided on at the same time, and JobSets of one namespace written for (default: 4)",
    )
    add(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="use leader election; without it only one controller may run (default: on)",
    )
    add(
        "--leader-elect-namespace",
        default=os.environ.get("POD_NAMESPACE", account_namespace(os.environ) or DEFAULT_NAMESPACE),
        metavar="NAME",
        help="namespace of the Lease (default: the Pod's namespace)",
    )
    add(
        "--probe-bind-address",
        type=_address,
        default=(ANY_ADDRESS, PROBE_PORT),
        metavar="HOST:PORT",
        help=f"for /healthz and /readyz (default: every address, port {PROBE_PORT})",
    )
    add(
        "--metrics-bind-address",
        type=_address,
        default=(ANY_ADDRESS, METRICS_PORT),
        metavar="HOST:PORT",
        help=f"for /metrics (default: every address, port {METRICS_PORT}); 127.0.0.1:{METRICS_PORT} behind a proxy",
    )
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    add("--log-format", default="json", choices=("json", "text"))
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, saw {text!r}")
    return int(text)


def _image(text: str) -> str:
    if not text or len(text) > IMAGE_CHARACTERS_MAX or not text.isprintable() or " " in text:
        raise argparse.ArgumentTypeError(
            f"expected the reference of an image, of at most {IMAGE_CHARACTERS_MAX} characters, saw {text!r:.80}"
        )
    return text


def _taint_limits(text: str) -> TaintLimits | None:
    try:
        return read_limits(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _window_s(text: str) -> int:
    if not text.isdigit() or len(text) > 3 or int(text) > START_WINDOW_S_MAX:
        raise argparse.ArgumentTypeError(f"expected whole seconds from 0 to {START_WINDOW_S_MAX}, saw {text!r}")
    return int(text)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT with a port of at most {PORT_MAX}, saw {text!r}")
    return host.strip("[]") or ANY_ADDRESS, int(port)


def configure_logs(level: str, form: str) -> None:
    """Configure structlog for this process.

    Args:
        level: debug, info, warning or error.
        form: json or text.
    """
    renderer: Any = structlog.processors.JSONRenderer()
    if form == "text":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[_begin, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _begin(_logger: Any, level: str, fields: EventDict) -> EventDict:
    """Begin a line as the agent's lines begin: when, how urgent, what."""
    return {"timestamp": precise_time(time.time()), "level": level, "event": fields.pop("event"), **fields}


if __name__ == "__main__":
    main()
