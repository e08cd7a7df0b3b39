"""A training script leaves the exception that ends it for its agent, and prints its traceback as ever."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from inplace.last_words import LINE_BYTES_MAX
from tests.inplace.test_rank_file import run

USES = "import inplace; inplace.progress; "


def dies(folder: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script as rank 3 in epoch 7, which fails."""
    return run(code, **({"INPLACE_PROGRESS_DIR": str(folder), "INPLACE_EPOCH": "7", "RANK": "3"} | env))


def left(folder: Path, name: str = ".rank-3.error") -> str:
    """Return what a rank left."""
    return (folder / name).read_text()


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("raise ValueError('expected 4 GPUs, saw 3')", "ValueError: expected 4 GPUs, saw 3"),
        ("raise ValueError('\\n CUDA error\\nmore')", "ValueError: CUDA error"),
        ("import json; json.loads('{')", "json.decoder.JSONDecodeError: Expecting property name enclosed"),
        ("class Bad(Exception): pass\nraise Bad", "Bad\n"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_the_exception_is_left_in_one_line(tmp_path: Path, code: str, line: str) -> None:
    """With the epoch; the traceback is printed as without the hook, and the exit code is the same."""
    done, plain = dies(tmp_path, USES + "\n" + code), run("\n" + code)
    assert left(tmp_path).startswith(f"v1 7 1 {line}")
    assert left(tmp_path).count("\n") == 1
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)


def test_a_hook_that_was_there_before_is_called(tmp_path: Path) -> None:
    """And one that comes later, and calls ours, works too."""
    before = "import sys\nsys.excepthook = lambda *_: print('before')\n"
    after = "\nold = sys.excepthook\nsys.excepthook = lambda *a: (print('after'), old(*a))\nraise ValueError('x')"
    done = dies(tmp_path, before + USES + after)
    assert done.stdout == "after\nbefore\n"
    assert left(tmp_path) == "v1 7 1 ValueError: x\n"


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(3)",
        "import os; os.environ['INPLACE_STANDBY'] = 'wait:3:4'; raise ValueError",
        "raise KeyboardInterrupt",
        "import os; os.environ.pop('INPLACE_PROGRESS_DIR', None); raise ValueError",
        "import os; os.environ['INPLACE_PROGRESS_DIR'] = '/nowhere'; raise ValueError",
        "class Bad(Exception):\n def __str__(self): raise RuntimeError\nraise Bad",
    ],
)
def test_nothing_is_left_where_nothing_can_be(tmp_path: Path, code: str) -> None:
    """And the script ends as without the hook."""
    done, plain = dies(tmp_path, USES + "\n" + code), run("\n" + code)
    assert list(tmp_path.iterdir()) == []
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("sys.exit(3)", "3 SystemExit: 3"),
        ("sys.exit('no data')", "1 SystemExit: no data"),
        ("inplace.progress(1)\natexit.register(seen)\nsys.exit(3)", "3 SystemExit: 3"),
        ("atexit.register(seen)\ninplace.progress(1)\nraise ValueError('x')", "1 ValueError: x"),
        ("sys.excepthook = lambda *a: None\ninplace.progress(1)\nraise ValueError('x')", "1 ValueError: x"),
        (
            "old = sys.excepthook\nsys.excepthook = lambda *a: old(*a)\ninplace.progress(1)\nraise ValueError('x')",
            "1 Val",
        ),
        ("if not os.fork():\n inplace.progress(1)\n raise ValueError('x')\nos.wait()", "1 ValueError: x"),
        ("if not os.fork():\n raise ValueError('x')\nos.wait()", "- ValueError: x"),
        ("try: 1 / 0\nexcept Exception: sys.excepthook(*sys.exc_info())", "- ZeroDivisionError: division by zero"),
        ("os.environ |= {'TORCHELASTIC_MAX_RESTARTS': '3', 'TORCHELASTIC_RESTART_COUNT': '2'}\nraise KeyError", "-"),
        ("os.environ |= {'TORCHELASTIC_MAX_RESTARTS': '3', 'TORCHELASTIC_RESTART_COUNT': '3'}\nraise KeyError", "1"),
        (
            "raise RuntimeError('\\n-- Process 1:\\nTraceback (most recent call last):\\n  x\\nKeyError: 7')",
            "1 RuntimeError: K",
        ),
    ],
)
def test_the_code_says_that_the_rank_has_ended(tmp_path: Path, code: str, line: str) -> None:
    """It stands there BEFORE any exit handler runs; "-" is for what may not have ended the rank."""
    seen = "import atexit, os, sys\nseen = lambda: os.system('cat $INPLACE_PROGRESS_DIR/.rank-3.error')\n"
    done = dies(tmp_path, seen + USES + "\n" + code)
    assert left(tmp_path).startswith(f"v1 7 {line}")
    assert "seen" not in code.replace("seen = ", "") or done.stdout.startswith(f"v1 7 {line}")


@pytest.mark.parametrize(
    "code",
    [
        "sys.exit()",
        "sys.exit(0)",
        "try: sys.exit(3)\nexcept SystemExit: inplace.progress(2)",
        "if not os.fork(): sys.exit(3)\nos.wait()",
        "run(target=lambda: 1 / 0)",
        "run(target=lambda: sys.exit(3))",
        "from multiprocessing import Process\nchild = Process(target=lambda: 1 / 0); child.start(); child.join()",
        "os._exit(3)",
    ],
)
def test_a_rank_that_ends_well_or_goes_on_leaves_nothing(tmp_path: Path, code: str) -> None:
    """Neither do other threads, and helpers that come to no hook."""
    run_thread = (
        "import os, sys, threading\ndef run(target):\n t = threading.Thread(target=target); t.start(); t.join()\n"
    )
    dies(tmp_path, run_thread + USES + "\ninplace.progress(1)\n" + code)
    assert not (tmp_path / ".rank-3.error").exists()


@pytest.mark.parametrize(
    ("end", "is_ended"), [("raise ValueError", False), ("sys.exit(3)", False), ("sys.exit(0)", True)]
)
def test_a_rank_that_failed_is_not_at_its_own_end(tmp_path: Path, end: str, *, is_ended: bool) -> None:
    """Its file does not say `ended`: a watchdog that waits for it must not drop it."""
    dies(tmp_path, f"import sys\n{USES}\ninplace.progress(1)\n{end}")
    assert ("ended" in (tmp_path / "rank-3").read_text()) is is_ended


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    """A message of 100 MB costs no more than its object."""
    dies(tmp_path, USES + "raise ValueError('é' * 50_000_000)")
    assert (tmp_path / ".rank-3.error").stat().st_size <= LINE_BYTES_MAX


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Whatever lies at the file's place."""
    folder, other = tmp_path / "progress", tmp_path / "other"
    folder.mkdir()
    other.write_text("kept")
    (folder / ".rank-3.error").symlink_to(other)
    dies(folder, USES + "raise ValueError")
    assert other.read_text() == "kept"


def test_a_script_that_never_uses_the_package_has_no_hook() -> None:
    """Importing it is not enough: agents import it too."""
    assert run("import sys, inplace; print(sys.excepthook is sys.__excepthook__)").stdout == "True\n"
