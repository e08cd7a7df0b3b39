"""Arguments and options that several commands have: which JobSet, of which cluster, and how it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from inplace.cli.completion import complete_context, complete_jobset, complete_namespace

if TYPE_CHECKING:
    from inplace.cli.connection import Target

JobSetName = Annotated[
    str, typer.Argument(metavar="JOBSET", help="Name of the JobSet.", autocompletion=complete_jobset)
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context", help="Context of the kubeconfig [default: its current one].", autocompletion=complete_context
    ),
]
KubeconfigOption = Annotated[
    str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig [default: $KUBECONFIG, then ~/.kube/config].")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace [default: the context's, then default].",
        autocompletion=complete_namespace,
    ),
]
OutputOption = Annotated[Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="Output format.")]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as -o json.")]


def format_of(output: Literal["table", "json", "yaml"], as_json: bool) -> Literal["table", "json", "yaml"]:
    """Return the format that both options ask for."""
    return "json" if as_json else output


def target_of(context: str | None, kubeconfig: str | None, namespace: str | None) -> Target:
    """Return the cluster and the namespace."""
    from inplace.cli.connection import Target

    return Target(context, kubeconfig, namespace)
