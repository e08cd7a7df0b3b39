"""
The command line.

Each command imports its modules when it runs, so that `inplace --help` stays quick. The output is plain text for the
same reason: importing rich would take longer than everything else.

Exit codes: 0 done, 1 the command failed (stderr says why), 2 bad usage, 130 interrupted. Commands that read a cluster
have more, see cli/refusal.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from inplace.cli.terminal.visible import guard_streams

if TYPE_CHECKING:
    from inplace.cli.connection import Target

app = typer.Typer(
    name="inplace",
    help="In-place restart for distributed training on Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JobSetName = Annotated[str, typer.Argument(metavar="JOBSET", help="Name of the JobSet.")]
ContextOption = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig [default: its current one].")
]
KubeconfigOption = Annotated[
    str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig [default: $KUBECONFIG, then ~/.kube/config].")
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace [default: the context's, then default].")
]
OutputOption = Annotated[Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="Output format.")]


def _target(context: str | None, kubeconfig: str | None, namespace: str | None) -> Target:
    from inplace.cli.connection import Target

    return Target(context, kubeconfig, namespace)


@app.callback()
def inplace() -> None:
    """In-place restart for distributed training on Kubernetes."""


@app.command()
def status(
    jobset: Annotated[
        str | None, typer.Argument(metavar="JOBSET", help="Name of the JobSet; without it, one line for each JobSet.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show changes until the JobSet ends or Ctrl-C.")] = False,
    output: OutputOption = "table",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show a JobSet's phase and Pods.

    Also the Pods that it waits for and the time left; --watch shows changes live.
    """
    if watch and jobset is None:
        raise typer.BadParameter("expected the name of a JobSet to watch, saw none", param_hint="--watch")
    from inplace.cli.status.status import run_status

    raise typer.Exit(run_status(jobset, _target(context, kubeconfig, namespace), output=output, watch=watch))


@app.command()
def explain(
    jobset: JobSetName,
    output: OutputOption = "table",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Explain why a JobSet waits or failed.

    Says what happened, which Pod failed first, which Pods are missing and why, and what to do.
    """
    from inplace.cli.status.explain import run_explain

    raise typer.Exit(run_explain(jobset, _target(context, kubeconfig, namespace), output=output))


@app.command()
def nodes(
    jobset: JobSetName,
    output: OutputOption = "table",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """List nodes on which a JobSet failed.

    Says which of them its new Pods avoid, for how long, and why.
    """
    from inplace.cli.status.nodes import run_nodes

    raise typer.Exit(run_nodes(jobset, _target(context, kubeconfig, namespace), output=output))


@app.command()
def timeline(
    jobset: JobSetName,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write an SVG picture to FILE instead.")
    ] = None,
    output: OutputOption = "table",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Draw the last group restart.

    One row for each Pod, or for each Job of a large group.
    """
    from inplace.cli.status.timeline import run_timeline

    raise typer.Exit(run_timeline(jobset, _target(context, kubeconfig, namespace), svg=svg, output=output))


@app.command()
def restart(
    jobset: JobSetName,
    wait: Annotated[bool, typer.Option("--wait", help="Return when every Pod has reached the next epoch.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Give up --wait after so many seconds.")] = 600,
    save: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=3600,
            metavar="SECONDS",
            help="Let the workers save first, for at most so long; they end by themselves.",
        ),
    ] = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Restart a JobSet in place now.

    This does not count against maxRestarts.
    """
    from inplace.cli.status.restart import run_restart

    target = _target(context, kubeconfig, namespace)
    raise typer.Exit(run_restart(jobset, target, wait=wait, timeout_s=timeout, save_s=save or 0))


@app.command()
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
) -> None:
    """Compute what restarts cost.

    Compares recreating every Pod with restarting in place.
    """
    from inplace.cli.cost import Fleet, run_cost

    fleet = Fleet(nodes, price, failures_per_day, days)
    raise typer.Exit(run_cost(fleet, recreate_s=recreate_seconds, in_place_s=in_place_seconds, output=output))


@app.command()
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
            help="Workers to stop with SIGSTOP after that; for --mode guarded (then the default), process, supervisor.",
        ),
    ] = 0,
    runtime: Annotated[
        Literal["process", "model"],
        typer.Option(help="process: real local processes; model: real agents, modelled containers, virtual time."),
    ] = "process",
    mode: Annotated[
        Literal["sidecar", "guarded", "process", "supervisor"] | None,
        typer.Option(
            help="How the agent runs: beside the worker, beside a guard that is the worker's parent (process: and that "
            "restarts it without its container), or as its parent itself [default: sidecar, or that of --file]."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Manifest with one JobSet whose workers print 'step=...'.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides which workers die; with --runtime model, everything.")] = 1,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the cluster running and print its KUBECONFIG.")] = False,
    agent_pyz: Annotated[
        bool, typer.Option("--agent-pyz", help="Run the agents from one file, as `make agent-pyz` builds it.")
    ] = False,
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

    Starts an embedded Kubernetes, kills or stops workers, and shows how the group restarts in place.
    """
    from inplace.cli.demo.demo import DemoOptions, run_demo

    options = DemoOptions(pods, failures, runtime, mode, file, seed, json_output, keep, agent_pyz, profile, stall, venv)
    raise typer.Exit(run_demo(options))


@app.command()
def inject(
    file: Annotated[str, typer.Option("--file", "-f", help="Path of the manifest; - is standard input.")],
    mode: Annotated[
        Literal["sidecar", "supervisor"], typer.Option(help="How the agent runs: beside the worker, or as its parent.")
    ] = "sidecar",
    agent_image: Annotated[str, typer.Option(help="Image that contains the agent.")] = "inplace-agent",
    agent_in_image: Annotated[
        bool, typer.Option("--agent-in-image", help="The worker's image contains inplace-agent: copy nothing into it.")
    ] = False,
    barrier: Annotated[
        Literal["guard", "wait", "probe"],
        typer.Option(
            help="Sidecar mode: what holds the worker back. guard: a parent process of the worker, which also tells at "
            "once how it ended. probe: the agent's startup probe. wait: the probe, and the worker's own command."
        ),
    ] = "guard",
    restart: Annotated[
        Literal["containers", "process"] | None,
        typer.Option(
            help="With guards: what a group restart starts anew. containers: all, by kubelet (the default). process: "
            "the worker's process, by its guard. Written into the JobSet as the annotation inplace.dev/restart."
        ),
    ] = None,
    before_announce: Annotated[
        str, typer.Option(help="A check that each Pod runs before it joins an epoch; if it fails, the Pod is replaced.")
    ] = "",
    before_announce_timeout: Annotated[
        float | None, typer.Option(min=0.1, max=3600, help="Seconds that the check may take [default: 30].")
    ] = None,
    before_announce_unanswered: Annotated[
        Literal["join", "leave"] | None,
        typer.Option(help="What a Pod does whose check hangs or cannot be run [default: join]."),
    ] = None,
    save_within: Annotated[
        int, typer.Option(min=0, max=3600, help="Seconds for workers to save before a planned stop; 0: not asked.")
    ] = 0,
    fence_after: Annotated[
        str | None,
        typer.Option(
            help="Experimental. Seconds (15 to 600) without the API server after which an agent ends its worker."
        ),
    ] = None,
    bad_nodes: Annotated[
        str | None,
        typer.Option(metavar="FAILURES/SECONDS[/PERCENT]", help="When new Pods avoid a node, such as 2/3600."),
    ] = None,
    clean: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH|ipc|off", help="What is removed after each run, beside the worker's /dev/shm."),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option("--worker", help="Name of the worker's container, if there are several containers."),
    ] = None,
    service_account: Annotated[
        str | None, typer.Option(help="Account of Pods that name none: inplace-agent or inplace-agent-SUFFIX.")
    ] = None,
    unrestricted_account: Annotated[
        bool,
        typer.Option(
            "--unrestricted-account",
            help="Also give the agent's rights to accounts of other names; these may patch every Pod of the namespace.",
        ),
    ] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of JobSets that name none.")
    ] = "default",
    exit_code: Annotated[
        int, typer.Option(min=1, max=255, help="Exit code with which the agent restarts its Pod.")
    ] = 88,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the barrier.")] = 8080,
    output: Annotated[Literal["yaml", "json"], typer.Option("--output", "-o", help="Output format.")] = "yaml",
    diff: Annotated[bool, typer.Option("--diff", help="Print the difference instead of the manifest.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the difference on stderr.")] = False,
) -> None:
    """Add the agent to a JobSet manifest.

    Prints the manifest with all that in-place restart needs. Needs no cluster.
    """
    from inplace.cli.inject.inject import run_inject
    from inplace.cli.inject.pod import InjectOptions
    from inplace.cli.inject.policies import PolicyOptions

    options = InjectOptions(
        mode=mode,
        agent_image=agent_image,
        account=service_account,
        unrestricted_account=unrestricted_account,
        namespace=namespace,
        exit_code=exit_code,
        port=port,
        workers=tuple(worker or ()),
        barrier=barrier,
        depth=restart,
        agent_in_image=agent_in_image,
        policies=PolicyOptions(
            before_announce,
            before_announce_timeout,
            before_announce_unanswered,
            save_within,
            fence_after,
            bad_nodes,
            tuple(clean or ()),
        ),
    )
    raise typer.Exit(run_inject(file, options, output=output, diff=diff, quiet=quiet))


@app.command()
def lint(
    file: Annotated[str, typer.Option("--file", "-f", help="Path of the manifest; - is standard input.")],
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o", help="Output format.")] = "text",
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Check the cluster too; --context and --kubeconfig imply it.")
    ] = False,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig [default: its current one].")] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(help="Path of the kubeconfig [default: $KUBECONFIG, then ~/.kube/config].")
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of JobSets that name none.")
    ] = "default",
) -> None:
    """Check a JobSet manifest.

    Says what keeps the JobSet from restarting in place, and in sentences what it does about failures.
    Exit codes: 0 no errors, 1 errors, 2 the file or the cluster cannot be read.
    """
    from inplace.cli.lint.lint import LintOptions, run_lint

    asked = cluster or context is not None or kubeconfig is not None
    raise typer.Exit(run_lint(file, LintOptions(output, strict, asked, context, kubeconfig, namespace)))


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed_version

    typer.echo(f"inplace {installed_version('inplace')}")


def main() -> None:
    """Run the command line."""
    guard_streams()
    app()


if __name__ == "__main__":
    main()
