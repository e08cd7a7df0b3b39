"""
Make the pictures of docs/images that show the command line: `python -m docs.pictures`, after `make setup`.

`inplace demo` runs in a terminal of tmux, and what it showed becomes a film (docs/film.py). `inplace status --watch`
runs in another one, while `inplace restart` restarts the group of another demo; what the terminal showed in the middle
of it becomes an SVG. `inplace timeline` draws the same restart itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from docs.film import Shot, film

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
PODS: Final = 48
JOBSET: Final = "plain"  # of the demo's example
COLUMNS, LINES = 92, 24
DEMO_COLUMNS: Final = 80
DEMO_S_MAX: Final = 180.0
LINGER_S: Final = 5  # the terminal stays for so long after the demo's end
SHOWN_S: Final = 2.0  # each screen of the film; a restart takes 0.1 s, which nobody could read
END_SHOWN_S: Final = 12.0
UP_S_MAX: Final = 180.0  # 48 agents start on a machine that may be busy
RESTART_S_MAX: Final = 120.0
LOOK_S: Final = 0.1  # a restart of the demo takes some seconds


class PictureError(Exception):
    """A picture could not be made."""


def main() -> None:
    """Make the pictures."""
    if shutil.which("tmux") is None:
        sys.exit("docs.pictures: tmux is missing; on Debian: apt-get install tmux")
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "demo.svg").write_text(_filmed_demo())
    with _demo() as kubeconfig:
        environment = os.environ | {"KUBECONFIG": kubeconfig}
        screen = _watched_restart(environment)
        (IMAGES / "status-watch.svg").write_text(_svg(screen, f"inplace status {JOBSET} --watch"))
        _until(lambda: _all_are_lifted(environment), RESTART_S_MAX)
    for name in ("demo.svg", "status-watch.svg"):
        print(IMAGES / name)


@contextmanager
def _demo() -> Iterator[str]:
    """Run a demo beside the block and yield its kubeconfig; the group trains."""
    command = [sys.executable, "-m", "inplace.cli", "demo", "--keep", "--runtime", "model", "--failures", "0"]
    command += ["--mode", "containers"]  # in depth process a restart is over before there is a picture of it
    with tempfile.TemporaryFile("w+") as errors:
        demo = subprocess.Popen(
            [*command, "--pods", str(PODS)], cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert demo.stdout is not None
        try:
            found = re.search(r"KUBECONFIG=(\S+)", demo.stdout.readline())
            if found is None:
                errors.seek(0)
                raise PictureError(f"expected the demo's kubeconfig, saw {errors.read()[-500:]}")
            environment = os.environ | {"KUBECONFIG": found[1]}
            _until(lambda: f"{PODS} working" in _inplace(environment, "status", JOBSET, check=False), UP_S_MAX)
            yield found[1]
        finally:
            demo.terminate()
            demo.communicate()


@contextmanager
def _terminal(columns: int, command: str, environment: dict[str, str]) -> Iterator[list[str]]:
    """Run a command of the shell in a terminal, and yield the beginning of tmux's commands for it."""
    with tempfile.TemporaryDirectory() as folder:
        tmux = ["tmux", "-f", os.devnull, "-S", f"{folder}/socket"]
        size = ["-x", str(columns), "-y", str(LINES)]
        subprocess.run([*tmux, "new-session", "-d", *size, command], cwd=ROOT, env=environment, check=True)
        try:
            yield tmux
        finally:
            subprocess.run([*tmux, "kill-server"], check=False, stderr=subprocess.DEVNULL)


def _filmed_demo() -> str:
    """Return the film of a demo: of each state that its live picture names the last screen, and the end."""
    command = f"echo '$ inplace demo'; {sys.executable} -m inplace.cli demo; sleep {LINGER_S}"
    screens: list[tuple[str, str]] = []
    with _terminal(DEMO_COLUMNS, command, dict(os.environ)) as tmux:
        _until(lambda: _is_filmed(tmux, screens), DEMO_S_MAX)
    shots = [Shot(screen, SHOWN_S) for _, screen in screens[:-1]]
    return film([*shots, Shot(screens[-1][1], END_SHOWN_S)], "inplace demo", DEMO_COLUMNS, LINES)


def _is_filmed(tmux: list[str], screens: list[tuple[str, str]]) -> bool:
    """Keep a screen in which the group starts, restarts or trains, in the place of the one before in the same state."""
    shown = _captured(tmux)
    plain = str(Text.from_ansi(shown))
    if "pods recreated: " in plain:
        screens.append(("end", shown))
        return True
    state = re.search(r"^JobSet .*; (.+)\n(first start|restart|training|new Pods)\b", plain, re.MULTILINE)
    if state is not None:
        key = " ".join(state.groups())
        if screens and screens[-1][0] == key:
            screens.pop()
        screens.append((key, shown))
    return False


def _watched_restart(environment: dict[str, str]) -> str:
    """Return what the terminal showed in the middle of a restart, with its colours."""
    command = f"{sys.executable} -m inplace.cli status {JOBSET} --watch"
    shots: list[str] = []
    with _terminal(COLUMNS, command, environment) as tmux:
        _until(lambda: "Running" in _captured(tmux), UP_S_MAX)
        _inplace(environment, "restart", JOBSET)
        _until(lambda: _is_over(tmux, shots), RESTART_S_MAX)
    return shots[len(shots) // 2]


def _is_over(tmux: list[str], shots: list[str]) -> bool:
    """Keep what is shown while some Pods have arrived and others have not; say whether the group runs again."""
    shown = _captured(tmux)
    if "Restarting" in shown and not re.search(r"\b(0|100)(\.0)? %", shown):
        shots.append(shown)
    return bool(shots) and "Running" in shown


def _all_are_lifted(environment: dict[str, str]) -> bool:
    """Say whether kubelets have reported that every new worker runs; the group is called Running before that."""
    timeline = json.loads(_inplace(environment, "timeline", JOBSET, "-o", "json"))
    return all(row["ends"]["barrier"] is not None for row in timeline["rows"])


def _captured(tmux: list[str]) -> str:
    done = subprocess.run([*tmux, "capture-pane", "-p", "-e"], capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


def _until(holds: object, seconds: float) -> None:
    """Wait, bounded."""
    assert callable(holds)
    end_s = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end_s:
            raise PictureError(f"expected the demo to get on within {seconds:g} s")
        time.sleep(LOOK_S)


def _inplace(environment: dict[str, str], *arguments: str, check: bool = True) -> str:
    command = [sys.executable, "-m", "inplace.cli", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=check).stdout


def _svg(screen: str, title: str) -> str:
    """Draw a terminal; the reader's own fonts, nothing is fetched."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123 - never written to
    console.print(Text.from_ansi(screen))
    text = console.export_svg(title=title)
    return re.sub(r"\s*@font-face \{.*?\}", "", text, flags=re.DOTALL)


if __name__ == "__main__":
    main()
