"""The commands that need no cluster, unless one is named: their options, see cli/main.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from inplace.cli.options import ContextOption, JsonOption, KubeconfigOption
from inplace.common.wire.mode import Mode


def demo(
    pods: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Pods of the group [default: 8, or those of --file].")
    ] = None,
    failures: Annotated[
        int | None,
        typer.Option(min=0, max=1_000, help="Workers to kill, one after the other [default: 1, or none with --stall]."),
    ] = None,
    stall: Annotated[int, typer.Option(min=0, max=1_000, help="Workers to stop with SIGSTOP after the kills.")] = 0,
    spares: Annotated[
        int, typer.Option(min=0, max=100, help="Pods that wait to take the place of one that is lost.")
    ] = 0,
    lose_pod: Annotated[bool, typer.Option("--lose-pod", help="Delete a worker's Pod instead of killing one.")] = False,
    runtime: Annotated[
        Literal["process", "model"],
        typer.Option(help="process: real local processes; model: real agents, modelled containers, virtual time."),
    ] = "process",
    mode: Annotated[
        Literal["process", "containers", "supervisor"] | None,
        typer.Option(
            help="process: the guard restarts the worker alone; containers: kubelet restarts all containers of the "
            "Pod; supervisor: as process, with guard and agent in one container [default: process, or that of --file]."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="Manifest with one JobSet. With --runtime process its commands run on this machine."
        ),
    ] = None,
    jobset: Annotated[
        str | None, typer.Option(metavar="NAME", help="The JobSet of --file to run, where it has several.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before the commands of --file run on this machine.")
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Selects the workers that die; with --runtime model, all random choices.")
    ] = 1,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the cluster running and print its KUBECONFIG.")] = False,
    compare: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="At the end, restart the same group in three other ways, and compare [default: --compare; "
            "--no-compare with --file, --mode, --stall, --spares, --lose-pod, --keep or --runtime model].",
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="With --runtime model: the cluster's delays, a name or your own .toml file.")
    ] = None,
    venv: Annotated[
        Path | None,
        typer.Option(
            envvar="VIRTUAL_ENV", help="With --runtime process: where the workers' python3 and its packages are."
        ),
    ] = None,
) -> None:
    """Run a training group without a cluster.

    Starts an embedded Kubernetes, kills a worker, and shows how the group restarts in place. Then it restarts the same
    group with clean containers, in upstream's shape, and with new Pods, and compares the four. Containers are local
    processes: a manifest's commands run on this machine, unless --runtime is model.
    """
    from inplace.cli.demo.demo import DemoOptions, run_demo

    chosen = None if mode is None else Mode(mode)
    options = DemoOptions(
        pods,
        failures,
        runtime,
        chosen,
        file,
        seed,
        json_output,
        keep,
        profile,
        stall,
        venv,
        yes,
        compare,
        jobset,
        spares,
        lose_pod,
    )
    raise typer.Exit(run_demo(options))


def inject(
    file: Annotated[str, typer.Option("--file", "-f", help="Path of the manifest; - is standard input.")],
    mode: Annotated[
        Literal["sidecar", "supervisor"],
        typer.Option(help="Where the agent runs: beside the worker's container, or in it."),
    ] = "sidecar",
    agent_image: Annotated[str, typer.Option(help="Image that contains the agent.")] = "inplace-agent",
    copy_image: Annotated[
        bool,
        typer.Option(
            "--copy-image",
            help="An init container copies the agent's programs into the Pod: for nodes without image volumes, which "
            "Kubernetes has since 1.35.",
        ),
    ] = False,
    barrier: Annotated[
        Literal["guard", "probe"],
        typer.Option(
            help="Sidecar mode: how the worker waits for its group. guard: below a parent process, which also reports "
            "its exit at once. probe: by the agent's startup probe."
        ),
    ] = "guard",
    restart_rule: Annotated[
        Literal["on", "off"],
        typer.Option(
            help="Kubelet starts all containers again when a worker keeps failing, or a guard dies. off: no "
            "restartPolicyRules, for Kubernetes before 1.36; a sidecar then needs a guard and depth process."
        ),
    ] = "on",
    worker: Annotated[
        list[str] | None,
        typer.Option("--worker", help="Name of the worker's container, if there are several containers."),
    ] = None,
    rbac: Annotated[
        Literal["both", "none", "only"],
        typer.Option(help="Agents' account and rights: print them before the manifest (both), not at all, or alone."),
    ] = "both",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of JobSets without one.")] = "default",
    output: Annotated[Literal["yaml", "json"], typer.Option("--output", "-o", help="Output format.")] = "yaml",
    diff: Annotated[bool, typer.Option("--diff", help="Print the difference instead of the manifest.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the difference on stderr.")] = False,
) -> None:
    """Add the agent to a JobSet manifest.

    Prints the manifest with all that in-place restart needs. Needs no cluster. Settings are annotations of the JobSet,
    and variables of the worker's container.
    """
    from inplace.cli.inject.inject import run_inject
    from inplace.common.injection.pod import InjectOptions

    options = InjectOptions(
        mode=mode,
        agent_image=agent_image,
        copies_image=copy_image,
        namespace=namespace,
        workers=tuple(worker or ()),
        barrier=barrier,
        restart_rule=restart_rule == "on",
    )
    raise typer.Exit(run_inject(file, options, output=output, diff=diff, quiet=quiet, rbac=rbac))


def lint(
    file: Annotated[str, typer.Option("--file", "-f", help="Path of the manifest; - is standard input.")],
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="Output format.")] = "text",
    as_json: JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Check the cluster too; --context and --kubeconfig imply it.")
    ] = False,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of JobSets without one.")] = "default",
) -> None:
    """Check a JobSet manifest.

    Says what keeps the JobSet from restarting in place, and in sentences what it does about failures.
    Exit codes: 0 no errors, 1 errors, 2 the file or the cluster cannot be read.
    """
    from inplace.cli.lint.lint import LintOptions, run_lint

    asked = cluster or context is not None or kubeconfig is not None
    raise typer.Exit(
        run_lint(file, LintOptions("json" if as_json else output, strict, asked, context, kubeconfig, namespace))
    )
