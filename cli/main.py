"""
The command line.

Each command imports what it needs when it runs, so that `inplace --help` stays quick; it is plain text for the same
reason: rich would take longer than all else.

Exit codes: 0 done, 1 the thing asked for did not happen (said on stderr), 2 bad usage, 130 interrupted; commands that
ask a cluster have more, see cli/refusal.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.visible import guard_streams

if TYPE_CHECKING:
    from cli.connection import Target

app = typer.Typer(
    name="inplace",
    help="In-place restart for distributed training on Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JobSetName = Annotated[str, typer.Argument(metavar="JOBSET", help="Its name.")]
ContextOption = Annotated[str | None, typer.Option("--context", help="Of the kubeconfig; its current one.")]
KubeconfigOption = Annotated[
    str | None, typer.Option("--kubeconfig", help="The file; KUBECONFIG, or the one in the home folder.")
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", "-n", help="The namespace; the context's, or default.")
]
OutputOption = Annotated[
    Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="For people or programs.")
]


def _target(context: str | None, kubeconfig: str | None, namespace: str | None) -> Target:
    from cli.connection import Target

    return Target(context, kubeconfig, namespace)


@app.callback()
def inplace() -> None:
    """In-place restart for distributed training on Kubernetes."""


@app.command()
def status(
    jobset: Annotated[str | None, typer.Argument(metavar="JOBSET", help="Its name; none for all, a line each.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow it, until it ends or Ctrl-C.")] = False,
    output: OutputOption = "table",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Say where a JobSet is: phase, Pods by epoch, who is waited for, how long it may take."""
    if watch and jobset is None:
        raise typer.BadParameter("expected the name of a JobSet to watch, saw none", param_hint="--watch")
    from cli.status import run_status

    raise typer.Exit(run_status(jobset, _target(context, kubeconfig, namespace), output=output, watch=watch))


@app.command()
def explain(
    jobset: JobSetName,
    output: OutputOption = "table",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Say why a JobSet is where it is: what happened, what it waits for, what to do."""
    from cli.explain import run_explain

    raise typer.Exit(run_explain(jobset, _target(context, kubeconfig, namespace), output=output))


@app.command()
def timeline(
    jobset: JobSetName,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write a picture instead.")] = None,
    output: OutputOption = "table",
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Draw the last group restart: a row for each Pod, or each Job, and what it was doing when."""
    from cli.timeline import run_timeline

    raise typer.Exit(run_timeline(jobset, _target(context, kubeconfig, namespace), svg=svg, output=output))


@app.command()
def restart(
    jobset: JobSetName,
    wait: Annotated[bool, typer.Option("--wait", help="Return when every Pod is at the next epoch.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to --wait for.")] = 600,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Restart a JobSet in place now; it does not count towards maxRestarts."""
    from cli.restart import run_restart

    raise typer.Exit(run_restart(jobset, _target(context, kubeconfig, namespace), wait=wait, timeout_s=timeout))


@app.command()
def cost(
    nodes: Annotated[int, typer.Option(min=1, help="Of the group.")],
    price: Annotated[float, typer.Option(min=0, help="Of one node, per hour.")],
    failures_per_day: Annotated[float, typer.Option(min=0, help="Of anything that restarts the group.")],
    days: Annotated[float, typer.Option(min=0, help="To sum up.")] = 30,
    recreate_seconds: Annotated[float, typer.Option(min=0, help="A restart that recreates every Pod.")] = 130,
    in_place_seconds: Annotated[float, typer.Option(min=0, help="A restart in place.")] = 10,
    output: OutputOption = "table",
) -> None:
    """Say what restarts cost: recreating every Pod, and in place."""
    from cli.cost import Fleet, run_cost

    fleet = Fleet(nodes, price, failures_per_day, days)
    raise typer.Exit(run_cost(fleet, recreate_s=recreate_seconds, in_place_s=in_place_seconds, output=output))


@app.command()
def demo(
    pods: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Pods of the group; 8, or what --file says.")
    ] = None,
    failures: Annotated[int, typer.Option(min=0, max=1_000, help="Workers to kill, one after the other.")] = 1,
    runtime: Annotated[
        Literal["process", "model"],
        typer.Option(help="Real local processes, or the real agents with modelled containers under virtual time."),
    ] = "process",
    mode: Annotated[
        Literal["sidecar", "supervisor"] | None,
        typer.Option(help="The agent beside the worker, or as its parent; sidecar, or what --file says."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="A manifest with one JobSet; its workers print 'step=...'.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses the workers that die; under model, everything.")] = 1,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Stay up and print the KUBECONFIG to use.")] = False,
    agent_pyz: Annotated[
        bool, typer.Option("--agent-pyz", help="Run every agent from the one file that `make agent-pyz` builds.")
    ] = False,
    profile: Annotated[
        str | None, typer.Option(help="Under model: the cluster's delays, by name or as a .toml file of your own.")
    ] = None,
) -> None:
    """Train on an embedded Kubernetes, kill workers, and watch the group restart in place."""
    from cli.demo import DemoOptions, run_demo

    options = DemoOptions(pods, failures, runtime, mode, file, seed, json_output, keep, agent_pyz, profile)
    raise typer.Exit(run_demo(options))


@app.command()
def inject(
    file: Annotated[str, typer.Option("--file", "-f", help="The manifest; - is standard input.")],
    mode: Annotated[
        Literal["sidecar", "supervisor"], typer.Option(help="The agent beside the worker, or as its parent.")
    ] = "sidecar",
    agent_image: Annotated[str, typer.Option(help="The image with the agent.")] = "inplace-agent",
    agent_in_image: Annotated[
        bool, typer.Option("--agent-in-image", help="The worker's image holds inplace-agent: copy nothing into it.")
    ] = False,
    wait: Annotated[
        bool, typer.Option(help="Sidecar: the worker waits inside its container too (kubernetes #141155).")
    ] = True,
    worker: Annotated[
        list[str] | None, typer.Option("--worker", help="The worker's container, where there are several.")
    ] = None,
    service_account: Annotated[
        str | None, typer.Option(help="Of Pods that name none; inplace-agent or inplace-agent-SUFFIX.")
    ] = None,
    unrestricted_account: Annotated[
        bool,
        typer.Option(
            "--unrestricted-account",
            help="Let accounts of other names patch every Pod of the namespace; admission does not restrict them.",
        ),
    ] = False,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of JobSets that name none.")] = "default",
    exit_code: Annotated[
        int, typer.Option(min=1, max=255, help="With which the agent asks kubelet to restart its Pod.")
    ] = 88,
    port: Annotated[int, typer.Option(min=1, max=65535, help="On which the barrier answers.")] = 8080,
    output: Annotated[Literal["yaml", "json"], typer.Option("--output", "-o")] = "yaml",
    diff: Annotated[bool, typer.Option("--diff", help="Print what would change instead of the manifest.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no difference on stderr.")] = False,
) -> None:
    """Add to a plain JobSet what in-place restart needs, and print it; the cluster is not asked and not changed."""
    from cli.inject import run_inject
    from cli.inject_pod import InjectOptions

    options = InjectOptions(
        mode=mode,
        agent_image=agent_image,
        account=service_account,
        unrestricted_account=unrestricted_account,
        namespace=namespace,
        exit_code=exit_code,
        port=port,
        workers=tuple(worker or ()),
        wait=wait,
        agent_in_image=agent_in_image,
    )
    raise typer.Exit(run_inject(file, options, output=output, diff=diff, quiet=quiet))


@app.command()
def lint(
    file: Annotated[str, typer.Option("--file", "-f", help="The manifest; - is standard input.")],
    output: Annotated[Literal["text", "json"], typer.Option("--output", "-o")] = "text",
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Ask the cluster too; --context and --kubeconfig imply it.")
    ] = False,
    context: Annotated[str | None, typer.Option(help="Of the kubeconfig; its current one.")] = None,
    kubeconfig: Annotated[str | None, typer.Option(help="The file; KUBECONFIG, or the one in the home folder.")] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Of JobSets that name none.")] = "default",
) -> None:
    """Say what keeps a JobSet from restarting in place: 0 nothing, 1 something, 2 it cannot be read or asked."""
    from cli.lint import LintOptions, run_lint

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
