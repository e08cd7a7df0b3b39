"""Each manifest uses only CEL functions of the oldest Kubernetes that it supports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from inplace.simulator.cluster.manifests import read_manifests
from tests.deploy.admission import FOLDER
from tests.deploy.crd_cases import CRD_FILE

OVERLAY: Final = FOLDER.parent / "overlays" / "before-1.36" / "kustomization.yaml"
OLDEST_MINOR: Final = {
    CRD_FILE: 30,
    FOLDER / "jobsets.yaml": 30,
    FOLDER / "immutable.yaml": 30,
    FOLDER / "agents.yaml": 30,
    FOLDER.parent / "overlays" / "taints" / "taints.yaml": 30,
    FOLDER / "defaults.yaml": 36,  # MutatingAdmissionPolicy v1; deploy/overlays/before-1.36 leaves it out
}

SINCE_MINOR: Final[dict[str, int]] = {
    **dict.fromkeys(
        (
            *("all", "exists", "exists_one", "filter", "has", "map"),
            *("contains", "double", "dyn", "endsWith", "int", "matches", "size", "startsWith", "string", "type"),
            *("format", "join", "lowerAscii", "replace", "split", "substring", "trim", "upperAscii"),
            *("find", "findAll", "indexOf", "isSorted", "lastIndexOf", "max", "min", "sum"),
            *("hasValue", "isQuantity", "optMap", "orValue", "quantity", "value"),
            *("allowed", "check", "group", "name", "namespace", "resource"),  # of an authorizer
        ),
        30,
    ),
    **dict.fromkeys(("cidr", "ip", "isCIDR", "isIP"), 31),
    **dict.fromkeys(("fieldSelector", "labelSelector", "named", "validate"), 32),
    **dict.fromkeys(("transformList", "transformMap", "transformMapEntry"), 33),
    **dict.fromkeys(("isSemver", "semver"), 34),
    **dict.fromkeys(("distinct", "first", "flatten", "last", "range", "reverse", "slice", "sort", "sortBy"), 35),
}
"""
The minor version from which a server takes a function in a new expression: one after it was introduced, for a server
admits what its predecessor can run. Source: k8s.io/apiserver pkg/cel/environment/base.go.
"""

EXPRESSIONS: Final = ("rule", "messageExpression", "expression")
_TEXT: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
_CALL: Final = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


def functions(document: Any) -> Iterator[str]:
    """Yield the names that the expressions of a manifest call."""
    if isinstance(document, list):
        for item in document:
            yield from functions(item)
    elif isinstance(document, dict):
        for key, value in document.items():
            if key in EXPRESSIONS and isinstance(value, str):
                yield from _CALL.findall(_TEXT.sub("''", value))
            else:
                yield from functions(value)


@pytest.mark.parametrize("path", OLDEST_MINOR, ids=lambda path: path.name)
def test_the_oldest_server_has_every_function(path: Path) -> None:
    """Each function that a manifest's expressions call is known here, and is not newer than the manifest may need."""
    called = set(functions(read_manifests(path)))
    assert called != set()
    assert {name: SINCE_MINOR.get(name) for name in called if SINCE_MINOR.get(name, 99) > OLDEST_MINOR[path]} == {}


def test_what_an_older_server_lacks_is_left_out_for_it() -> None:
    """The overlay for older servers deletes exactly the documents that need 1.36."""
    newer = [path for path, minor in OLDEST_MINOR.items() if minor == 36]
    documents = [document for path in newer for document in read_manifests(path)]
    deleted = [yaml.safe_load(patch["patch"]) for patch in yaml.safe_load(OVERLAY.read_text())["patches"]]
    assert all(patch["$patch"] == "delete" for patch in deleted)
    assert sorted((patch["kind"], patch["metadata"]["name"]) for patch in deleted) == sorted(
        (document["kind"], document["metadata"]["name"]) for document in documents
    )


def test_calls_are_found_and_texts_are_not() -> None:
    """Calls are found, and names inside texts of any quotes are not."""
    rule = r"""self.all(x, x.flatten ( ) == 'a(' + "b('c(" + 'it\'s(')"""
    assert set(functions({"rule": rule, "other": "sort()"})) == {"all", "flatten"}
