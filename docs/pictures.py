"""
Make the pictures of docs/images that show the command line: `python -m docs.pictures`, after `make setup`.

`inplace status --watch` runs in a terminal of tmux while `inplace restart` restarts the group of a demo; what the
terminal showed in the middle of it becomes an SVG. `inplace timeline` draws the same restart itself.
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

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
PODS: Final = 48
COLUMNS, LINES = 92, 24
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
    with _demo() as kubeconfig:
        environment = os.environ | {"KUBECONFIG": kubeconfig}
        screen = _watched_restart(environment)
        (IMAGES / "status-watch.svg").write_text(_svg(screen, "inplace status train --watch"))
        _until(lambda: _all_are_lifted(environment), RESTART_S_MAX)
        _inplace(environment, "timeline", "train", "--svg", str(IMAGES / "timeline.svg"))
    for name in ("status-watch.svg", "timeline.svg"):
        print(IMAGES / name)


@contextmanager
def _demo() -> Iterator[str]:
    """Run a demo beside the block and yield its kubeconfig; the group trains."""
    command = [sys.executable, "-m", "inplace.cli", "demo", "--keep", "--runtime", "model", "--failures", "0"]
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
            _until(lambda: f"{PODS} working" in _inplace(environment, "status", "train", check=False), UP_S_MAX)
            yield found[1]
        finally:
            demo.terminate()
            demo.communicate()


def _watched_restart(environment: dict[str, str]) -> str:
    """Return what the terminal showed in the middle of a restart, with its colours."""
    with tempfile.TemporaryDirectory() as folder:
        tmux = ["tmux", "-f", os.devnull, "-S", f"{folder}/socket"]
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        watch = f"{sys.executable} -m inplace.cli status train --watch"
        subprocess.run([*tmux, "new-session", "-d", *size, watch], cwd=ROOT, env=environment, check=True)
        try:
            _until(lambda: "Running" in _captured(tmux), UP_S_MAX)
            _inplace(environment, "restart", "train")
            shots: list[str] = []
            _until(lambda: _is_over(tmux, shots), RESTART_S_MAX)
        finally:
            subprocess.run([*tmux, "kill-server"], check=False)
    return shots[len(shots) // 2]


def _is_over(tmux: list[str], shots: list[str]) -> bool:
    """Keep what is shown while some Pods have arrived and others have not; say whether the group runs again."""
    shown = _captured(tmux)
    if "Restarting" in shown and not re.search(r"\b(0|100)(\.0)? %", shown):
        shots.append(shown)
    return bool(shots) and "Running" in shown


def _all_are_lifted(environment: dict[str, str]) -> bool:
    """Say whether kubelets have reported that every new worker runs; the group is called Running before that."""
    timeline = json.loads(_inplace(environment, "timeline", "train", "-o", "json"))
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
