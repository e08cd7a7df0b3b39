"""Writes docs/adr/README.md, the list of decisions: `python -m tests.docs.decisions_page`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "adr" / "README.md"
HISTORY: Final = PAGE.parent / "history"
HEAD: Final = """\
# Decisions

What the code obeys today. One page each: context, decision, an example, what was given up.

"""
HISTORY_HEAD: Final = """
## History

How today's decisions came about, as each page stood when another took it over. The line below a title names that one.

"""


def page() -> str:
    """Return both lists: number and title of each decision."""
    return HEAD + _listed(PAGE.parent) + HISTORY_HEAD + _listed(HISTORY)


def decisions(folder: Path) -> list[Path]:
    """Return the pages of one of the two folders, by number."""
    return sorted(folder.glob("[0-9]*.md"))


def _listed(folder: Path) -> str:
    return "".join(
        f"- [{file.name[:4]}]({file.relative_to(PAGE.parent)}) {_title(file)}\n" for file in decisions(folder)
    )


def _title(file: Path) -> str:
    return re.sub(r"^# (?:ADR )?\d*[.:]? *", "", file.read_text().splitlines()[0])


if __name__ == "__main__":
    PAGE.write_text(page())
