"""
Write what is made from the builder: `python -m grafana.build`. A test compares the files with what this would write.

The dashboards, and the rules as the object that Prometheus Operator takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from grafana.controller import controller
from grafana.fleet import fleet
from grafana.herd import herd
from grafana.jobset import jobset
from grafana.layout import render
from grafana.panels import Board

FOLDER: Final = Path(__file__).parent
RULES: Final = FOLDER / "rules" / "inplace.yaml"
PROMETHEUS_RULE: Final = FOLDER.parent / "deploy" / "overlays" / "prometheusrule" / "prometheusrule.yaml"
BOARDS: Final[tuple[Callable[[], Board], ...]] = (fleet, jobset, herd, controller)
_HEADER: Final = """\
# Made from grafana/rules/inplace.yaml by `python -m grafana.build`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: inplace
  namespace: inplace-system
  labels:
    app.kubernetes.io/name: inplace-controller
spec:
"""


def path_of(board: Board) -> Path:
    """Return the file of a dashboard."""
    return FOLDER / "dashboards" / f"{board.uid}.json"


def files() -> dict[Path, str]:
    """Return every file that is made, and its text."""
    boards = [build() for build in BOARDS]
    made = {path_of(board): json.dumps(render(board), indent=2) + "\n" for board in boards}
    return made | {PROMETHEUS_RULE: prometheus_rule(RULES.read_text())}


def prometheus_rule(rules: str) -> str:
    """Return a file of rules as a PrometheusRule; its comments at the top stay with the original."""
    groups = rules[rules.index("groups:") :]
    return _HEADER + "".join(f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True))


def main() -> None:
    """Write every file."""
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
