"""The commands that need no cluster, unless one is named: their options, see cli/main.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from inplace.cli.options import ContextOption, JsonOption, KubeconfigOption, OutputOption, format_of


def cost(
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the group.")],
    price: Annotated[float, typer.Option(min=0, help="Price of one node per hour.")],
    failures_per_day: Annotated[float, typer.Option(min=0, help="Failures that restart the group, per day.")],
    days: Annotated[float, typer.Option(min=0, help="Days to add up.")] = 30,
    recreate_seconds: Annotated[
        float, typer.Option(min=0, help="Duration of a restart that recreates every Pod.")
    ] = 130,
    in_place_seconds: Annotated[float, typer.Option(min=0, help="Duration of a restart in place.")] = 10,
    output: OutputOption = "table",
    as_json: JsonOption = False,
) -> None:
    """Compute what restarts cost.

    Compares recreating every Pod with restarting in place.
    """
    from inplace.cli.cost import Fleet, run_cost

    fleet = Fleet(nodes, price, failures_per_day, days)
    raise typer.Exit(
        run_cost(fleet, recreate_s=recreate_seconds, in_place_s=in_place_seconds, output=format_of(output, as_json))
    )


def demo(
    pods: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Pods of the group [default: 8, or those of --file].")
    ] = None,
    failures: Annotated[
        int | None,
        typer.Option(min=0, max=1_000, help="Workers to kill, one after the other [default: 1, or none with --stall]."),
    ] = None,
    stall: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000,
            help="Workers to stop with SIGSTOP after the kills.",
        ),
    ] = 0,
    runtime: Annotated[
        Literal["process", "model"],
        typer.Option(help="process: real local processes; model: real agents, modelled containers, virtual time."),
    ] = "process",
    mode: Annotated[
        Literal["guarded", "process", "supervisor"] | None,
        typer.Option(
            help="process: a guard restarts the worker alone; guarded: kubelet restarts all containers of the Pod; "
            "supervisor: the agent itself restarts the worker [default: process, or that of --file]."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            help="Manifest with one JobSet. With --runtime process its commands run on this machine.",
        ),
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
            "--no-compare with --file, --mode, --stall, --keep or --runtime model].",
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

    options = DemoOptions(
        pods, failures, runtime, mode, file, seed, json_output, keep, profile, stall, venv, yes, compare
    )
    raise typer.Exit(run_demo(options))


def inject(
    file: Annotated[str, typer.Option("--file", "-f", help="Path of the manifest; - is standard input.")],
    mode: Annotated[
        Literal["sidecar", "supervisor"], typer.Option(help="How the agent runs: beside the worker, or as its parent.")
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
    agent_resources: Annotated[
        str,
        typer.Option(
            metavar="NAME=AMOUNT,...",
            help="CPU and memory of the agent's own container, such as cpu=200m,memory=96Mi "
            "[default: 10m and 32Mi, and limits where the Pod's containers have them].",
        ),
    ] = "",
    barrier: Annotated[
        Literal["guard", "probe"],
        typer.Option(
            help="Sidecar mode: how the worker waits for its group. guard: below a parent process, which also reports "
            "its exit at once. probe: by the agent's startup probe."
        ),
    ] = "guard",
    restart: Annotated[
        Literal["containers", "process"] | None,
        typer.Option(
            help="With guards: the scope of a group restart in a Pod. process: the guard restarts the worker's process "
            "(the default). containers: kubelet restarts all containers. Sets the annotation inplace.dev/restart."
        ),
    ] = None,
    restart_rule: Annotated[
        Literal["on", "off"],
        typer.Option(
            help="Supervisor mode: kubelet recreates the container when its worker fails again and again. off: no "
            "restartPolicyRules, for Kubernetes before 1.35."
        ),
    ] = "on",
    before_announce: Annotated[
        str, typer.Option(help="A check that each Pod runs before it joins an epoch; if it fails, the Pod is replaced.")
    ] = "",
    before_announce_timeout: Annotated[
        float | None, typer.Option(min=0.1, max=3600, help="Seconds that the check may take [default: 30].")
    ] = None,
    before_announce_unanswered: Annotated[
        Literal["join", "leave"] | None,
        typer.Option(help="Whether a Pod joins if its check hangs or cannot run [default: join]."),
    ] = None,
    save_within: Annotated[
        int, typer.Option(min=0, max=3600, help="Seconds for workers to save before a planned stop; 0: off.")
    ] = 0,
    fence_after: Annotated[
        str | None,
        typer.Option(
            help="Experimental. Seconds (15 to 600) without the API server after which an agent ends its worker."
        ),
    ] = None,
    bad_nodes: Annotated[
        str | None,
        typer.Option(
            metavar="FAILURES/SECONDS[/PERCENT]", help="Failures after which new Pods avoid a node, such as 2/3600."
        ),
    ] = None,
    spares: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Placeholder Pods that hold room for replacement Pods, up to the group's number."
        ),
    ] = None,
    clean: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH|ipc|off", help="Path to clear after each run, beside the worker's /dev/shm."),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option("--worker", help="Name of the worker's container, if there are several containers."),
    ] = None,
    service_account: Annotated[
        str | None, typer.Option(help="Account of Pods without one [default: inplace-agent].")
    ] = None,
    rbac: Annotated[
        Literal["both", "none", "only"],
        typer.Option(help="Agents' account and rights: print them before the manifest (both), not at all, or alone."),
    ] = "both",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of JobSets without one.")] = "default",
    exit_code: Annotated[
        int | None, typer.Option(min=1, max=255, help="Exit code with which the agent restarts its Pod [default: 88].")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of the barrier [default: 8080, or another if the Pod declares it]."),
    ] = None,
    output: Annotated[Literal["yaml", "json"], typer.Option("--output", "-o", help="Output format.")] = "yaml",
    diff: Annotated[bool, typer.Option("--diff", help="Print the difference instead of the manifest.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the difference on stderr.")] = False,
) -> None:
    """Add the agent to a JobSet manifest.

    Prints the manifest with all that in-place restart needs. Needs no cluster.
    """
    from inplace.cli.inject.inject import run_inject
    from inplace.controller.injection.container_resources import OPTION, amounts_of
    from inplace.controller.injection.pod import InjectOptions
    from inplace.controller.injection.policies import PolicyOptions

    try:
        resources = amounts_of(agent_resources)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=OPTION) from error
    options = InjectOptions(
        mode=mode,
        agent_image=agent_image,
        copies_image=copy_image,
        agent_resources=resources,
        account=service_account,
        namespace=namespace,
        exit_code=exit_code,
        port=port,
        workers=tuple(worker or ()),
        barrier=barrier,
        depth=restart,
        restart_rule=restart_rule == "on",
        policies=PolicyOptions(
            before_announce,
            before_announce_timeout,
            before_announce_unanswered,
            save_within,
            fence_after,
            bad_nodes,
            tuple(clean or ()),
            None if spares is None else str(spares),
        ),
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
