"""Ranks are asked where they are: real processes, whatever they do with signals, and none ends of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from inplace.agent.stacks.look import ALL_BYTES_MAX, ANSWER_S_MAX, LINE_BYTES_MAX, ask
from tests.agent.process import ROOT

IMPORTS = "import inplace, os, signal, sys, time\n"
SLEEP = "print('ready', flush=True)\nwhile True: time.sleep(3600)\n"
PROGRAM = "import sys\nsys.path[:] = {path!r}\nfrom inplace.agent.stacks.look import main\nsys.exit(main())\n"


@contextmanager
def worker(script: str, *, epoch: str | None = "1", ready: int = 1, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program until it has said `ready` so often; it and its children are gone afterwards."""
    own = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | env | ({"INPLACE_EPOCH": epoch} if epoch else {})
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
        try:
            assert child.stdout is not None
            for _ in range(ready):
                assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def asked(main: int, **env: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Ask a worker's ranks; return the lines of their threads, and the last line."""
    command = [sys.executable, "-IS", "-c", PROGRAM.format(path=[str(ROOT), *sys.path]), str(main), "7"]
    done = subprocess.run(command, env={"PATH": "/bin"} | env, capture_output=True, text=True, timeout=20, check=True)
    texts = done.stderr.splitlines()
    assert all(len(text) < LINE_BYTES_MAX for text in texts)
    assert len(done.stderr) < ALL_BYTES_MAX
    *lines, last = [json.loads(text) for text in texts]
    assert {line["event"] for line in lines} <= {"stack"}
    assert last["event"] == "stacks_taken"
    assert {line["request"] for line in (*lines, last)} == {7}
    return lines, last


@pytest.mark.attack
def test_no_file_that_has_a_name_is_emptied_for_an_answer(tmp_path: Path) -> None:
    """A worker may show any file of its container in place of its own; a guard's user may have more rights on it."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    script = f"held = open({str(victim)!r})\nprint('ready', flush=True)\nwhile True: time.sleep(3600)\n"
    with worker(IMPORTS + script) as child:
        shown = Path(f"/proc/{child.pid}/fd")
        (held,) = (int(one.name) for one in shown.iterdir() if one.resolve() == victim)
        assert ask([(child.pid, held)]) == {}
    assert victim.read_text() == "kept"


def alive(child: subprocess.Popen[str]) -> bool:
    """Say whether a worker still runs, a moment after it was asked."""
    time.sleep(0.1)
    return child.poll() is None


def test_a_rank_that_imports_inplace_answers(tmp_path: Path) -> None:
    """All its threads, the main one first, the innermost frame first; and the step of its progress file."""
    script = IMPORTS + "import threading\ndef read(): time.sleep(3600)\nthreading.Thread(target=read).start()\n"
    script += "inplace.progress(812)\ndef step():\n  print('ready', flush=True)\n  read()\nstep()\n"
    with worker(script, RANK="3", INPLACE_PROGRESS_DIR=str(tmp_path)) as child:
        lines, last = asked(child.pid, INPLACE_PROGRESS_DIR=str(tmp_path))
        assert alive(child)
    main, other = lines
    assert main["frames"] == ["read <string>:3", "step <string>:8", "<module> <string>:9"]
    assert (main["rank"], main["step"], main["by"], main["state"], main["thread"]) == (
        "rank-3",
        812,
        "faulthandler",
        "S",
        "main",
    )
    assert other["frames"][0] == "read <string>:3"
    assert (last["ranks"], main["silent"], main["left_out"]) == (1, False, False)


def test_a_rank_can_be_asked_for_ever() -> None:
    """Its file does not grow."""
    with worker(IMPORTS + SLEEP) as child:
        sizes = set()
        for _ in range(3):
            asked(child.pid)
            found = [fd for fd in Path(f"/proc/{child.pid}/fd").iterdir() if "inplace-stacks" in str(fd.readlink())]
            sizes.add(found[0].stat().st_size)
        assert alive(child)
    assert len(sizes) == 1


@pytest.mark.parametrize(
    "script",
    [
        "import os, time\n" + SLEEP,
        IMPORTS + "os.execv(sys.executable, [sys.executable, '-c', \"import time\\n\" + " + repr(SLEEP) + "])\n",
        "import signal\nsignal.signal(signal.SIGURG, lambda *_: sys.exit(9))\n" + IMPORTS + SLEEP,
        IMPORTS + "os.closerange(3, 4096)\n" + SLEEP,
        IMPORTS + "import faulthandler\nfaulthandler.unregister(signal.SIGURG)\n" + SLEEP,
    ],
    ids=["no import", "exec after the import", "a handler of its own", "all descriptors closed", "unregistered"],
)
def test_who_cannot_answer_is_looked_at_in_the_kernel(script: str) -> None:
    """It is not asked, so it lives on whatever it would have done."""
    with worker(script) as child:
        (main, *_), _ = asked(child.pid)
        assert alive(child)
    assert (main["by"], main["silent"], main["state"], main["pid"]) == ("kernel", False, "S", child.pid)


def test_other_handlers_are_left_alone() -> None:
    """Those of a framework, for SIGUSR1, SIGUSR2, SIGTERM and SIGCHLD, and a dump of faulthandler's own."""
    numbers = "(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGCHLD)"
    script = IMPORTS + f"for number in {numbers}: signal.signal(number, lambda n, _: print('ready', n, flush=True))\n"
    script += "import faulthandler\nfaulthandler.enable()\n" + SLEEP
    with worker(script) as child:
        (main, *_), _ = asked(child.pid)
        assert main["by"] == "faulthandler"
        os.kill(child.pid, signal.SIGUSR1)
        assert child.stdout is not None
        assert child.stdout.readline() == f"ready {int(signal.SIGUSR1)}\n"


def test_a_stopped_rank_answers_nothing_at_once() -> None:
    """Nobody waits for it, and it goes on as before when it may."""
    with worker(IMPORTS + SLEEP) as child:
        os.kill(child.pid, signal.SIGSTOP)
        (main, *_), last = asked(child.pid)
        assert (main["silent"], main["state"], main["by"]) == (True, "T", "kernel")
        assert last["took_s"] < ANSWER_S_MAX
        os.kill(child.pid, signal.SIGCONT)
        assert asked(child.pid)[0][0]["by"] == "faulthandler"
        assert alive(child)


def test_a_rank_that_takes_no_signal_is_waited_for_in_bounds() -> None:
    """As one in uninterruptible sleep."""
    with worker(IMPORTS + "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])\n" + SLEEP) as child:
        (main, *_), last = asked(child.pid)
        assert alive(child)
    assert (main["silent"], main["message"]) == (True, f"it did not answer within {ANSWER_S_MAX:g} s")
    assert ANSWER_S_MAX <= last["took_s"] < 2 * ANSWER_S_MAX


def test_ten_thousand_frames_are_cut() -> None:
    """The innermost ones are kept, and the line says that there are more."""
    script = IMPORTS + "sys.setrecursionlimit(20_000)\ndef deep(n):\n  if n: deep(n - 1)\n  else:\n"
    script += textwrap.indent(SLEEP, "    ") + "deep(10_000)\n"
    with worker(script) as child:
        (main, *_), _ = asked(child.pid)
        assert alive(child)
    assert (main["thread"], main["left_out"], len(main["frames"])) == ("main", True, 100)
    assert main["frames"][0] == "deep <string>:7"


LAUNCHER = """
import os, subprocess, sys, time
children = [
    subprocess.Popen([sys.executable, "-c", sys.argv[1] if len(sys.argv) > 1 else os.environ["SCRIPT"]],
                     env=os.environ | {"RANK": str(rank)})
    for rank in range(3)
]
time.sleep(3600)
"""
LOADER = (
    "import multiprocessing as m\nm.get_context('fork').Process(target=time.sleep, args=(3600,), daemon=True).start()\n"
)


@pytest.mark.parametrize(("imports", "by"), [(IMPORTS, "faulthandler"), ("import time\n", "kernel")])
def test_the_ranks_of_a_launcher_are_found(imports: str, by: str) -> None:
    """Neither the launcher nor the ranks' own helpers count."""
    with worker(LAUNCHER, epoch="1", ready=3, SCRIPT=imports + LOADER + SLEEP) as child:
        lines, last = asked(child.pid)
        assert alive(child)
    mains = [line for line in lines if line["thread"] == "main"]
    assert [(line["rank"], line["by"]) for line in mains] == [(f"rank-{rank}", by) for rank in range(3)]
    assert last["ranks"] == 3


def test_a_shell_before_the_rank_is_no_rank() -> None:
    """Its environment is the container's, with the same RANK."""
    command = f'{sys.executable} -c "$SCRIPT"; true'
    script = f"import subprocess\nsubprocess.run(['/bin/sh', '-c', {command!r}])\n"
    with worker(script, RANK="5", SCRIPT=IMPORTS + SLEEP) as child:
        lines, _ = asked(child.pid)
    assert [(line["rank"], line["by"]) for line in lines] == [("rank-5", "faulthandler")]


PY_SPY = """#!{python} -IS
import json, sys
pid = int(sys.argv[-1])
assert sys.argv[1:] == ["dump", "--nonblocking", "--json", "--pid", str(pid)]
frames = [{{"name": "read", "filename": "/work/dataset.py", "line": 88, "locals": "secret"}}]
print(json.dumps([{{"thread_name": "pool", "os_thread_id": 1, "frames": []}},
                  {{"thread_name": "MainThread", "os_thread_id": pid, "frames": frames}}]))
"""


@pytest.mark.parametrize(
    ("program", "by", "frames"),
    [
        (PY_SPY.format(python=sys.executable), "py-spy", ["read /work/dataset.py:88"]),
        ("#!/bin/sh\necho nonsense; exit 1\n", "kernel", None),
        pytest.param("#!/bin/sh\nexec sleep 3600\n", "kernel", None, marks=pytest.mark.slow),
    ],
    ids=["it works", "it fails", "it hangs"],
)
def test_py_spy_looks_where_it_is_in_path(tmp_path: Path, program: str, by: str, frames: list[str] | None) -> None:
    """Without stopping the rank; what it does wrong is said, and the kernel says what it knows."""
    (tmp_path / "py-spy").write_text(program)
    (tmp_path / "py-spy").chmod(0o755)
    with worker("import time\n" + SLEEP, epoch=None) as child:
        (main, *_), _ = asked(child.pid, PATH=f"{tmp_path}:/bin")
    assert main["by"] == by
    assert frames is None or main["frames"] == frames
    assert (main["message"] is None) == (by == "py-spy")


def test_a_worker_that_is_gone_has_no_ranks() -> None:
    """The answer says so, and nothing fails."""
    with worker("import time\n" + SLEEP) as child:
        pid = child.pid
    assert asked(pid)[1]["ranks"] == 0
