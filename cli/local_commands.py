"""The commands that need neither a cluster nor, unless it is named, a manifest: their options, see cli/main.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from inplace.cli.options import JsonOption, OutputOption, format_of


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
