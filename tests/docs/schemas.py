"""
Write docs/schemas from the types of the commands' documents, so that the schemas always agree with the code.

python -m tests.docs.schemas   rewrites the files; test_schemas.py checks them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import msgspec

from inplace.cli.documents import DOCUMENTS

FOLDER: Final = Path(__file__).parents[2] / "docs" / "schemas"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, str]:
    """Return each file's name and text."""
    return {f"{name}.json": _text(f"inplace {name}", kind) for name, kind in DOCUMENTS.items()}


def _text(title: str, kind: object) -> str:
    schema = {"$schema": DIALECT, "title": title} | msgspec.json.schema(kind)
    return json.dumps(schema, indent=2) + "\n"


def rewrite() -> None:
    """Write the files, and remove those of no document."""
    FOLDER.mkdir(exist_ok=True)
    wanted = schemas()
    for old in FOLDER.glob("*.json"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    rewrite()
