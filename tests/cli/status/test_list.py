"""`inplace status` without a name: the JobSets of a namespace or of all, once or live."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from inplace.agent.version import VERSION
from inplace.cli.status.status import _show_all
from inplace.cli.status.watch import watch_list
from inplace.cli.terminal.screen import PIPE_COLUMNS, console
from inplace.common.kube.resources import JOBSETS, NAMESPACES
from tests.cli.command import run_bytes, run_here
from tests.cli.injecting import example, injected
from tests.cli.scenes import another, connection, kill, status, training, until


@pytest.mark.virtual_time
async def test_the_list_of_all_namespaces(capsys: pytest.CaptureFixture[str]) -> None:
    """With --all-namespaces the list has every JobSet and its namespace; without it, those of one namespace."""
    async with training(1, nodes=2) as cluster:
        await cluster.client("user").create(NAMESPACES, None, {"metadata": {"name": "team"}})
        await cluster.client("user").create(JOBSETS, "team", another(namespace="team"))
        await _show_all(connection(cluster), "table", everywhere=True)
        rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
        assert rows == [["NAMESPACE", "JOBSET"], ["default", "train"], ["team", "other"]]
        await _show_all(connection(cluster), "table", everywhere=False)
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["JOBSET", "train"]


@pytest.mark.virtual_time
async def test_a_watch_without_a_name_follows_all(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets a line for each JobSet at first, then one for each change of a JobSet, and one when it goes."""
    async with training() as cluster:
        watching = asyncio.create_task(watch_list(connection(cluster), "json", everywhere=True))
        await cluster.clock.sleep(5)
        kill(cluster)
        await until(cluster, lambda: status(cluster).get("syncedEpoch") == 2)
        await cluster.clock.sleep(5)
        await cluster.apply([another()])
        await cluster.clock.sleep(5)
        await cluster.client("user").delete(JOBSETS, "default", "other")
        await cluster.clock.sleep(30)
        watching.cancel()
        seen = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    trained = [(row["phase"], row["epochs"]) for row in seen if row["name"] == "train"]
    assert (trained[0], trained[-1]) == (("Running", [1]), ("Running", [2]))
    assert [row["phase"] for row in seen if row["name"] == "other"][-1] == "Deleted"


def test_columns_are_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """$COLUMNS is the width of a table, also in a pipe; a text that is no usable number is not."""
    for text in ("80", "0", "-5", "9" * 5_000, ""):
        monkeypatch.setenv("COLUMNS", text)
        assert console().width == (80 if text == "80" else PIPE_COLUMNS)


def test_programs_say_their_version() -> None:
    """--version prints name and number."""
    assert run_here("--version").stdout == f"inplace {VERSION}\n"


def test_a_name_beside_all_namespaces_is_bad_usage() -> None:
    """--all-namespaces stands for a list: a name or a namespace beside it is refused."""
    for more in (["train"], ["-n", "team"]):
        done = run_here("status", "-A", *more)
        assert done.returncode == 2
        assert "expected it alone, saw" in done.stderr


@pytest.mark.parametrize("newline", ["\r\n", "\n"])
def test_lines_end_as_in_the_file(tmp_path: Path, newline: str) -> None:
    """A manifest with CRLF is printed with CRLF in every line; the objects are the same."""
    file = tmp_path / "plain.yaml"
    file.write_bytes(example("plain.yaml").replace("\n", newline).encode())
    done = run_bytes("inject", "-q", "-f", str(file))
    assert done.count(b"\n") == done.count(newline.encode()) > 100
    assert b"\r\r" not in done
    assert done.decode().replace("\r\n", "\n") == injected(example("plain.yaml"))
