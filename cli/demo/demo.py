"""
`inplace demo`: an embedded Kubernetes, the real controller, the real agents, and workers that are killed.

runtime=process: every container is a local process and time is real. runtime=model: the agents are real, the containers
are timed models, and time is virtual. Its delays come from simulator/cluster/timings.py and are not measurements.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

from inplace.cli.agent_pyz import BuildError, program_folder
from inplace.cli.demo.manifest import DemoManifest, ManifestError, read_demo_manifest
from inplace.cli.demo.view import DemoView
from inplace.common import wire
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError
from inplace.simulator.apiserver import LogRequest
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import VIRTUAL_EPOCH_S, Cluster
from inplace.simulator.cluster.timeline import Timeline
from inplace.simulator.profile import ProfileError, read_profile

PODS_PER_NODE = 8  # as on an accelerator host
TRAIN_S = 3.0  # the workers train this long before one is killed, so that there is a checkpoint to come back to
STALL_AFTER_S = 4.0  # twenty of the example's steps; a busy machine may delay some
GROUP_S_MAX = 180.0  # a start or a restart that takes longer hangs
LOG_LINES_MAX = 200  # of a worker that failed: a traceback, and what the agent beside it says
WORDS_MAX = 15  # of these that are shown
AGENTS_LINES = ("{", "inplace-agent guard:")  # how the lines of an agent and of a guard begin


class DemoError(Exception):
    """What the demo shows did not happen; the message says what was expected and what was seen."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The command's options, see `cli.main.demo`; failures None is one, or none where workers are stopped."""

    pods: int | None
    failures: int | None
    runtime: Literal["process", "model"]
    mode: Literal["sidecar", "guarded", "process", "supervisor"] | None
    file: Path | None
    seed: int
    json: bool
    keep: bool
    agent_pyz: bool = False
    profile: str | None = None
    stall: int = 0
    venv: Path | None = None

    @property
    def faults(self) -> list[signal.Signals]:
        """Return the signal of each fault, in order."""
        killed = self.failures if self.failures is not None else int(not self.stall)
        return [signal.SIGKILL] * killed + [signal.SIGSTOP] * self.stall

    @property
    def is_virtual(self) -> bool:
        """Say whether time is virtual; with `keep` a person watches, so it is not."""
        return self.runtime == "model" and not self.keep


def run_demo(options: DemoOptions) -> int:
    """Run the demo; return the exit code."""
    try:
        mode = options.mode
        if options.stall and mode is None and options.file is None:
            mode = "guarded"
        limit_s = STALL_AFTER_S if options.stall else None
        manifest = read_demo_manifest(options.file, options.pods, len(options.faults), mode, limit_s)
        _check_stall(options, manifest)
        if manifest.mode in ("process", "supervisor") and options.runtime == "model":
            raise DemoError(
                f"expected --runtime process for {manifest.mode} mode (a modelled worker is no process), saw model"
            )
        if options.agent_pyz and options.runtime != "process":
            raise DemoError(f"--agent-pyz: expected --runtime process, saw {options.runtime}: a model runs no program")
        if options.profile is not None and options.runtime != "model":
            raise DemoError(
                f"--profile: expected --runtime model, saw {options.runtime}: real processes take real time"
            )
        if options.is_virtual:
            return virtual_time.run(_demo(options, manifest, LoopClock(VIRTUAL_EPOCH_S), []))
        with program_folder() if options.agent_pyz else nullcontext() as agent_programs:
            programs = [folder for folder in (agent_programs, _venv_programs(options)) if folder is not None]
            return asyncio.run(_until_signal(_demo(options, manifest, LoopClock(), programs)))
    except (ManifestError, DemoError, BuildError, ProfileError) as error:
        print(f"inplace demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # under virtual time, where nothing but memory has to be given back
        return 128 + signal.SIGINT


def _check_stall(options: DemoOptions, manifest: DemoManifest) -> None:
    """Refuse to stop workers where nobody would find them, or there is no process to stop."""
    if options.stall and manifest.mode == "sidecar":
        raise DemoError(
            "--stall: expected --mode guarded, process or supervisor (without a guard nobody sees its progress), "
            "saw sidecar"
        )
    if options.stall and options.runtime == "model":
        raise DemoError("--stall: expected --runtime process (a modelled worker cannot be stopped), saw model")


def _venv_programs(options: DemoOptions) -> Path | None:
    """Return the folder of the programs of the workers' virtual environment; None for the demo's own.

    Raises:
        DemoError: there is none.
    """
    if options.venv is None:
        return None
    programs = options.venv.absolute() / "bin"
    if not (programs / "python3").exists():
        raise DemoError(
            f"--venv (or VIRTUAL_ENV) {options.venv}: expected a virtual environment, saw no bin/python3 there"
        )
    return programs


async def _until_signal(demo: Coroutine[Any, Any, int]) -> int:
    """Run the demo until it ends, or until a signal ends it in good order."""
    task, received = asyncio.ensure_future(demo), list[int]()

    def stop(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        print("inplace demo: interrupted; every process was ended", file=sys.stderr)
        return 128 + received[0]


async def _demo(options: DemoOptions, manifest: DemoManifest, clock: LoopClock, programs: Sequence[Path]) -> int:
    """Start a cluster, apply the manifest, kill workers, and report."""
    cluster = Cluster(
        nodes=-(-manifest.pods // PODS_PER_NODE) + 1,  # one to spare
        pods_per_node=PODS_PER_NODE,
        runtime=options.runtime,
        seed=options.seed,
        clock=clock,
        controller="process" if options.runtime == "process" else "coroutine",
        serve_http=options.keep,
        programs=programs,
        timings=None if options.profile is None else read_profile(options.profile).timings(),
    )
    async with cluster:
        timeline = Timeline(
            cluster.server,
            cluster.observers,
            clock=clock,
            jobset=manifest.name,
            namespace=manifest.namespace,
            agent=manifest.agent,
            worker=manifest.worker,
        )
        view = DemoView(cluster, manifest, timeline, runtime=options.runtime, seed=options.seed, json=options.json)
        if options.keep:
            view.say(f"export KUBECONFIG={cluster.kubeconfig()}")
        async with nullcontext() if options.is_virtual else view.live():
            await _apply(cluster, manifest)
            await _complete(cluster, manifest, timeline, 0)
            await _strike_workers(cluster, manifest, timeline, options)
        view.show_result()
        if options.keep:
            view.say("The cluster stays up until Ctrl-C.")
            await cluster.until(lambda: False, timeout_s=None)
    return 0


async def _apply(cluster: Cluster, manifest: DemoManifest) -> None:
    """Apply the manifest, its namespace first."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": manifest.namespace}}
    try:
        await cluster.apply([namespace, *manifest.documents])
    except (ApiError, LookupError) as error:
        raise DemoError(f"the API server refused the manifest: {error}") from error


async def _strike_workers(cluster: Cluster, manifest: DemoManifest, timeline: Timeline, options: DemoOptions) -> None:
    """Kill or stop one random worker after the other, each time after the group has trained for a while."""
    rng = Random(options.seed)
    for number, fault in enumerate(options.faults, 1):
        await cluster.clock.sleep(TRAIN_S)
        names = sorted(pod["metadata"]["name"] for pod in cluster.pods(manifest.namespace))
        try:
            supervised = manifest.mode != "sidecar"  # the worker has a parent in its container
            cluster.kill_worker(
                manifest.namespace,
                rng.choice(names),
                signal_number=fault,
                container=manifest.worker,
                supervised=supervised,
            )
        except LookupError as error:
            raise DemoError(f"no worker could be killed or stopped: {error}") from error
        await _complete(cluster, manifest, timeline, number)


async def _complete(cluster: Cluster, manifest: DemoManifest, timeline: Timeline, number: int) -> None:
    """Wait until every worker has stepped in restart `number`; 0 is the first start."""

    def ended() -> bool:
        return bool((cluster.jobset(manifest.name, manifest.namespace).get("status") or {}).get("terminalState"))

    def complete() -> bool:
        return len(timeline.restarts) > number and timeline.restarts[number].complete

    try:
        await cluster.until(lambda: complete() or ended(), timeout_s=GROUP_S_MAX)
    except TimeoutError:
        reached = [words for words, at_s in timeline.current.moments() if at_s is not None]
        raise DemoError(
            f"expected every worker to print a line that begins with 'step=' within {GROUP_S_MAX:g} s of "
            f"{'restart ' + str(number) if number else 'the start'}, saw it get as far as: {', '.join(reached) or '-'}"
            f"{await _last_words(cluster, manifest)}"
        ) from None
    if not complete():
        words = await _last_words(cluster, manifest)  # BEFORE the Pods are gone
        status = cluster.jobset(manifest.name, manifest.namespace)["status"]
        reasons = [f"{c['type']} {c['reason']}: {c['message']}" for c in status["conditions"] if c["status"] == "True"]
        raise DemoError(f"expected the JobSet to train on, saw that it ended: {'; '.join(reasons)}{words}")


async def _last_words(cluster: Cluster, manifest: DemoManifest) -> str:
    """Return what a worker printed last, the one that failed first if it is known; "" if no worker printed anything."""
    status = cluster.jobset(manifest.name, manifest.namespace).get("status") or {}
    failed = ((status.get(wire.LAST_GROUP_RESTART) or {}).get("firstFailure") or {}).get("pod")
    for pod in sorted(cluster.pods(manifest.namespace), key=lambda pod: pod["metadata"]["name"] != failed):
        for previous in (False, True):  # a container that was started again may have printed nothing yet
            request = LogRequest(manifest.worker, previous=previous, tail_lines=LOG_LINES_MAX)
            log = b"".join([piece async for piece in cluster.read_log(pod, request)]).decode("utf-8", "replace")
            lines = [line for line in log.splitlines() if not line.startswith(AGENTS_LINES)]
            if lines:
                shown = "".join(f"\n  {line}" for line in lines[-WORDS_MAX:])
                return f"\nThe last lines of the worker of Pod {pod['metadata']['name']}:{shown}"
    return ""
