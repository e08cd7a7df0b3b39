"""
Draw every board with the data of the demo into docs/images: `python -m grafana.pictures`.

No Grafana is needed: these are the answers of a real Prometheus (testbed/grafana/scene.py) to the panels' own queries.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from grafana.build import BOARDS, FOLDER
from grafana.drawing import draw
from grafana.panels import Board
from grafana.series import Series, read
from testbed.grafana.evaluate import ask, marks, program
from testbed.grafana.scene import Played, scene

_OF_ONE: Final = {"inplace-jobset": "train"}  # boards that are looked at with one JobSet chosen
IMAGES: Final = FOLDER.parent / "docs" / "images"


async def _answers(played: Played, board: Board) -> dict[str, list[list[Series]]]:
    return {
        panel.title: [read(query, await ask(played, panel, query)) for query in panel.queries] for panel in board.panels
    }


async def _draw(path: str, folder: Path, *, with_api_server: bool) -> None:
    async with scene(path, lambda text: print(f"- {text}", file=sys.stderr), with_api_server=with_api_server) as played:
        for board in BOARDS:
            chosen = replace(played, jobset=_OF_ONE.get(board.uid, played.jobset))
            file = folder / f"{board.uid}.svg"
            marked = [mark.at_s for mark in await marks(chosen, board)] if board.uid in _OF_ONE else []
            file.write_text(draw(board, await _answers(chosen, board), played.start_s, played.end_s, marked))
            print(file)


def main() -> None:
    """Draw all boards."""
    parser = argparse.ArgumentParser(description="Draw every board with the data of a demo.")
    parser.add_argument("--folder", type=Path, default=IMAGES)
    parser.add_argument("--without-api-server", action="store_true", help="no kube-apiserver; its panels stay empty")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(_draw(program(), options.folder, with_api_server=not options.without_api_server))


if __name__ == "__main__":
    main()
