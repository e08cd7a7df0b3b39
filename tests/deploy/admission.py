"""The admission policies of deploy/admission."""

from pathlib import Path
from typing import Final

from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.manifests import read_manifests

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "admission"


ABOUT_JOBSETS: Final = ("jobsets.yaml", "immutable.yaml", "defaults.yaml")


def policies(*names: str) -> list[KubeObject]:
    """Return the documents of files."""
    return [document for name in names for document in read_manifests(FOLDER / name)]
