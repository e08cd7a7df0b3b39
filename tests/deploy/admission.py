"""The admission policies of deploy/admission."""

from pathlib import Path
from typing import Final

import yaml

from inplace.common.kube.resources import KubeObject

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "admission"


ABOUT_JOBSETS: Final = ("jobsets.yaml", "immutable.yaml", "defaults.yaml")


def policies(*names: str) -> list[KubeObject]:
    """Return the documents of files."""
    return [document for name in names for document in yaml.safe_load_all((FOLDER / name).read_text()) if document]
