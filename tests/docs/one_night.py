"""
The scene of docs/one-night.md: a group of 16 real workers, of which one raises, and later one hangs.

    python -m tests.docs.one_night --write     (runs it, some two minutes, and puts the outputs into the page)

Each command of the page runs where the page has it. Names of Pods, causes, steps and lines of code are the same each
time; moments and seconds are not, so `masked` hides them before two outputs are compared.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.command import REPOSITORY, printed_by
from tests.cli.injecting import example_of
from tests.cli.lint.cases import worker

PAGE: Final = REPOSITORY / "docs" / "one-night.md"
PODS: Final = 16
STEPS: Final = 400
EMPTY: Final = "5.12"  # rank 5's batch of step 12: the file exists, and is not written yet
SILENT: Final = "11.30"  # rank 11's batch of step 30: a storage that does not answer
STEP_BYTES: Final = 8  # of each rank, in the script's file
LIMIT: Final = {wire.STALL: "6"}
COLUMNS: Final = "160"
TIMEOUT_S: Final = 240.0  # 16 workers start in 10 s on two idle cores
SECONDS_MASKED: Final = re.compile(r"\b(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)? ?s\b")
MOMENTS_MASKED: Final = re.compile(r"(?:\d\d\d\d-)?(?:\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:\.\d+)?Z?")


def script() -> str:
    """Return the training script that the page shows."""
    block = PAGE.read_text().partition(", train.py:\n\n")[2].partition("\n\n## ")[0]
    return textwrap.dedent(block) + "\n"


def shown() -> list[tuple[str, str]]:
    """Return the page's commands, each with the output that the page has."""
    blocks = re.findall(r"^    \$ inplace (.+)\n((?:(?!    \$ )(?:    .*)?\n)*)", PAGE.read_text(), re.MULTILINE)
    return [(line, textwrap.dedent(block).strip("\n")) for line, block in blocks]


def masked(text: str) -> str:
    """Return an output without what differs between runs: moments, seconds, and who is the first to tell of a hang."""
    # Who tells first of a hang is chance, and how far it was: the others wait in the silent rank's step or the next.
    told = r"(?m)(tell of the hang: container worker of Pod )\S+ on \S+(.*) at step \d+$"
    text = re.sub(told, r"\1P on N\2", text)
    return re.sub(r" {2,}", "  ", SECONDS_MASKED.sub("S", MOMENTS_MASKED.sub("T", text)))


async def outputs() -> list[tuple[str, str]]:
    """Run the scene; return the page's commands, each with what it printed."""
    with TemporaryDirectory(prefix="night-") as name:
        return await _night(Path(name))


async def _night(folder: Path) -> list[tuple[str, str]]:
    data = folder / "data"
    _write_batches(data)
    (folder / "train.py").write_text(script())
    printed: list[tuple[str, str]] = []
    bug, hang, end = _sections()
    async with Cluster(nodes=4, pods_per_node=4) as cluster:

        async def until(look: Callable[[], bool]) -> None:
            async with cluster.clock.timeout(TIMEOUT_S):
                while not look():
                    await cluster.clock.sleep(0.1)

        async def until_runs(epoch: int) -> None:
            await until(lambda: len(_steps(data, epoch)) == PODS)

        async def until_trains() -> None:
            """Wait for the log line that says so: an agent looks for steps now and then."""
            await until(lambda: all(_is_ready(pod) for pod in cluster.pods()))
            async with cluster.clock.timeout(TIMEOUT_S):
                while "it trains" not in await asyncio.to_thread(_printed, cluster, "explain train", folder):
                    await cluster.clock.sleep(0.5)

        async def ask(lines: list[str]) -> None:
            printed.extend([(line, await asyncio.to_thread(_printed, cluster, line, folder)) for line in lines])

        await cluster.apply(_group(folder / "train.py", data))
        await until_runs(1)
        await until_runs(2)
        (data / EMPTY).write_text("1")
        await until_trains()
        await ask(bug)
        await until(lambda: sorted(_steps(data, 2)) == [29] + [30] * (PODS - 1))
        await ask(hang)
        await cluster.client().patch(JOBSETS, "default", "train", {"metadata": {"annotations": LIMIT}})
        await until(lambda: _epoch(cluster) == 3)
        (data / SILENT).unlink()
        (data / SILENT).write_text("1")
        await until_runs(3)
        await until_trains()
        await ask(end)
    return printed


def _group(script_file: Path, data: Path) -> list[KubeObject]:
    """Return the documents of examples/train.yaml with 16 Pods that run the page's script."""
    group = example_of(PODS)
    container = worker(group[-1])
    container["command"][2:] = ["python3", str(script_file)]
    settings = {"DATA": str(data), "STEPS": str(STEPS)}
    container["env"] = [each for each in container["env"] if each["name"] not in settings]
    container["env"] += [{"name": name, "value": value} for name, value in settings.items()]
    return group


def _is_ready(pod: KubeObject) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _epoch(cluster: Cluster) -> int:
    return wire.epochs_of_status(cluster.jobset("train").get("status") or {})[0]


def _steps(data: Path, epoch: int) -> list[int]:
    """Return the steps that the ranks of an epoch have reached; of those that have begun one."""
    written = data / f"epoch-{epoch}"
    text = written.read_bytes() if written.exists() else b""
    steps = (text[at : at + STEP_BYTES].strip(b"\0 ") for at in range(0, len(text), STEP_BYTES))
    return [int(step) for step in steps if step]


def _sections() -> list[list[str]]:
    """Return the commands of each part of the page that has some: after the bug, during the hang, after it."""
    parts = PAGE.read_text().split("\n## ")
    found = [re.findall(r"^    \$ inplace (.+)$", part, re.MULTILINE) for part in parts]
    return [lines for lines in found if lines]


def _write_batches(data: Path) -> None:
    data.mkdir()
    for rank in range(PODS):
        for step in range(STEPS):
            (data / f"{rank}.{step}").write_text("1")
    (data / EMPTY).write_text("")
    (data / SILENT).unlink()
    os.mkfifo(data / SILENT)


def _printed(cluster: Cluster, line: str, folder: Path) -> str:
    printed = printed_by(*shlex.split(line), KUBECONFIG=str(cluster.kubeconfig("admin")), COLUMNS=COLUMNS)
    lines = printed.replace(str(folder), "/app").replace(str(folder)[1:], "app").splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


async def _main() -> None:
    printed, text, at = await outputs(), PAGE.read_text(), 0
    for (line, old), (_, new) in zip(shown(), printed, strict=True):
        print(f"$ inplace {line}\n{new}\n")
        at = text.index(f"    $ inplace {line}\n", at)
        rest = text[at:].replace(_block(line, old), _block(line, new), 1)
        text, at = text[:at] + rest, at + 1
    if "--write" in sys.argv:
        PAGE.write_text(text)


def _block(line: str, output: str) -> str:
    return textwrap.indent(f"$ inplace {line}\n{output}".rstrip("\n"), " " * 4) + "\n"


if __name__ == "__main__":
    asyncio.run(_main())
