"""
Measure what a standby saves: from one worker's SIGKILL until every worker of the group did its first step again.

    python -m benchmarks.standby [--json] [--pods 4] [--runs 8] [--pause-s 6]

The group is that of benchmarks.supervisor. Three workers in turn, each without and with `--standby`: one that waits for
a second before it can train, as if a file system was slow; one that imports some hundred modules of the standard
library; one that imports nothing. A restart sooner than its standby is ready is an ordinary start with one process more
to end: `early` kills the worker while its standby still imports.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.figures import Figures, flags
from benchmarks.supervisor import PAUSE_S, measure

IMPORTS: Final = {
    "sleep": "import time; time.sleep(1)",
    "modules": "import asyncio, concurrent.futures.process, ctypes, curses, doctest, email.mime.multipart, ftplib, "
    "http.server, idlelib.pyshell, imaplib, lib2to3.main, multiprocessing.managers, pydoc, sqlite3, smtplib, "
    "tarfile, unittest.mock, urllib.request, wsgiref.simple_server, xml.dom.minidom, xml.etree.ElementTree, "
    "xmlrpc.server, zipfile",
    "nothing": "",
}
SCRIPT: Final = """\
import os
import inplace
way = "standby" if os.environ.get("INPLACE_STANDBY", "").startswith("wait") else "ordinary"
{imports}
inplace.ready()
for step in range(3):
    inplace.progress(step)
print("step=1", flush=True)
with open({starts!r}, "a") as starts:
    starts.write(way + "\\n")
while True:
    import signal
    signal.pause()
"""


async def case(
    folder: Path, imports: str, *, standby: bool, options: argparse.Namespace, pause_s: float
) -> tuple[list[float], int]:
    """Measure one worker's restarts; return milliseconds, and how many workers were standbys."""
    script, starts = folder / "worker.py", folder / "starts"
    script.write_text(SCRIPT.format(imports=imports, starts=str(starts)))
    starts.write_text("")
    option = ["--standby"] if standby else []
    command = ["inplace-agent", "run", *option, "--", "python3", str(script)]
    restarts = await measure(options.pods, options.runs, options.seed, command, pause_s)
    totals = [((restart.stepped_s or 0.0) - restart.began_s) * 1e3 for restart in restarts]
    return totals, starts.read_text().split().count("standby")


async def measure_all(options: argparse.Namespace) -> Figures:
    """Measure each worker both ways, and kills that come too early."""
    cases = [(what, standby, options.pause_s) for what in IMPORTS for standby in (False, True)]
    figures = Figures(
        f"worker's death to the first step of all {options.pods} workers, {options.runs} restarts each; "
        f"how many of {options.runs * options.pods} starts were standbys",
        compared=[(f"{what}, standby", f"{what}, ordinary") for what in IMPORTS],
    )
    with TemporaryDirectory(prefix="inplace-standby-") as name:
        for what, standby, pause_s in [*cases, ("sleep", True, PAUSE_S)]:
            row = f"{what}, {'standby' if standby else 'ordinary'}"
            row = f"{what}, early" if row in figures.rows else row
            ms, standbys = await case(Path(name), IMPORTS[what], standby=standby, options=options, pause_s=pause_s)
            figures.rows[row] = {"ms": ms, "standbys": [standbys]}
    return figures


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, pods=4, runs=8, seed=1)
    parser.add_argument("--pause-s", type=float, default=6.0, help="from one restart to the next kill")
    options = parser.parse_args()
    asyncio.run(measure_all(options)).show(options)


if __name__ == "__main__":
    main()
