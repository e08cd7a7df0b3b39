"""`inplace lint` on a real kube-apiserver: it reports missing features of the cluster before the JobSet is applied."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from inplace.cli.connection import Target, connected
from inplace.cli.lint.cluster import lint_cluster
from inplace.cli.lint.facts import FEATURE
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.injection.finding import Finding
from inplace.common.kube.resources import KubeObject
from testbed.api_client import ApiClient, UnexpectedStatus
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.waiting import eventually
from tests.cli.command import REPOSITORY, RUN_S_MAX, command
from tests.cli.injecting import FLOW, example, injected, pod_spec_of
from tests.cluster.agent_scene import AGENTS_ROLE
from tests.cluster.test_crd_real import install
from tests.deploy.admission import ABOUT_JOBSETS, policies

pytestmark = pytest.mark.asyncio(loop_scope="session")

NO_RULES = "--feature-gates=ContainerRestartRules=false,RestartAllContainersOnContainerExits=false"
NO_RESTART_ALL = "--feature-gates=RestartAllContainersOnContainerExits=false"
AGENT = 'spec.replicatedJobs[name="workers"].template.spec.template.spec.initContainers[name="inplace-agent"]'
POD = AGENT.partition(".initContainers")[0]
ELSEWHERE = {"crd", "controller", "admission-policy", "no-nodes"}  # an empty cluster's, ignored here


@pytest.fixture
def manifest() -> list[KubeObject]:
    """Return examples/plain.yaml with the agent in it, and its permissions."""
    return list(parse(injected(example("plain.yaml"))))


async def ask(
    running: ControlPlane, documents: Iterable[KubeObject], namespace: str, kubeconfig: Path | None = None
) -> list[Finding]:
    """Return lint's findings in the cluster for the manifest's JobSet, moved to a namespace."""
    moved = yaml.safe_load(yaml.safe_dump(list(documents)).replace("namespace: default", f"namespace: {namespace}"))
    jobsets = [obj for obj in moved if obj["kind"] == "JobSet"]
    async with connected(Target(kubeconfig=str(kubeconfig or running.kubeconfig))) as connection:
        (found,) = await lint_cluster(connection.client, moved, jobsets, namespace=namespace)
    return found


def rules(findings: Iterable[Finding]) -> set[str]:
    """Return the rules of findings, without those of an empty cluster."""
    return {finding.rule for finding in findings} - ELSEWHERE


async def test_an_empty_cluster_lacks_everything(
    control_plane: ControlPlane, namespace: str, manifest: list[KubeObject]
) -> None:
    """In an empty cluster node, controller and policies are missing; the manifest and its permissions are accepted."""
    found = await ask(control_plane, manifest, namespace)
    assert {finding.rule for finding in found} - {"crd", "admission-policy"} == {"controller", "no-nodes"}, found


@pytest.mark.parametrize(
    ("gates", "found"),
    [(NO_RULES, "rules that the server drops"), (NO_RESTART_ALL, 'Unsupported value: "RestartAllContainers"')],
)
async def test_a_server_without_the_gates_is_found_out(
    binaries: Binaries, manifest: list[KubeObject], gates: str, found: str
) -> None:
    """Servers that drop the restart rules or refuse the action give a finding; of a supervisor they drop one rule."""
    async with ControlPlane(binaries, apiserver_flags=[gates]) as running:
        namespace = await running.create_namespace()
        findings = await ask(running, manifest, namespace)
        assert rules(findings) == {"gates"}, findings
        assert f"{AGENT}.restartPolicyRules" in " ".join(finding.path for finding in findings)
        assert found in " ".join(finding.found for finding in findings if finding.rule == "gates")
        supervised = list(parse(example("train-supervisor.yaml")))
        lost = {"template-differs"} if gates == NO_RULES else set()
        assert rules(await ask(running, supervised, namespace)) == lost


async def test_pod_security_that_forbids_the_template(control_plane: ControlPlane, manifest: list[KubeObject]) -> None:
    """Pod Security `restricted` refuses the example's worker, and not the injected agent."""
    namespace = await control_plane.create_namespace()
    async with control_plane.client() as api:
        label = {"pod-security.kubernetes.io/enforce": "restricted"}
        await api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": label}})
    (finding,) = [one for one in await ask(control_plane, manifest, namespace) if one.rule == "pod-security"]
    assert finding.path == POD
    assert 'container "worker"' in finding.found
    assert "inplace-agent" not in finding.found
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, "allowPrivilegeEscalation": False}
    (worker,) = pod_of(manifest)["containers"]
    worker["securityContext"] = context | {"capabilities": {"drop": ["ALL"]}}
    assert rules(await ask(control_plane, manifest, namespace)) == set()


def pod_of(documents: Iterable[KubeObject]) -> KubeObject:
    """Return the pod spec of the manifest's JobSet."""
    (jobset,) = (document for document in documents if document["kind"] == "JobSet")
    spec: KubeObject = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec


async def test_the_account_and_what_it_may_do(control_plane: ControlPlane, manifest: list[KubeObject]) -> None:
    """Findings name a missing account or its missing rights; objects of the manifest count as existing."""
    namespace = await control_plane.create_namespace()
    alone = [document for document in manifest if document["kind"] == "JobSet"]
    assert rules(await ask(control_plane, alone, namespace)) == {"account-missing"}
    account, role, reading, announcing = (
        yaml.safe_load(yaml.safe_dump(document).replace("namespace: default", f"namespace: {namespace}"))
        for document in manifest
        if document["kind"] != "JobSet"
    )
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    async with control_plane.client() as api:
        await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        (finding,) = [one for one in await ask(control_plane, alone, namespace) if one.rule == "account-rights"]
        assert "list jobsets or watch jobsets or patch pods" in finding.found
        await api.post(f"{rbac}/roles", role)
        await api.post(f"{rbac}/rolebindings", reading)
        (finding,) = [one for one in await ask(control_plane, alone, namespace) if one.rule == "account-rights"]
        assert finding.found.endswith("which may not patch pods")
        assert rules(await ask(control_plane, manifest, namespace)) == set()
        await api.create([next(yaml.safe_load_all(AGENTS_ROLE.read_text()))])
        await api.post(f"{rbac}/rolebindings", announcing)

        async def found() -> set[str]:
            return rules(await ask(control_plane, alone, namespace))

        await eventually(found, set())


async def test_what_only_the_job_controller_would_be_told(
    control_plane: ControlPlane, namespace: str, manifest: list[KubeObject]
) -> None:
    """A misspelt field, a refused Pod and a refused Job are findings with their paths in the JobSet."""
    (agent,) = pod_of(manifest)["initContainers"]
    agent["restartPolicyRule"] = []
    (finding,) = [one for one in await ask(control_plane, manifest, namespace) if one.rule == "pod-refused"]
    assert finding.path == f"{AGENT}.restartPolicyRule"
    del agent["restartPolicyRule"]
    pod_of(manifest)["containers"][0]["image"] = ""
    (finding,) = [one for one in await ask(control_plane, manifest, namespace) if one.rule == "pod-refused"]
    assert finding.path == f'{POD}.containers[name="worker"].image'
    pod_of(manifest)["containers"][0]["image"] = "worker:1"
    manifest[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"] = -1
    (finding,) = [one for one in await ask(control_plane, manifest, namespace) if one.rule == "pod-refused"]
    assert finding.path == 'spec.replicatedJobs[name="workers"].template.spec.activeDeadlineSeconds'


async def test_a_namespace_that_is_not_there(control_plane: ControlPlane, manifest: list[KubeObject]) -> None:
    """A missing namespace is a finding, unless the manifest creates it."""
    assert rules(await ask(control_plane, manifest, "nowhere")) == {"namespace"}
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}}
    assert rules(await ask(control_plane, [made, *manifest], "nowhere")) == set()


async def test_somebody_who_may_not_ask(
    control_plane: ControlPlane, namespace: str, manifest: list[KubeObject]
) -> None:
    """Questions that the user may not ask are reported, and give no other finding."""
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "nobody")
    found = await ask(control_plane, manifest, namespace, kubeconfig=kubeconfig)
    assert rules(found) <= {"cluster-unknown", "admission"}, found
    unknown = {finding.path for finding in found if finding.rule == "cluster-unknown"}
    assert unknown >= {"nodes", "admission policies", "flow schemas", "leases", POD}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed(binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """Give a cluster with the CRD, the policies, a controller's Lease, and nodes of three kinds."""
    async with ControlPlane(binaries) as running, running.client() as api:
        await install(api)
        await api.create(policies(*ABOUT_JOBSETS))
        await api.post("/api/v1/namespaces", {"metadata": {"name": "inplace-system"}})
        lease = {"metadata": {"name": "inplace-controller"}, "spec": {"holderIdentity": "controller-0"}}
        await api.post("/apis/coordination.k8s.io/v1/namespaces/inplace-system/leases", lease)
        for name, version, features in (
            ("new", "v1.38.0", [FEATURE]),
            ("bugs", "v1.36.3", [FEATURE]),
            ("old", "v1.35.2", []),
        ):
            await add_node(api, name, version, features)
        yield running


async def add_node(api: ApiClient, name: str, version: str, features: list[str]) -> None:
    """Add a node as its kubelet would."""
    await api.post("/api/v1/nodes", {"metadata": {"name": name, "labels": {"pool": name}}})
    status = {"nodeInfo": {"kubeletVersion": version}, "declaredFeatures": features}
    await api.text(
        "PATCH", f"/api/v1/nodes/{name}/status", body={"status": status}, content_type="application/merge-patch+json"
    )


@pytest.mark.parametrize(
    ("pool", "options", "expected"),
    [
        ("new", {}, set()),
        ("bugs", {}, set()),
        ("bugs", {"barrier": "probe"}, {"kubelet-bug"}),
        ("bugs", {"mode": "supervisor"}, set()),
        ("old", {}, {"node-features", "kubelet-bug"}),
        ("old", {"mode": "supervisor"}, set()),
        ("", {}, {"node-features-some", "kubelet-bug"}),
        ("none", {}, {"no-nodes"}),
    ],
)
async def test_nodes(installed: ControlPlane, pool: str, options: dict[str, Any], expected: set[str]) -> None:
    """Of the nodes that may take the Pods, missing features and bugs that concern the manifest are findings."""
    documents = list(parse(injected(example("plain.yaml"), **options)))
    if pool:
        pod_of(documents)["nodeSelector"] = {"pool": pool}
    found = await ask(installed, documents, "default")
    assert {finding.rule for finding in found} - {"admission-policy"} == expected, found


async def test_the_jobset_is_judged_by_the_crd_and_the_policies(
    installed: ControlPlane, manifest: list[KubeObject]
) -> None:
    """Refusals of CRD and policies are findings with their path, and so are misspelt fields of the JobSet."""
    jobset = manifest[-1]
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 3
    found = [finding for finding in await ask(installed, manifest, "default") if finding.rule == "admission"]
    assert ["backoffLimit" in finding.found for finding in found] == [True]
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] = 2**31 - 1
    jobset["spec"]["failurePolice"] = {}
    (finding,) = [finding for finding in await ask(installed, manifest, "default") if finding.rule == "admission"]
    assert finding.path == "spec.failurePolice"


@asynccontextmanager
async def upstream_crd(running: ControlPlane) -> AsyncIterator[None]:
    """Remove the columns that only our CRD has."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io"
    async with running.client() as api:
        versions = (await api.get(path))["spec"]["versions"]
        few = [versions[0] | {"additionalPrinterColumns": versions[0]["additionalPrinterColumns"][:2]}]
        await api.patch(path, {"spec": {"versions": few}})
        yield
        await api.patch(path, {"spec": {"versions": versions}})


async def test_a_definition_without_the_agents_columns(installed: ControlPlane, manifest: list[KubeObject]) -> None:
    """A CRD without the agents' columns is a warning: agents then read whole objects."""
    async with upstream_crd(installed):
        (finding,) = [one for one in await ask(installed, manifest, "default") if one.rule == "crd-columns"]
    assert "SyncedEpoch" in finding.found


def lint(*arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    return subprocess.run(
        command("lint", "-f", "-", *arguments),
        cwd=REPOSITORY,
        input=text,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )


async def test_as_a_program(installed: ControlPlane) -> None:
    """`inplace lint` uses a kubeconfig; an unusable one gives exit code 2 and a message."""
    text = injected(example("plain.yaml")).replace("default", "inplace-system")
    here = str(installed.kubeconfig)
    good = lint("--kubeconfig", here, text=text)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "error" not in good.stdout
    bad = lint("--kubeconfig", here, text=text.replace("inplace-system", "nowhere"))
    assert (bad.returncode, "namespace in JobSet nowhere/plain" in bad.stdout) == (1, True), bad.stdout
    for arguments, words in (
        (("--kubeconfig", here, "--context", "moon"), "moon"),
        (("--kubeconfig", "/nowhere"), "expected a kubeconfig at /nowhere"),
    ):
        failed = lint(*arguments, text=text)
        assert (failed.returncode, failed.stdout) == (2, "")
        assert words in failed.stderr
        assert "Traceback" not in failed.stderr


async def test_a_guaranteed_pod_stays_one_under_a_quota(control_plane: ControlPlane, namespace: str) -> None:
    """A namespace whose quota wants limits takes the injected Pod as Guaranteed, but not without the agent's limits."""
    hard = {"limits.cpu": "100", "limits.memory": "1Ti"}
    limits = 'resources: {limits: {cpu: "4", memory: 8Gi}}'
    text = FLOW.replace("{name: worker,", f"{{name: worker, {limits},")
    spec = pod_spec_of(injected(text)) | {"serviceAccountName": "default"}
    pod = {"metadata": {"generateName": "worker-"}, "spec": spec}
    core = f"/api/v1/namespaces/{namespace}"
    async with control_plane.client() as client:
        await client.post(f"{core}/resourcequotas", {"metadata": {"name": "limits"}, "spec": {"hard": hard}})
        # No controller of quotas runs here; the test writes the status for it.
        status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
        await client.patch(f"{core}/resourcequotas/limits/status", status)
        made = await client.post(f"{core}/pods", pod, dryRun="All")
        assert made["status"]["qosClass"] == "Guaranteed"
        del spec["initContainers"][0]["resources"]
        with pytest.raises(UnexpectedStatus, match=r"must specify limits.cpu for: inplace-agent"):
            await client.post(f"{core}/pods", pod, dryRun="All")
