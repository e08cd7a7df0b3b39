"""The commands about restarts that were: their options, see cli/main.py."""

from __future__ import annotations

from typing import Annotated

import typer

from inplace.cli.options import (
    ContextOption,
    JobSetName,
    JsonOption,
    KubeconfigOption,
    NamespaceOption,
    OutputOption,
    format_of,
    target_of,
)


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

    raise typer.Exit(run_history(jobset, target_of(context, kubeconfig, namespace), output=format_of(output, as_json)))


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
