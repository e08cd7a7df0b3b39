"""Our CRD beside that of upstream's Go module, field by field."""

from __future__ import annotations

from images.build_once import MissingComponent
from inplace.common.kube.resources import KubeObject
from testbed.upstream.manifests import crd as upstream_crd
from tests.cluster.conftest import unavailable
from tests.deploy.crd_cases import crd
from tests.deploy.template_defaults import TEMPLATE_DEFAULTS
from tests.deploy.test_crd import declared


def schemas() -> tuple[dict[str, KubeObject], dict[str, KubeObject]]:
    """Return the nodes of our CRD and of upstream's."""
    try:
        theirs = upstream_crd()
    except MissingComponent as error:
        unavailable(error)
    ours, theirs = (
        dict(declared(each["spec"]["versions"][0]["schema"]["openAPIV3Schema"])) for each in (crd(), theirs)
    )
    return ours, theirs


def test_no_field_of_upstreams_is_pruned() -> None:
    """Each field of upstream's CRD stands in ours, or in an object that keeps unknown fields."""
    ours, theirs = schemas()

    def is_kept(path: str) -> bool:
        parent = path.rpartition(".")[0] if not path.endswith("[]") else path.removesuffix("[]")
        node = ours.get(path)
        return node is not None or _keeps_all(ours, parent)

    assert [path for path in theirs if not is_kept(path)] == []


def _keeps_all(ours: dict[str, KubeObject], path: str) -> bool:
    """Say whether the nearest declared node around a path keeps fields that it does not name, or has any type."""
    while path not in ours:
        path = path.removesuffix("[]") if path.endswith("[]") else path.rpartition(".")[0]
    node = ours[path]
    return bool(node.get("x-kubernetes-preserve-unknown-fields")) or path == "metadata"


def test_lists_have_upstreams_keys() -> None:
    """Each list inside a template that upstream merges by keys has the same keys; each default is the same."""
    ours, theirs = schemas()
    inside = {path: node for path, node in theirs.items() if path.startswith("spec.replicatedJobs[].template.")}
    wanted = {path: node["x-kubernetes-list-map-keys"] for path, node in inside.items() if _is_map(node)}
    assert len(wanted) == 25
    assert {path: ours[path]["x-kubernetes-list-map-keys"] for path in wanted} == wanted
    defaults = {path: node["default"] for path, node in inside.items() if "default" in node}
    pod_spec = "spec.replicatedJobs[].template.spec.template.spec."
    assert {path.removeprefix(pod_spec): value for path, value in defaults.items()} == TEMPLATE_DEFAULTS


def _is_map(node: KubeObject) -> bool:
    return node.get("x-kubernetes-list-type") == "map"
