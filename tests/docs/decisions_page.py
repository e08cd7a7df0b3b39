"""Writes docs/adr/README.md, the list of decisions: `python -m tests.docs.decisions_page`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "adr" / "README.md"
HEAD: Final = "# Decisions\n\nOne page each: context, decision, an example, what was given up.\n\n"


def page() -> str:
    """Return the list: number and title of each decision."""
    return HEAD + "".join(f"- [{file.name[:4]}]({file.name}) {_title(file)}\n" for file in _decisions())


def _decisions() -> list[Path]:
    return sorted(PAGE.parent.glob("[0-9]*.md"))


def _title(file: Path) -> str:
    return re.sub(r"^# (?:ADR )?\d*[.:]? *", "", file.read_text().splitlines()[0])


if __name__ == "__main__":
    PAGE.write_text(page())
