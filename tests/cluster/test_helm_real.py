"""The Helm chart gives the objects of kustomize; a release installs, upgrades and goes without deleting a JobSet."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from images.build_once import MissingComponent
from inplace.agent.version import VERSION
from inplace.common.kube.resources import KubeObject
from inplace.deploy.chart import dashboards
from testbed.control_plane import ControlPlane
from testbed.go_programs import helm
from testbed.kubectl import REPOSITORY, done
from tests.cluster.conftest import unavailable
from tests.controller.manifests import jobset

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHART = "deploy/helm/inplace"
SYSTEM = ("--namespace", "inplace-system")
KEEP = "helm.sh/resource-policy"
TIMEOUT_S = 120.0
DEPLOYMENT = "/apis/apps/v1/namespaces/inplace-system/deployments/inplace-controller"


@pytest.fixture(scope="module")
def binary(pytestconfig: pytest.Config) -> Path:
    """Find or build Helm; the build's announcement (it takes minutes) goes to the terminal."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None, "pytest always registers its capture manager"
    with capture.global_and_fixture_disabled():
        try:
            return helm()
        except MissingComponent as error:
            unavailable(error)


async def run(binary: Path, *arguments: str) -> tuple[int, str, str]:
    """Run Helm in the repository."""
    process = await asyncio.create_subprocess_exec(
        str(binary), *arguments, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def template(binary: Path, *settings: str) -> dict[str, KubeObject]:
    """Render the chart."""
    arguments = [part for setting in settings for part in ("--set", setting)]
    code, out, err = await run(binary, "template", "inplace", CHART, *SYSTEM, *arguments)
    assert code == 0, err
    return by_name(out)


async def kustomize(folder: str) -> dict[str, KubeObject]:
    """Render a kustomization."""
    return by_name(await done(Path("/dev/null"), "kustomize", folder))


def by_name(text: str) -> dict[str, KubeObject]:
    """Return the documents by kind, namespace and name; Helm's own instruction for the CRD is left out."""
    found: dict[str, KubeObject] = {}
    for document in filter(None, yaml.safe_load_all(text)):
        metadata: dict[str, Any] = document["metadata"]
        if metadata.get("annotations", {}).pop(KEEP, None) and not metadata["annotations"]:
            del metadata["annotations"]
        key = f"{document['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
        assert key not in found, key
        found[key] = document
    return found


@pytest.mark.parametrize(
    ("folder", "settings"),
    [
        ("deploy/", ()),
        ("deploy/overlays/podmonitor", ("podMonitor=true",)),
        ("deploy/overlays/servicemonitor", ("serviceMonitor=true",)),
        ("deploy/overlays/prometheusrule", ("prometheusRule=true",)),
        ("deploy/overlays/before-1.36", ("mutatingAdmissionPolicy=false",)),
        ("deploy/overlays/beside", ("beside=true",)),
        ("deploy/overlays/taints", ("taintBadNodes=4/600",)),
        ("deploy/base", ("crd.install=false",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_helm_and_kustomize_agree(binary: Path, folder: str, settings: tuple[str, ...]) -> None:
    """Helm and kustomize give the same objects, field by field."""
    wanted = await kustomize(folder)
    if folder == "deploy/overlays/prometheusrule":  # stands beside an installation
        wanted |= await kustomize("deploy/")
    made = await template(binary, "namespace.create=true", *settings)
    container = made["Deployment inplace-system/inplace-controller"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"inplace-controller:{VERSION}"
    container["image"] = "inplace-controller"  # a kustomization names the version for itself
    assert made == wanted


async def test_the_workers_policy_is_kustomizes(binary: Path, tmp_path: Path) -> None:
    """Each named namespace gets the NetworkPolicy of deploy/workers; without a name none is made."""
    made = await template(binary, "workerNamespaces={team-a,team-b}")
    added = {key: made[key] for key in set(made) - set(await template(binary))}
    wanted: dict[str, KubeObject] = {}
    for team in ("team-a", "team-b"):
        folder = tmp_path / team
        shutil.copytree(REPOSITORY / "deploy" / "workers", folder / "workers")
        (folder / "kustomization.yaml").write_text(f"namespace: {team}\nresources: [workers]\n")
        wanted |= await kustomize(str(folder))
    assert added == wanted


async def test_the_values_arrive(binary: Path) -> None:
    """Image, replicas, resources, scheduling, ports and agents' namespaces reach their fields."""
    made = await template(
        binary,
        "image.repository=registry.test/c",
        "image.tag=1.2.3",
        "replicas=3",
        "nodeSelector.pool=system",
        "tolerations[0].operator=Exists",
        "imagePullSecrets[0].name=pull",
        "resources.limits.memory=1Gi",
        "apiServerPorts={16443}",
        "workerNamespaces={team-a,team-b}",
        "affinity.nodeAffinity.a=b",
        "priorityClassName=system-cluster-critical",
        "annotations.owner=team",
        "podAnnotations.scrape=yes",
        "logLevel=debug",
        "beside=true",
        "dashboards.install=true",
        "dashboards.labels.board=yes",
    )
    assert "Namespace /inplace-system" not in made
    spec = made["Deployment inplace-system/inplace-controller"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 3
    assert pod["containers"][0]["image"] == "registry.test/c:1.2.3"
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"pool": "system"}, [{"operator": "Exists"}])
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert (pod["affinity"], pod["priorityClassName"]) == ({"nodeAffinity": {"a": "b"}}, "system-cluster-critical")
    flags = ["--agent-image=inplace-agent", "--start-window=0", "--beside", "--log-level=debug"]
    assert pod["containers"][0]["args"] == flags
    assert made["Deployment inplace-system/inplace-controller"]["metadata"]["annotations"] == {"owner": "team"}
    assert spec["template"]["metadata"]["annotations"] == {"scrape": "yes"}
    board = made["ConfigMap inplace-system/dashboard-inplace-jobset"]
    assert board["metadata"]["labels"] == {"grafana_dashboard": "1", "board": "yes"}
    assert board["data"] == {"inplace-jobset.json": dashboards()["inplace-jobset.json"]}
    egress = made["NetworkPolicy inplace-system/inplace-controller"]["spec"]["egress"]
    assert egress == [{"ports": [{"protocol": "TCP", "port": 16443}]}]
    for team in ("team-a", "team-b"):
        assert f"NetworkPolicy {team}/inplace-workers" in made


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "besides=true"), "besides"),
        (("--set", "image.version=1"), "version"),
        (("--set", "image.tag=110"), "tag"),
        (("--set", "beside=yes"), "beside"),
        (("--set", "logLevel=verbose"), "logLevel"),
        (("--set", "workerNamespaces={Team}"), "workerNamespaces"),
        (("--set", "apiServerPorts={0}"), "apiServerPorts"),
        (("--kube-version", "1.35.2"), "mutatingAdmissionPolicy: expected Kubernetes 1.36 or newer, saw v1.35.2"),
        (("--kube-version", "1.29.0"), "kubeVersion: >=1.30.0-0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
async def test_what_does_not_fit_is_refused(binary: Path, arguments: tuple[str, ...], words: str) -> None:
    """A misspelt value, a value of another type and a cluster that is too old are refused by name."""
    code, _, err = await run(binary, "template", "inplace", CHART, *SYSTEM, *arguments)
    assert code != 0
    assert words in err


async def test_an_image_by_digest_has_no_tag(binary: Path) -> None:
    """A digest wins over the tag, in its own value or in the repository's."""
    digest = "sha256:" + "0" * 64
    for setting in (f"image.digest={digest}", f"image.repository=inplace-controller@{digest}"):
        made = await template(binary, setting, "image.tag=v1")
        container = made["Deployment inplace-system/inplace-controller"]["spec"]["template"]["spec"]["containers"][0]
        assert container["image"] == f"inplace-controller@{digest}"
    old = await template(binary, "global.x=1", "mutatingAdmissionPolicy=false")
    assert "Deployment inplace-system/inplace-controller" in old


async def test_a_release_comes_changes_and_goes(binary: Path, plane: ControlPlane) -> None:
    """After install, upgrade and uninstall the JobSet and its CRD stay, and the next release adopts the CRD."""
    release = ("inplace", CHART, *SYSTEM, "--kubeconfig", str(plane.kubeconfig))
    code, out, err = await run(binary, "install", *release, "--create-namespace")
    assert code == 0, err
    assert "Only namespaces with a label may scrape its metrics" in out
    await done(plane.kubeconfig, "wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io")
    async with plane.client() as api:
        jobsets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
        stored = await api.post(jobsets, jobset())
        code, _, err = await run(binary, "upgrade", *release, "--set", "replicas=1")
        assert code == 0, err
        assert (await api.get(DEPLOYMENT))["spec"]["replicas"] == 1
        code, _, err = await run(binary, "uninstall", "inplace", *SYSTEM, "--kubeconfig", str(plane.kubeconfig))
        assert code == 0, err
        assert await api.get(f"{jobsets}/train") == stored
        code, _, err = await run(binary, "install", *release)
        assert code == 0, err
        assert await api.get(f"{jobsets}/train") == stored
