"""
Run the scenarios with our controller and with upstream's, and print what each saw, one row a scenario.

    python -m tests.cluster.clients.table [TEST-FILE-OR-ID...]

It is what docs/behaviour.md says under "With Kueue and Trainer". It takes twice the time of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from testbed.go_module import MOD, pinned
from testbed.go_programs import (
    KUEUE,
    KUEUE_MODULE,
    TRAINER,
    TRAINER_MODULE,
    UPSTREAM_MODULE,
    kubernetes_version,
    upstream_version,
)
from tests.cli.command import REPOSITORY

SCENARIOS: Final = ("admission", "preemption", "in_place", "pods_ready", "spellings", "topology", "outages", "trainer")
CONTROLLERS: Final = ("ours", "upstream")
CALLS_ONLY: Final = ("-o", "junit_duration_report=call")  # the first scenario would have the start of everything
RUN_S_MAX: Final = 3600.0
WORDS_MAX: Final = 90


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 1 when a scenario failed with our controller."""
    targets = arguments or [f"tests/cluster/clients/test_{name}.py" for name in SCENARIOS]
    columns = {name: outcomes(name, targets) for name in CONTROLLERS}
    clients = (
        f"{path} {pinned(module.directory / MOD, path)}"
        for module, path in ((KUEUE, KUEUE_MODULE), (TRAINER, TRAINER_MODULE))
    )
    print(f"Kubernetes {kubernetes_version()}", f"{UPSTREAM_MODULE} {upstream_version()}", *clients, sep=", ")
    print("| scenario | ours | upstream |\n|---|---|---|")
    for test in columns["ours"]:
        print(f"| {test} | {columns['ours'][test]} | {columns['upstream'].get(test, 'not run')} |")
    return int(any("failed" in each for each in columns["ours"].values()))


def outcomes(controller: str, targets: Sequence[str]) -> dict[str, str]:
    """Return what each scenario came to with a controller: its seconds, or why it failed."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = (sys.executable, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}", *CALLS_ONLY, *targets)
        environment = {**os.environ, "JOBSET_CONTROLLER": controller}
        subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=sys.stderr, timeout=RUN_S_MAX, check=False)
        cases = ElementTree.parse(report).getroot().iter("testcase")  # noqa: S314 - pytest wrote it just now
        return {f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    for kind in ("failure", "error", "skipped"):
        if (found := case.find(kind)) is not None:
            words = " ".join(found.get("message", "").replace("|", "/").split())
            return f"{'failed' if kind != 'skipped' else kind}: {words[:WORDS_MAX]}"
    return f"{float(case.get('time', 0)):.1f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
