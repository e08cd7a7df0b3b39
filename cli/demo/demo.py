"""
`inplace demo`: an embedded Kubernetes, the real controller, the real agents, and workers that are killed.

runtime=process: every container is a local process and time is real. runtime=model: the agents are real, the containers
are timed models, and time is virtual. Its delays come from simulator/cluster/timings.py and are not measurements.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

from inplace.cli.demo.adaptation import DemoError
from inplace.cli.demo.comparison import THIS, compare
from inplace.cli.demo.group import DemoGroup, note
from inplace.cli.demo.manifest import EXAMPLE, DemoManifest, check_accepted, read_demo_manifest
from inplace.cli.demo.view import DemoView, Scene
from inplace.cli.manifests.documents import STANDARD_INPUT
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError, Invalid
from inplace.common.kube.resources import KubeObject
from inplace.common.wire.mode import Mode
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import VIRTUAL_EPOCH_S, Cluster
from inplace.simulator.profile import ProfileError, read_profile

TRAIN_S = 3.0  # the workers train this long before one is killed, so that there is a checkpoint to come back to
STRIKES_MAX = 3  # a worker that ended a moment before is seen to restart within TRAIN_S
STALL_AFTER_S = 4.0  # twenty of the example's steps; a busy machine may delay some


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The command's options, see `cli.local_commands.demo`.

    Args:
        failures: None is one, or none where workers are stopped.
        compare: None is to compare where it is possible.
        jobset: its name, where the file has several.
        spares: so many Pods more than train.
        lose_pod: delete a worker's Pod after the other faults.
    """

    pods: int | None
    failures: int | None
    runtime: Literal["process", "model"]
    mode: Mode | None
    file: Path | None
    seed: int
    json: bool
    keep: bool
    profile: str | None = None
    stall: int = 0
    venv: Path | None = None
    yes: bool = False
    compare: bool | None = None
    jobset: str | None = None
    spares: int = 0
    lose_pod: bool = False

    @property
    def faults(self) -> list[signal.Signals | None]:
        """Return the signal of each fault, in order; None deletes a Pod."""
        killed = self.failures if self.failures is not None else int(not (self.stall or self.lose_pod))
        return [signal.SIGKILL] * killed + [signal.SIGSTOP] * self.stall + [None] * self.lose_pod

    @property
    def is_comparable(self) -> bool:
        """Say whether the demo runs its own example as it is, kills a worker and then ends."""
        is_own = self.file is None and self.mode is None and self.runtime == "process"
        return is_own and signal.SIGKILL in self.faults and not self.stall and not self.keep and not self.spares

    @property
    def compares(self) -> bool:
        """Say whether the demo also runs the alternatives to its restart."""
        return self.is_comparable if self.compare is None else self.compare

    @property
    def is_virtual(self) -> bool:
        """Say whether time is virtual; with `keep` a person watches, so it is not."""
        return self.runtime == "model" and not self.keep


def run_demo(options: DemoOptions) -> int:
    """Run the demo; return the exit code."""
    try:
        limit_s = STALL_AFTER_S if options.stall else None
        manifest = read_demo_manifest(
            options.file,
            options.pods,
            len(options.faults),
            options.mode,
            limit_s,
            models=options.runtime == "model",
            name=options.jobset,
            spares=options.spares,
        )
        _check(options, manifest)
        if options.file is not None:
            check_accepted(manifest, options.file)
        if options.runtime == "process":
            ask_consent(options.file, yes=options.yes)
        if options.is_virtual:
            return virtual_time.run(_demo(options, manifest, LoopClock(VIRTUAL_EPOCH_S), []))
        programs = _venv_programs(options)
        return asyncio.run(_until_signal(_demo(options, manifest, LoopClock(), programs)))
    except (DemoError, ProfileError) as error:
        print(f"inplace demo: {error}", file=sys.stderr)
        return 1
    except Invalid as error:  # a node has the labels and taints that the Pods ask for
        print(f"inplace demo: expected Pods that a node can be made for, saw: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # under virtual time, where nothing but memory has to be given back
        return 128 + signal.SIGINT


def _check(options: DemoOptions, manifest: DemoManifest) -> None:
    """Refuse options that do not fit the runtime or each other, and --stall without a watchdog."""
    if options.compares and not options.is_comparable:
        raise DemoError(
            "--compare: expected the demo's own example with a worker to kill; leave out --file, --mode, --runtime, "
            "--stall, --keep and --failures 0"
        )
    if options.stall and not manifest.mode.is_guarded:
        raise DemoError(
            "--stall: expected --mode process, containers or supervisor, saw a worker without a guard: no program sees "
            "its progress"
        )
    if options.stall and options.runtime == "model":
        raise DemoError("--stall: expected --runtime process (a modelled worker cannot be stopped), saw model")
    if options.profile is not None and options.runtime == "process":
        raise DemoError("--profile: expected --runtime model, saw process: real processes take real time")


def ask_consent(file: Path | None, *, yes: bool) -> None:
    """Say that a manifest's commands run on this machine, and ask; a file of ours and `yes` need no answer.

    The demo's containers are plain processes of its user.

    Raises:
        DemoError: the answer was no, or there is nobody to ask.
    """
    if file is None:
        return
    note(f"the commands of {file} run on this machine, as your processes, in no container")
    if yes or _is_ours(file):
        return
    instead = "; --runtime model runs none of them"
    if str(file) == STANDARD_INPUT or not sys.stdin.isatty():
        raise DemoError(f"expected --yes, for there is no terminal to ask on{instead}")
    print("inplace demo: run them? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DemoError(f"expected yes, saw another answer; nothing was started{instead}")


def _is_ours(file: Path) -> bool:
    """Say whether a file lies in the folder of the examples that come with inplace."""
    return str(file) != STANDARD_INPUT and file.resolve().parent == EXAMPLE.parent.resolve()


def _venv_programs(options: DemoOptions) -> list[Path]:
    """Return the folder of the programs of the workers' virtual environment; none for the demo's own.

    Raises:
        DemoError: there is none.
    """
    if options.venv is None:
        return []
    programs = options.venv.absolute() / "bin"
    if not (programs / "python3").exists():
        raise DemoError(
            f"--venv (or VIRTUAL_ENV) {options.venv}: expected a virtual environment, saw no bin/python3 there"
        )
    return [programs]


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
        nodes=manifest.nodes,
        runtime=options.runtime,
        seed=options.seed,
        clock=clock,
        controller="process" if options.runtime == "process" else "coroutine",
        serve_http=options.keep,
        programs=programs,
        adds_agent=True,
        timings=None if options.profile is None else read_profile(options.profile),
    )
    async with cluster:
        group = DemoGroup(cluster, manifest)
        view = DemoView(Scene(THIS, group), runtime=options.runtime, seed=options.seed, json=options.json)
        if options.lose_pod:
            view.fault = "a worker was killed, or its Pod deleted" if any(options.faults) else "a Pod was deleted"
        export = f"export KUBECONFIG={cluster.kubeconfig()}" if options.keep else ""
        if export:
            view.say(export)
        async with nullcontext() if options.is_virtual else view.live():
            for sentence in [*manifest.notes, *await _apply(cluster, manifest)]:
                note(sentence)
            await group.complete(-1)
            await strike_workers(group, Random(options.seed), options.faults)
        view.show_restarts()
        if options.compares:
            view.compared.append(group.record.row(THIS, group.timeline.current.seconds))
            group.timeline.close()
            async with view.live():
                await compare(cluster, manifest, view, options.seed)
        view.show_end()
        if options.keep:
            view.say(f"{export}\nThe cluster stays up until Ctrl-C.")
            await cluster.until(lambda: False, timeout_s=None)
    return 0


async def _apply(cluster: Cluster, manifest: DemoManifest) -> list[str]:
    """Apply the manifest, and first what a cluster has for it: its namespace, and the PriorityClasses that it names.

    Returns:
        A sentence for each other object that has no place here.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": manifest.namespace}}
    left_out = []
    for document in [namespace, *_named_classes(manifest.jobset), *manifest.documents]:
        try:
            await cluster.apply([document])
        except (ApiError, LookupError, KeyError, TypeError, AttributeError) as error:
            if document is manifest.jobset:
                raise DemoError(f"the API server refused the manifest: {error}") from error
            what = f"{document.get('kind')} {(document.get('metadata') or {}).get('name', '')}".strip()
            left_out.append(f"{what}: the demo goes on without it ({type(error).__name__}: {error})")
    return left_out


def _named_classes(jobset: KubeObject) -> Iterator[KubeObject]:
    """Yield the PriorityClasses of a JobSet's Pods, all with the priority that Pods without one have."""
    for job in jobset["spec"]["replicatedJobs"]:
        with suppress(KeyError, TypeError):
            name = job["template"]["spec"]["template"]["spec"]["priorityClassName"]
            yield {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": 0,
            }


async def strike_workers(group: DemoGroup, rng: Random, faults: Sequence[signal.Signals | None]) -> None:
    """Kill or stop one random worker after the other, each time after the group has trained for a while.

    Raises:
        DemoError: no worker could be struck, or the group does not train again.
    """
    for fault in faults:
        before = await _strike(group, rng, fault)
        await group.complete(before)


async def _strike(group: DemoGroup, rng: Random, fault: signal.Signals | None) -> int:
    """Strike while the group trains, and return the number of the restart before: workers may end by themselves."""
    found: LookupError | None = None
    for _ in range(STRIKES_MAX):
        await group.cluster.clock.sleep(TRAIN_S)
        await group.complete(group.timeline.current.number - 1)
        before = group.timeline.current.number
        try:
            await group.strike(rng, fault)
        except LookupError as error:  # it ended a moment ago
            found = error
            continue
        return before
    raise DemoError(f"no worker could be killed or stopped: {found}") from found
