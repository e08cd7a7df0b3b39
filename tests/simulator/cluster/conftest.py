from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inplace.common.wire import names as wire
from inplace.simulator.cluster.manifests import read_manifests

EXAMPLE = Path(__file__).parents[3] / "examples" / "train.yaml"


@pytest.fixture
def example() -> list[dict[str, Any]]:
    """Return the documents of examples/train.yaml, in whose restarts kubelet takes part."""
    documents = read_manifests(EXAMPLE)
    documents[-1]["metadata"]["annotations"] = {wire.RESTART: wire.DEPTH_CONTAINERS}
    return documents
