"""
The command line.

Each command imports its modules when it runs, so that `inplace --help` stays quick. The output is plain text for the
same reason: importing rich would take longer than everything else.

Exit codes: 0 done, 1 the command failed (stderr says why), 2 bad usage, 130 interrupted. Commands that read a cluster
have more, see cli/refusal.py.
"""

from __future__ import annotations

import gc
import os
import sys
from errno import EBADF, EDQUOT, EFBIG, EIO, ENOSPC, EPIPE
from typing import Annotated

import typer

from inplace.cli.local_commands import demo, inject, lint
from inplace.cli.options import (
    ContextOption,
    JobSetName,
    JsonOption,
    KubeconfigOption,
    NamespaceOption,
    OutputOption,
    complete_jobset,
    format_of,
    target_of,
)
from inplace.cli.refusal import CliExit
from inplace.cli.terminal.visible import guard_streams

_UNWRITABLE = (EBADF, EDQUOT, EFBIG, EIO, ENOSPC, EPIPE)  # what a stream says that takes nothing more

app = typer.Typer(
    name="inplace",
    help="In-place restart for distributed training on Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from inplace.agent.version import VERSION

        typer.echo(f"inplace {VERSION}")
        raise typer.Exit


@app.callback()
def inplace(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """In-place restart for distributed training on Kubernetes."""


@app.command()
def status(
    jobset: Annotated[
        str | None,
        typer.Argument(
            metavar="JOBSET",
            help="Name of the JobSet; without it, one line for each JobSet.",
            autocompletion=complete_jobset,
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show changes until the JobSet ends or Ctrl-C.")] = False,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the JobSets of all namespaces.")
    ] = False,
    output: OutputOption = "table",
    as_json: JsonOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show a JobSet's phase and Pods.

    Also the Pods that it waits for and the time left; --watch shows changes live.
    """
    if all_namespaces and (jobset is not None or namespace is not None):
        saw = f"a JobSet's name, {jobset}" if jobset is not None else f"--namespace {namespace}"
        raise typer.BadParameter(f"expected it alone, saw {saw} as well", param_hint="--all-namespaces")
    from inplace.cli.status.status import run_status

    target = target_of(context, kubeconfig, namespace)
    raise typer.Exit(
        run_status(target, jobset, output=format_of(output, as_json), watch=watch, everywhere=all_namespaces)
    )


@app.command()
def explain(
    jobset: JobSetName,
    output: OutputOption = "table",
    as_json: JsonOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Explain why a JobSet waits or failed.

    Says what happened, which Pod failed first, which Pods are missing and why, and what to do.
    """
    from inplace.cli.status.explain import run_explain

    raise typer.Exit(run_explain(target_of(context, kubeconfig, namespace), jobset, output=format_of(output, as_json)))


@app.command()
def logs(
    jobset: JobSetName,
    first_failed: Annotated[
        bool,
        typer.Option(
            "--first-failed",
            help="The last 200 lines of the Pod that failed first, then the others' lines of the second before. "
            "This is the default after a failure.",
        ),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="All lines, also after a failure.")] = False,
    epoch: Annotated[int | None, typer.Option(min=1, max=2**31 - 1, metavar="N", help="Only lines of epoch N.")] = None,
    rank: Annotated[
        list[str] | None, typer.Option(metavar="RANKS", help="Only lines of these Pods, such as 3, 0-7 or 0-7,12.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only lines that match a regular expression.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only lines of the last 30s, 10m or 1h30m.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines as they come, also after restarts and of new Pods.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each line.")] = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Print the logs of all workers.

    In one stream, ordered by time, each line with its Pod and the Pod's rank. It reads at most 32 logs at once, and
    keeps at most 64 MiB of lines in memory, and one line of each log. A line is cut at 16 KiB.
    """
    from inplace.cli.logs.logs import LogOptions, parse_duration, parse_pattern, parse_ranks, run_logs

    lines = (epoch, parse_ranks(rank or ()), parse_pattern(grep), parse_duration(since))
    options = LogOptions(*lines, follow, first_failed, everything, as_json).check()
    raise typer.Exit(run_logs(target_of(context, kubeconfig, namespace), jobset, options))


@app.command()
def stacks(
    jobset: JobSetName,
    rank: Annotated[
        list[str] | None, typer.Option(metavar="RANKS", help="Only ranks of these Pods, such as 3, 0-7 or 0-7,12.")
    ] = None,
    last: Annotated[
        bool,
        typer.Option(
            "--last", help="Ask no rank. Show the stacks of the newest hang, or else the newest ones in the logs."
        ),
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, max=300, help="Seconds to wait for answers.")] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with all threads.")] = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Print where every rank is now.

    Equal stacks are one group, and the ranks that differ come first. Ranks that import inplace write their own stacks.
    py-spy reads the stacks of other ranks. Without py-spy their place in the kernel is shown. The request ends or stops
    no rank.
    """
    from inplace.cli.logs.logs import parse_ranks
    from inplace.cli.stacks.stacks import StacksOptions, run_stacks

    options = StacksOptions(parse_ranks(rank or ()), timeout, last, as_json)
    raise typer.Exit(run_stacks(target_of(context, kubeconfig, namespace), jobset, options))


@app.command()
def history(
    jobset: JobSetName,
    output: OutputOption = "table",
    as_json: JsonOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """List a JobSet's last restarts.

    Says when each began, why, which Pod failed first, and what it cost. Its status keeps 20, also after its end.
    """
    from inplace.cli.status.history import run_history

    raise typer.Exit(run_history(target_of(context, kubeconfig, namespace), jobset, output=format_of(output, as_json)))


@app.command()
def timeline(
    jobset: JobSetName,
    output: OutputOption = "table",
    as_json: JsonOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Draw the last group restart.

    One row for each Pod, or for each Job of a large group.
    """
    from inplace.cli.status.timeline import run_timeline

    raise typer.Exit(run_timeline(target_of(context, kubeconfig, namespace), jobset, output=format_of(output, as_json)))


@app.command()
def restart(
    jobset: JobSetName,
    wait: Annotated[bool, typer.Option("--wait", help="Return when every Pod has reached the next epoch.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which --wait fails.")] = 600,
    save: Annotated[
        int | None,
        typer.Option(
            min=1, max=3600, metavar="SECONDS", help="Let the workers save and end first, for at most SECONDS."
        ),
    ] = None,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Restart a JobSet in place now.

    This restart does not count towards maxRestarts.
    """
    from inplace.cli.status.restart import run_restart

    target = target_of(context, kubeconfig, namespace)
    raise typer.Exit(run_restart(target, jobset, wait=wait, timeout_s=timeout, save_s=save or 0))


@app.command()
def report(
    selector: Annotated[
        str | None,
        typer.Option("--selector", "-l", metavar="LABELS", help="Only JobSets with these labels, such as team=vision."),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="The JobSets of all namespaces.")
    ] = False,
    price: Annotated[float | None, typer.Option(min=0, help="Price of one Pod per hour.")] = None,
    output: OutputOption = "table",
    as_json: JsonOption = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Sum up the restarts of many JobSets.

    Says what share of the time they trained, and what restarts cost by JobSet, cause and node.
    """
    if all_namespaces and namespace is not None:
        raise typer.BadParameter(
            f"expected it alone, saw --namespace {namespace} as well", param_hint="--all-namespaces"
        )
    from inplace.cli.status.report import run_report

    target = target_of(context, kubeconfig, namespace)
    raise typer.Exit(
        run_report(target, selector=selector, everywhere=all_namespaces, price=price, output=format_of(output, as_json))
    )


app.command()(demo)
app.command()(inject)
app.command()(lint)


def main() -> None:
    """Run the command line."""
    gc.set_threshold(50_000)  # imports alone make garbage collection run dozens of times, for 6 % of a command
    guard_streams()
    _drop_other_commands(sys.argv[1:2])
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # else Python does it after the exit code is chosen
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left to write goes nowhere
        if error.errno == EPIPE:  # `inplace status | head`
            sys.exit(CliExit.DONE)
        print(f"inplace: expected to write everything to standard output, saw: {error.strerror}", file=sys.stderr)
        sys.exit(CliExit.NOT_DONE)


def _drop_other_commands(first: list[str]) -> None:
    """Keep the command that is asked for alone: typer builds each command's options, 1 ms apiece."""
    asked = [one for one in app.registered_commands if one.callback is not None and one.callback.__name__ in first]
    app.registered_commands = asked or app.registered_commands
