"""Installed from a wheel or an sdist, outside the source tree, every command works and nothing else is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.install.packages import build_packages, installed

COMMAND_S_MAX = 120.0
TOP = {"inplace"}  # the names at the top of site-packages
PLAIN = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: plain
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          spec:
            containers:
            - name: train
              image: trainer
              command: [python3, train.py]
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the wheel of the source tree, and the one of its sdist."""
    return dict(zip(("wheel", "sdist"), build_packages(tmp_path_factory.mktemp("packages")), strict=True))


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def programs(request: pytest.FixtureRequest, wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the installed programs."""
    return installed(wheels[request.param], tmp_path_factory.mktemp("environment") / request.param)


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Return an empty folder, to run commands from."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return an environment with only this machine's PATH."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder.parent)}


def run(programs: Path, folder: Path, *arguments: str, kubeconfig: str = "") -> str:
    """Run `inplace`, which must succeed; return its output."""
    done = subprocess.run(
        [programs / "inplace", *arguments],
        cwd=folder,
        env=environment(folder) | ({"KUBECONFIG": kubeconfig} if kubeconfig else {}),
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def cluster(programs: Path, folder: Path, *options: str) -> Iterator[str]:
    """Keep a demo's cluster up once its group has restarted, and give its kubeconfig."""
    arguments = ["demo", "--pods", "2", "--failures", "1", "--keep", *options]
    demo = subprocess.Popen(
        [programs / "inplace", *arguments], cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None
    try:
        printed = ""
        while "stays up" not in printed:
            line = demo.stdout.readline()
            assert line, f"the demo ended before it was up: {printed}"
            printed += line
        yield next(line for line in printed.splitlines() if "KUBECONFIG=" in line).partition("=")[2]
        demo.send_signal(signal.SIGTERM)
        demo.wait(COMMAND_S_MAX)
    finally:
        demo.kill()
        demo.communicate()


def test_one_package_is_inside(wheels: dict[str, Path]) -> None:
    """Both wheels hold the same files, under exactly one name; licence and metadata are where installers look."""
    names = {kind: set(zipfile.ZipFile(path).namelist()) for kind, path in wheels.items()}
    assert names["wheel"] == names["sdist"]
    tops = {name.split("/")[0] for name in names["wheel"]}
    data, metadata = sorted(tops - TOP)
    assert (data.endswith(".data"), metadata.endswith(".dist-info")) == (True, True)
    assert [name for name in names["wheel"] if name.startswith(data)] == [f"{data}/data/share/man/man1/inplace.1"]
    assert f"{metadata}/licenses/LICENSE" in names["wheel"]


def test_commands_without_a_cluster(programs: Path, empty: Path) -> None:
    """`--version`, `inject`, `lint` and a modelled demo work from an empty folder, and leave it empty."""
    assert run(programs, empty, "--version").startswith("inplace ")
    plain, ready = empty.parent / "plain.yaml", empty.parent / "ready.yaml"
    plain.write_text(PLAIN)
    ready.write_text(run(programs, empty, "inject", "--file", str(plain), "--quiet"))
    assert "restartStrategy: InPlaceRestart" in ready.read_text()
    assert json.loads(run(programs, empty, "lint", "--file", str(ready), "--output", "json"))["errors"] == 0
    modelled = run(programs, empty, "demo", "--runtime=model", "--pods=4", "--profile=zones", "--json")
    assert json.loads(modelled.splitlines()[-1])["pods"] == 4
    assert list(empty.iterdir()) == []


def test_commands_with_a_cluster(programs: Path, empty: Path) -> None:
    """A demo of real processes restarts, and `status`, `explain`, `timeline` and `restart` read its cluster."""
    before = _files(programs.parent)
    with cluster(programs, empty) as kubeconfig:
        seen = json.loads(run(programs, empty, "status", "plain", "--output", "json", kubeconfig=kubeconfig))
        assert seen["name"] == "plain"
        assert "plain" in run(programs, empty, "status", kubeconfig=kubeconfig)
        assert "epoch 2" in run(programs, empty, "explain", "plain", kubeconfig=kubeconfig)
        assert run(programs, empty, "timeline", "plain", kubeconfig=kubeconfig)
        run(programs, empty, "restart", "plain", "--wait", kubeconfig=kubeconfig)
    assert list(empty.iterdir()) == []
    assert _files(programs.parent) == before


def _files(folder: Path) -> set[Path]:
    """Return the files of a folder, without byte code."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}
