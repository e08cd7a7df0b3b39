"""Our loader reads random YAML as the real kubectl does; tests/conformance/yaml_documents.py reads thousands."""

from __future__ import annotations

from testbed.kubectl import need_kubectl
from tests.conformance.yaml_documents import differences


def test_yaml_is_read_as_kubectl_reads_it() -> None:
    """150 random documents, and what inject would write of them, are the same values for kubectl and for us."""
    need_kubectl()
    assert differences(0, 150) == []
