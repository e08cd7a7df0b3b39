"""The agent as one file: the same bytes each time, nothing of the controller's, and it runs under every Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from inplace.cli.agent_pyz import BuildError, build, main
from inplace.common.kube.kubeconfig import read_kubeconfig
from tests.agent.process import environment, finished, process
from tests.agent.scripted_server import ScriptedServer, jobset, silence, until_patched
from tests.cli.command import REPOSITORY, RUN_S_MAX, demo_json, kept_demo, processes, run
from tests.promtool import complaints

pytestmark = pytest.mark.slow  # it runs under each Python of the machine, and `make test` must not depend on those

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"
# Folders with Pythons, beside PATH: pyenv's and uv's.
FOLDERS = (".pyenv/versions", ".local/share/uv/python")
FINISH = (until_patched(), jobset(1, 0, rv=20), jobset(1, 1, rv=30))


def pythons() -> dict[str, str]:
    """Return the working interpreters of this machine by version, the current one included."""
    found = {CURRENT: sys.executable}
    for version in VERSIONS:
        name = f"python{version}"
        installed = (path for folder in FOLDERS for path in sorted((Path.home() / folder).glob(f"*/bin/{name}")))
        for candidate in (shutil.which(name), *map(str, installed)):
            if candidate is None or version in found:
                continue
            asked = [candidate, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
                found[version] = candidate
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """Return the interpreters of this machine."""
    return pythons()


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file with byte code for the current Python."""
    return build(tmp_path_factory.mktemp("pyz") / "inplace-agent.pyz")


@pytest.fixture(params=VERSIONS)
def python(found: dict[str, str], request: pytest.FixtureRequest) -> str:
    """Return an interpreter of each version; skip, with the list of versions, when there is none."""
    version = str(request.param)
    if version not in found:
        pytest.skip(f"no Python {version} here (found {', '.join(sorted(found))}): put python{version} on PATH")
    return found[version]


def test_the_same_sources_give_the_same_bytes(pyz: Path, tmp_path: Path) -> None:
    """A second build, in another folder and later, has the same bytes."""
    assert build(tmp_path / "again.pyz").read_bytes() == pyz.read_bytes()


def test_nothing_of_the_controller_is_inside(pyz: Path) -> None:
    """The file holds the agent, the shared modules that it imports and its dependencies with licences, and no tests."""
    names = zipfile.ZipFile(pyz).namelist()
    assert names == sorted(names)
    tops = {name.split("/")[0] for name in names if not name.startswith("cpython-")}
    assert {top.split("-")[0] for top in tops} == {
        "LICENSE",
        "__main__.py",
        "inplace",
        "prometheus_client",
        "structlog",
        "typing_extensions",
        "typing_extensions.py",
    }
    assert {"inplace/common/kube/http/http1.py", "inplace/common/wire/names.py", "inplace/common/bare/py310.py"} < set(
        names
    )
    unwanted = ("informer", "workqueue", "ledger", "kube/client", "kube/codec", "test")
    assert [
        name for name in names if name.startswith("inplace/common/") and any(word in name for word in unwanted)
    ] == []


IMPORT_ALL = """
import sys, zipfile
sys.path.insert(0, sys.argv[1])
if sys.version_info < (3, 11):
    from inplace.common.bare.py310 import install
    install()
modules = [name[:-3].replace("/", ".") for name in zipfile.ZipFile(sys.argv[1]).namelist()
           if name.startswith("inplace/") and name.endswith(".py") and "__" not in name]
for module in modules:
    __import__(module)
print(len(modules))
"""


def test_every_module_is_understood(pyz: Path, python: str) -> None:
    """Each module of ours compiles and imports from its source under each Python, with nothing installed there."""
    done = subprocess.run([python, "-I", "-S", "-c", IMPORT_ALL, pyz], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 25


def test_a_training_script_says_its_steps(pyz: Path, python: str, tmp_path: Path) -> None:
    """With the file in its PYTHONPATH, and nothing installed."""
    done = subprocess.run(
        [python, "-S", "-c", "import inplace; inplace.progress(3)"],
        env={"PYTHONPATH": str(pyz), "INPLACE_PROGRESS_DIR": str(tmp_path), "RANK": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "rank-0").read_text().startswith("v1 - 3 ")


@pytest.mark.asyncio
async def test_a_whole_start_and_restart(pyz: Path, python: str, tmp_path: Path) -> None:
    """Under `version` with no package installed the file runs a whole start and restart, from exec to exit X."""
    async with ScriptedServer(lists=[jobset(0)], watches=[FINISH]) as server:
        env = environment(tmp_path, server, PYTHONPATH="")
        async with process(env, python, "-I", "-S", str(pyz)) as child:
            code, lines = await finished(child)
    assert code == 88, lines
    assert [line["event"] for line in lines][-1] == "restarting_in_place"
    assert len(server.requests("PATCH")) == 1


@pytest.mark.asyncio
async def test_a_supervisor_and_its_worker(pyz: Path, python: str, tmp_path: Path) -> None:
    """The file also supervises a worker under each Python: it starts in epoch 1, and both end with 0."""
    async with ScriptedServer(lists=[jobset(0)], watches=[(until_patched(), jobset(1, 0, rv=20), silence)]) as server:
        env = environment(tmp_path, server, PYTHONPATH="")
        worker = ("run", "--", "/bin/sh", "-c", 'test "$INPLACE_EPOCH" = 1')
        async with process(env, python, "-I", "-S", str(pyz), *worker) as child:
            code, lines = await finished(child)
    assert code == 0, lines
    assert "worker_exited" in [line["event"] for line in lines]


@pytest.mark.asyncio
async def test_a_kubeconfig_in_yaml_is_refused_in_words(pyz: Path, tmp_path: Path) -> None:
    """The file has no YAML parser: with a kubeconfig in YAML the agent says what it reads, and sends nothing."""
    async with ScriptedServer() as server:
        env = environment(tmp_path, server)
        Path(env["KUBECONFIG"]).write_text("kind: Config\n")
        async with process(env, sys.executable, "-I", "-S", str(pyz)) as child:
            code, lines = await finished(child)
    assert code == 2
    assert "expected JSON" in str(lines[0]["message"])


def test_it_says_its_version(pyz: Path) -> None:
    """The file runs as a program, by its first line, and prints its version."""
    done = subprocess.run([pyz, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "inplace-agent 0.1.0\n"


def test_what_cannot_be_built_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong --python and a target that cannot be written give messages."""
    with pytest.raises(BuildError, match="expected /bin/false to be a Python"):
        build(tmp_path / "x.pyz", ["/bin/false"])
    (tmp_path / "file").write_text("")
    assert main(["--output", str(tmp_path / "file" / "x.pyz")]) == 1
    assert "expected to write" in capsys.readouterr().err


def test_the_model_runs_no_program() -> None:
    """--agent-pyz with modelled containers is refused: a model runs no program."""
    result = run("demo", "--agent-pyz", "--runtime", "model")
    assert result.returncode == 1
    assert "expected --runtime process, saw model" in result.stderr


def test_the_demo_runs_it_as_a_supervisor() -> None:
    """The demo runs the file as a supervisor: one restart, and kubelet restarts no container."""
    last = demo_json("--agent-pyz", "--mode", "supervisor", "--pods", "2", "--failures", "1")
    assert (len(last["restarts"]), last["containers_restarted"], last["pods_recreated"]) == (1, 0, 0)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[str]:
    """Run a demo with the one-file agent that stays up after one restart; return its kubeconfig."""
    with kept_demo(tmp_path, "--failures", "1", "--agent-pyz") as (demo, path):
        yield path
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=RUN_S_MAX)


def get(address: str, path: str, token: str = "") -> bytes:
    """Return the body of an answer."""
    with closing(HTTPConnection(address, timeout=10)) as connection:
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
        return connection.getresponse().read()


@pytest.mark.asyncio
async def test_the_demo_runs_it_and_its_metrics_pass_the_linter(kubeconfig: str, tmp_path: Path) -> None:
    """Every agent and guard of the demo runs from the file, and promtool accepts an agent's metrics after a restart."""
    credentials = read_kubeconfig(kubeconfig)
    server = f"{credentials.host}:{credentials.port}"
    pods = json.loads(get(server, "/api/v1/namespaces/default/pods", credentials.token))["items"]
    assert len(pods) == 2
    for pod in pods:
        exposed = get(f"{pod['status']['podIP']}:8080", "/metrics")
        assert re.search(rb"inplace_agent_epoch [2-9]", exposed)  # a starved machine may restart the group once more
        assert b'phase_duration_seconds_count{phase="lift"} 1.0' in exposed
        assert b'phase_duration_seconds_count{phase="kubelet"} 1.0' in exposed
        assert await complaints(exposed) == ""
    assert len(agents_of_files(tmp_path)) == 2 * len(pods)


def agents_of_files(folder: Path) -> list[str]:
    """Return the command lines of agents that run from a demo's programs below a folder: other demos may run."""
    start = f"{folder}/inplace-programs-"
    lines = [line.decode().split("\0") for _, line in processes("cmdline")]
    return [
        " ".join(words)
        for words in lines
        if any(word.startswith(start) and word.endswith("/inplace-agent") for word in words)
    ]


def test_what_an_installation_leaves_behind_does_no_harm(tmp_path: Path) -> None:
    """Metadata that `pip install .` leaves in the source tree list no licence; the file is built all the same."""
    left = tmp_path / "inplace.egg-info"
    left.mkdir()
    (left / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: inplace\nVersion: 0.0.9\n")
    (left / "SOURCES.txt").write_text("LICENSE\npyproject.toml\ninplace/__init__.py\n")
    target = tmp_path / "agent.pyz"
    done = subprocess.run(
        [sys.executable, "-m", "inplace.cli.agent_pyz", "--output", str(target)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(target) as archive:
        assert archive.read("LICENSE") == (REPOSITORY / "LICENSE").read_bytes()
