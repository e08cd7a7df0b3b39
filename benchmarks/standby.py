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
import json
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

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
) -> dict[str, Any]:
    """Measure one worker's restarts; return milliseconds, and how many workers were standbys."""
    script, starts = folder / "worker.py", folder / "starts"
    script.write_text(SCRIPT.format(imports=imports, starts=str(starts)))
    starts.write_text("")
    option = ["--standby"] if standby else []
    command = ["inplace-agent", "run", *option, "--", "python3", str(script)]
    restarts = await measure(options.pods, options.runs, options.seed, command, pause_s)
    totals = [((restart.stepped_s or 0.0) - restart.began_s) * 1e3 for restart in restarts]
    released = starts.read_text().split().count("standby")
    return {
        "median_ms": round(median(totals)),
        "min_ms": round(min(totals)),
        "max_ms": round(max(totals)),
        "standbys": released,
        "starts": options.runs * options.pods,
    }


async def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    """Measure each worker both ways, and kills that come too early."""
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="inplace-standby-") as name:
        for what, imports in IMPORTS.items():
            for standby in (False, True):
                key = f"{what}_{'standby' if standby else 'ordinary'}"
                found[key] = await case(Path(name), imports, standby=standby, options=options, pause_s=options.pause_s)
        found["sleep_early"] = await case(Path(name), IMPORTS["sleep"], standby=True, options=options, pause_s=PAUSE_S)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standby", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--pods", type=int, default=4)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-s", type=float, default=6.0, help="from one restart to the next kill")
    options = parser.parse_args()
    found = asyncio.run(measure_all(options))
    if options.json:
        print(json.dumps(found))
        return
    print(f"worker's death to the first step of all {options.pods} workers, {options.runs} restarts each:")
    for name, one in found.items():
        times = f"{one['median_ms']} ms ({one['min_ms']} to {one['max_ms']})"
        print(f"  {name:17} {times:24} {one['standbys']} of {one['starts']} workers were standbys")


if __name__ == "__main__":
    main()
