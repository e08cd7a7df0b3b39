"""`.ci/run` runs what `make check` runs, and prints the duration of each stage."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.frameworks.venv import LEFT_OUT
from tests.source.shape import ROOT

SCRIPT = (ROOT / ".ci" / "run").read_text()
PREAMBLE = SCRIPT[: SCRIPT.index("install() {")].replace('cd "$(dirname "$0")/.."', "")


def run(stages: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the script's beginning with other stages."""
    words = ["bash", "-c", PREAMBLE + stages]
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False, cwd=folder)


def test_it_checks_what_make_check_checks() -> None:
    """Each verb is a stage of its own, in the same order."""
    verbs = re.search(r"^for verb in (.*); do stage make.*\nstage twice make (test-sim)$", SCRIPT, re.MULTILINE)
    checks = re.search(r"^check: (.*?)  ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert verbs is not None
    assert checks is not None
    assert " ".join(verbs.groups()) == checks[1]


def test_seconds_are_told_for_each_stage() -> None:
    """Each stage's seconds are printed in order, and their sum."""
    done = run("stage echo one\nstage echo 'two words'\n")
    assert done.returncode == 0
    told = [re.sub(r" *\d+ s  ", "", line) for line in done.stdout.partition("by stage:\n")[2].splitlines()]
    assert told == ["echo one", "echo two words", "all"]


def test_a_stage_that_fails_ends_the_run_and_is_named() -> None:
    """A failing stage ends the run and is named, also when a line inside a function fails; seconds are printed."""
    done = run("broken() { false; echo on; }\nstage echo one\nstage broken\nstage echo three\n")
    assert done.returncode == 1
    assert "broken: it failed" in done.stdout
    assert "on" not in done.stdout.splitlines()
    assert "three" not in done.stdout


def test_what_runs_beside_is_waited_for_and_its_words_are_the_error() -> None:
    """A stage waits for it; when it fails, the run fails with its output, and what still runs is ended."""
    good = run("beside one echo quiet\nstage rest one\n")
    assert (good.returncode, "quiet" in good.stdout) == (0, False)
    slow = "beside slow sleep 1000\n"
    bad = run(f"{slow}echo ${{pids[slow]}}\nbeside two sh -c 'echo loud; exit 3'\nstage rest two\necho on\n")
    assert bad.returncode == 1
    assert "loud" in bad.stdout
    assert "rest two: it failed" in bad.stdout
    assert "on" not in bad.stdout.splitlines()
    assert not Path("/proc", bad.stdout.split()[0]).exists()


@pytest.mark.parametrize(("fails", "code"), [(0, 0), (1, 0), (2, 1)])
def test_what_waits_for_real_programs_is_tried_twice_and_named(tmp_path: Path, fails: int, code: int) -> None:
    """The second try runs what failed alone; a test that fails twice fails the run."""
    (tmp_path / "test_it.py").write_text(
        "from pathlib import Path\n"
        "def test_good(): assert not Path('tries').exists()\n"
        f"def test_late(): Path('tries').open('a').write('x'); assert len(Path('tries').read_text()) > {fails}\n"
    )
    done = run(f"stage twice {sys.executable} -m pytest -q test_it.py\necho on\n", tmp_path)
    assert (done.returncode, "on" in done.stdout.splitlines()) == (code, code == 0), done.stdout + done.stderr
    assert ('CI: FAILED, AND TRIED ONCE MORE: {  "test_it.py::test_late": true}' in done.stdout) == (fails > 0)


@pytest.mark.parametrize(
    ("installed", "code", "told"),
    [(0, 0, "make test-frameworks FRAMEWORKS=libraries"), (LEFT_OUT, 0, "CI: NO TEST RAN WITH libraries"), (1, 1, "")],
)
def test_only_a_framework_that_has_no_room_is_left_out(tmp_path: Path, installed: int, code: int, told: str) -> None:
    """A failed installation fails the run; a framework that this machine has no room for is named as not tested."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nexit {installed}\n")
    python.chmod(0o755)
    section = SCRIPT[SCRIPT.index("for framework in") : SCRIPT.index("esac\ndone\n") + len("esac\ndone\n")]
    done = run(f"make() {{ echo make $*; }}\n{section}\n", tmp_path)
    assert done.returncode == code
    assert told in done.stdout + done.stderr
    assert ("make test-frameworks" in done.stdout) == (installed == 0)


def test_what_the_model_checker_explores_is_explored_again_once_it_changes() -> None:
    """Its proof is kept by a digest of all files that it loads, those that its imports import included."""
    assert "explored=$(.venv/bin/python -m tests.source.explored)" in SCRIPT
    words = [sys.executable, "-m", "tests.source.explored"]
    digest, *_ = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(digest) == 16
    words.append("--files")
    files = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    machines = ["common/protocol/ledger.py", "controller/plan/draft.py", "common/injection/pod_failure_policy.py"]
    assert {*machines, "tests/model/world.py", "tests/planted/protocol.py"} < set(files)
    assert {file.partition("/")[0] for file in files} == {"common", "controller", "tests"}
    for file in files:  # what the package has for training scripts is left out
        assert re.search(r"^(from inplace import|import inplace$)", (ROOT / file).read_text(), re.MULTILINE) is None


def test_no_stage_is_a_condition() -> None:
    """In a condition bash does not end at an error, and a stage's own result is that of its last line."""
    assert re.search(r"\b(if|elif|while|until|!) +stage\b|\bstage\b[^\n]*(&&|\|\|)", SCRIPT) is None
