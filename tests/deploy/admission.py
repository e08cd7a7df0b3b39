"""The admission policies of deploy/admission."""

from pathlib import Path
from typing import Final

import yaml

from common.kube.client import KubeObject

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "admission"


def policies(name: str) -> list[KubeObject]:
    """Return the documents of one file."""
    return [document for document in yaml.safe_load_all((FOLDER / name).read_text()) if document]
