"""
Write the files that are made from the builder: the dashboards, and the rules as Prometheus Operator's object.

    python -m grafana.build
    python -m grafana.build --docs-url https://docs.example.com/inplace --to FOLDER

The first writes the files of the repository; a test compares them. The second writes them and the rules with links to
your copy of the documentation.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from grafana import controller, fleet, herd, jobset
from grafana.panels import DOCS_URL, Board, render

FOLDER: Final = Path(__file__).parent
RULES: Final = FOLDER / "rules" / "inplace.yaml"
PROMETHEUS_RULE: Final = FOLDER.parent / "deploy" / "overlays" / "prometheusrule" / "prometheusrule.yaml"
BOARDS: Final = (fleet.BOARD, jobset.BOARD, herd.BOARD, controller.BOARD)
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
    made = {path_of(board): json.dumps(render(board), indent=2) + "\n" for board in BOARDS}
    return made | {PROMETHEUS_RULE: prometheus_rule(RULES.read_text())}


def prometheus_rule(rules: str) -> str:
    """Return a file of rules as a PrometheusRule; its comments at the top stay with the original."""
    groups = rules[rules.index("groups:") :]
    return _HEADER + "".join(f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True))


def published(docs_url: str, folder: Path) -> dict[Path, str]:
    """Return what an installation loads, and where below `folder`, with links that lead to its documentation."""
    made = files() | {RULES: RULES.read_text()}
    address = docs_url.rstrip("/")
    return {folder / path.parent.name / path.name: text.replace(DOCS_URL, address) for path, text in made.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs-url", metavar="URL", help="address of your copy of docs/")
    parser.add_argument("--to", metavar="FOLDER", type=Path, help="folder for files whose links lead there")
    options = parser.parse_args(arguments)
    if (options.docs_url is None) != (options.to is None):
        parser.error("expected --docs-url URL and --to FOLDER together: the repository's own files keep their address")
    made = files() if options.to is None else published(options.docs_url, options.to)
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
