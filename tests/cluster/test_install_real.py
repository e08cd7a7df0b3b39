"""deploy/ installed, changed and removed with kubectl on a real control plane, as docs/install.md says."""

from __future__ import annotations

import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from inplace.common.injection.rights import commands
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.act.agent_rights import ANNOUNCE
from inplace.controller.api import access_review
from inplace.controller.preflight import POLICIES
from release.manifests import image_names, write_manifests
from testbed.api_client import ApiClient
from testbed.binaries import Binaries
from testbed.clients.manifests import kustomized
from testbed.control_plane import ControlPlane
from testbed.kube_client import kube_client
from testbed.kubectl import done, kubectl
from testbed.waiting import until
from tests.cluster.test_crd_real import refusal
from tests.controller.manifests import changed, jobset

pytestmark = pytest.mark.asyncio(loop_scope="session")

APPLY = ("apply", "--server-side", "-k")
HAVE_A_STATUS = {"Deployment", "PodDisruptionBudget", "ValidatingAdmissionPolicy", "FlowSchema"}
"""Kinds whose status a controller of the cluster writes some time after an apply."""

ROOT = Path(__file__).parents[2]
SYSTEM = "inplace-system"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """Run a control plane with controllers for this module: an installation is cluster-wide."""
    async with ControlPlane(binaries, with_controllers=True) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def installed(plane: ControlPlane) -> AsyncIterator[ApiClient]:
    """Install deploy/ (again) and give an administrator."""
    await done(plane.kubeconfig, *APPLY, "deploy/")
    await done(plane.kubeconfig, "wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io")
    async with plane.client() as api:
        yield api


async def versions(plane: ControlPlane) -> dict[str, tuple[str, int | None]]:
    """Return each installed object's generation, and its resourceVersion where only kubectl writes it."""
    listed = json.loads(await done(plane.kubeconfig, "get", "-k", "deploy/", "-o", "json"))
    return {
        f"{found['kind']} {found['metadata']['name']}": (
            "" if found["kind"] in HAVE_A_STATUS else found["metadata"]["resourceVersion"],
            found["metadata"].get("generation"),
        )
        for found in listed["items"]
    }


async def test_a_second_apply_changes_nothing(plane: ControlPlane, installed: ApiClient) -> None:
    """Every object keeps its resourceVersion and generation."""
    before = await versions(plane)
    assert sum(version != "" for version, _ in before.values()) > 15
    await done(plane.kubeconfig, *APPLY, "deploy/")
    assert await versions(plane) == before


async def test_a_releases_manifests_install_the_same(plane: ControlPlane, installed: ApiClient, tmp_path: Path) -> None:
    """install.yaml, and the folder for kustomize, are deploy/ with images of a registry; kubectl applies both."""
    digest = f"sha256:{'a' * 64}"
    images = image_names("registry.example/team", "0.1.0", {"inplace-controller": digest})
    write_manifests(ROOT, tmp_path, "0.1.0", images)
    with tarfile.open(tmp_path / "inplace-deploy-0.1.0.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    of_file = [one for one in yaml.safe_load_all((tmp_path / "install.yaml").read_text()) if one]
    for named, shipped in (
        (sorted(of_file, key=identity), sorted(kustomized(tmp_path / "inplace-deploy-0.1.0"), key=identity)),
        (sorted(of_file, key=identity), sorted(kustomized(ROOT / "deploy"), key=identity)),
    ):
        assert [identity(one) for one in named] == [identity(one) for one in shipped]
        assert {one["kind"] for one, other in zip(named, shipped, strict=True) if one != other} <= {"Deployment"}
    text = json.dumps(of_file)
    assert f"registry.example/team/inplace-controller:0.1.0@{digest}" in text
    assert "--agent-image=registry.example/team/inplace-agent:0.1.0" in text
    for words in (("-f", "install.yaml"), ("-k", "inplace-deploy-0.1.0")):
        ended = await kubectl(
            plane.kubeconfig, "apply", "--server-side", "--dry-run=server", words[0], str(tmp_path / words[1])
        )
        assert ended.code == 0, ended.err


def identity(found: KubeObject) -> tuple[str, str, str]:
    """Return what tells an object from others."""
    return found["kind"], found["metadata"]["name"], found["metadata"].get("namespace", "")


@pytest.mark.parametrize("arguments", [("--server-side", "-k"), ("-k",)], ids=["server-side", "client-side"])
async def test_the_difference_after_an_install_is_empty(
    plane: ControlPlane, installed: ApiClient, arguments: tuple[str, ...]
) -> None:
    """`kubectl diff` prints nothing after an install."""
    ended = await kubectl(plane.kubeconfig, "diff", *arguments, "deploy/")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


async def test_its_namespace_lets_its_pods_in(plane: ControlPlane, installed: ApiClient) -> None:
    """Both replicas pass Pod Security `restricted`, which the namespace enforces, without a warning."""

    async def both() -> bool:
        pods = (await installed.get(f"/api/v1/namespaces/{SYSTEM}/pods"))["items"]
        return len(pods) == 2

    await until(both, "two Pods of the controller")
    namespace = await installed.get(f"/api/v1/namespaces/{SYSTEM}")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    events = (await installed.get(f"/api/v1/namespaces/{SYSTEM}/events"))["items"]
    assert [event["message"] for event in events if event["reason"] == "FailedCreate"] == []


async def test_the_budget_and_the_service_find_the_pods(plane: ControlPlane, installed: ApiClient) -> None:
    """Budget and Service select the Deployment's two Pods."""

    async def counted() -> bool:
        path = f"/apis/policy/v1/namespaces/{SYSTEM}/poddisruptionbudgets/inplace-controller"
        return bool((await installed.get(path)).get("status", {}).get("expectedPods") == 2)

    await until(counted, "a budget of two Pods")
    labels = (await installed.get(f"/api/v1/namespaces/{SYSTEM}/pods"))["items"][0]["metadata"]["labels"]
    service = await installed.get(f"/api/v1/namespaces/{SYSTEM}/services/inplace-controller-metrics")
    policy = await installed.get(f"/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/networkpolicies/inplace-controller")
    for selector in (service["spec"]["selector"], policy["spec"]["podSelector"]["matchLabels"]):
        assert selector.items() <= labels.items()


async def test_the_policies_are_without_a_type_error(plane: ControlPlane, installed: ApiClient) -> None:
    """kube-controller-manager's type check of every expression finds nothing to warn about."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    async def checked() -> bool:
        return all("typeChecking" in policy.get("status", {}) for policy in (await installed.get(path))["items"])

    await until(checked, "a type check of each policy")
    found = {each["metadata"]["name"]: each["status"]["typeChecking"] for each in (await installed.get(path))["items"]}
    assert found == {name: {} for name in POLICIES}


@pytest.mark.parametrize(
    ("role", "allowed", "denied"),
    [
        ("view", ("list jobsets", "get jobsets/status"), ("create jobsets", "patch jobsets/status")),
        ("edit", ("create jobsets", "watch jobsets", "delete jobsets"), ("patch jobsets/status",)),
        ("admin", ("create jobsets", "watch jobsets", "delete jobsets"), ("patch jobsets/status",)),
    ],
)
async def test_the_roles_of_every_cluster_know_jobsets(
    plane: ControlPlane, installed: ApiClient, role: str, allowed: tuple[str, ...], denied: tuple[str, ...]
) -> None:
    """The role view reads JobSets, edit and admin write them, and none writes epochs."""
    body = {
        "metadata": {"name": f"{role}-jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"{role}-jane"}],
    }
    await installed.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", body)

    async def may(what: str) -> bool:
        verb, _, resource = what.partition(" ")
        name, _, sub = resource.partition("/")
        attributes = {"namespace": "default", "verb": verb, "group": wire.API_GROUP, "resource": name}
        spec = {"user": f"{role}-jane", "resourceAttributes": attributes | {"subresource": sub}}
        answer = await installed.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
        return bool(answer["status"]["allowed"])

    async def all_allowed() -> bool:
        return all([await may(what) for what in allowed])

    await until(all_allowed, f"{role} to be allowed {allowed}")  # aggregation takes a moment
    assert [what for what in denied if await may(what)] == []


@pytest.mark.parametrize(("role", "code"), [("admin", 0), ("edit", 1)])
async def test_a_namespaces_admin_binds_the_agents_right(
    plane: ControlPlane, installed: ApiClient, role: str, code: int
) -> None:
    """The command of docs/install.md works for who has the role admin in the namespace; edit binds nothing."""
    namespace = await plane.create_namespace("team")
    named = (plane.kubeconfig, f"--namespace={namespace}")
    await done(*named, "create", "rolebinding", "jane", f"--clusterrole={role}", "--user=jane")
    command = ("create", "rolebinding", "inplace-agent-trainer", "--clusterrole=inplace-agent")

    async def ended() -> int:
        return (await kubectl(*named, "--as=jane", *command, f"--serviceaccount={namespace}:trainer")).code

    async def is_so() -> bool:
        return await ended() == code

    await until(is_so, f"exit code {code} for {role}")  # aggregation takes a moment
    asked = {"namespace": namespace, "verb": "announce", "group": "inplace.dev", "resource": "epochs"}
    spec = {"user": f"system:serviceaccount:{namespace}:trainer", "resourceAttributes": asked}

    async def is_known() -> bool:
        answer = await installed.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
        return bool(answer["status"]["allowed"]) is (code == 0)

    await until(is_known, "the account to be an agent, or not")


def manifest(name: str) -> KubeObject:
    """Return a JobSet."""
    return changed(jobset(), "metadata.name", name)


async def test_uninstall_keeps_jobsets_and_a_new_install_finds_them(plane: ControlPlane, installed: ApiClient) -> None:
    """`kubectl delete -k deploy/base` leaves the CRD, JobSets and what they made; deleting the CRD deletes them."""
    made = await installed.post(JOBSETS, manifest("kept"))
    owner = {
        "apiVersion": wire.API_VERSION,
        "kind": wire.KIND,
        "name": "kept",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    template = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    await installed.post(jobs, {"metadata": {"name": "kept-w-0", "ownerReferences": [owner]}, "spec": template})
    await done(plane.kubeconfig, "delete", "-k", "deploy/base", "--wait=false")

    async def gone() -> bool:
        ended = await kubectl(plane.kubeconfig, "get", "-k", "deploy/base", "--ignore-not-found", "-o", "name")
        return ended.out == ""

    await until(gone, "an empty installation")
    assert (await installed.get(f"{JOBSETS}/kept"))["metadata"]["uid"] == made["metadata"]["uid"]
    assert "deletionTimestamp" not in (await installed.get(f"{jobs}/kept-w-0"))["metadata"]
    await done(plane.kubeconfig, *APPLY, "deploy/")
    assert (await installed.get(f"{JOBSETS}/kept"))["metadata"]["uid"] == made["metadata"]["uid"]
    await done(plane.kubeconfig, "delete", "-k", "deploy/crd")

    async def swept() -> bool:
        return [job["metadata"]["name"] for job in (await installed.get(jobs))["items"]] == []

    await until(swept, "no Job without its JobSet")


async def test_an_upgrade_changes_the_deployment_and_no_jobset(plane: ControlPlane, installed: ApiClient) -> None:
    """An upgrade with another image and a new CRD field rolls the Deployment; a stored JobSet stays as it is."""
    stored = await installed.post(JOBSETS, manifest("before-the-upgrade"))
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/inplace-controller"
    rendered = await done(plane.kubeconfig, "kustomize", "deploy/")
    older = rendered.replace("image: inplace-controller", "image: inplace-controller:0.0.9")
    assert older != rendered
    await done(plane.kubeconfig, "apply", "--server-side", "-f", "-", stdin=older)
    generation = (await installed.get(path))["metadata"]["generation"]
    await done(plane.kubeconfig, *APPLY, "deploy/")
    deployment = await installed.get(path)
    assert deployment["metadata"]["generation"] == generation + 1
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "inplace-controller"
    after = await installed.get(f"{JOBSETS}/before-the-upgrade")
    assert (after["metadata"]["resourceVersion"], after["spec"]) == (
        stored["metadata"]["resourceVersion"],
        stored["spec"],
    )


async def test_what_somebody_else_set_is_a_conflict_that_names_them(plane: ControlPlane, installed: ApiClient) -> None:
    """An apply after `kubectl scale` is refused with the field and its manager; with force it succeeds."""
    await done(plane.kubeconfig, "-n", SYSTEM, "scale", "deployment/inplace-controller", "--replicas=3")
    ended = await kubectl(plane.kubeconfig, *APPLY, "deploy/")
    assert ended.code != 0
    assert ".spec.replicas" in ended.err
    await done(plane.kubeconfig, "apply", "--server-side", "--force-conflicts", "-k", "deploy/")
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/inplace-controller"
    assert (await installed.get(path))["spec"]["replicas"] == 2


async def test_the_commands_for_a_person_give_an_agents_rights(plane: ControlPlane, installed: ApiClient) -> None:
    """What the Event AgentBindingFailed prints: the account may read its JobSet by name, and announce."""
    del installed
    await done(plane.kubeconfig, "create", "namespace", "team-a")
    for command in commands("team-a", "trainer", "train").split(" && "):
        program, *arguments = command.split()
        assert program == "kubectl"
        await done(plane.kubeconfig, *arguments)
    may = ("auth", "can-i", "--as=system:serviceaccount:team-a:trainer", "-n", "team-a")
    for allowed in (("patch", "pods"), ("watch", "jobsets.jobset.x-k8s.io/train")):
        assert (await kubectl(plane.kubeconfig, *may, *allowed)).out.strip() == "yes", allowed
    async with kube_client(plane.kubeconfig) as client:  # kubectl asks about no resource that only RBAC knows
        assert await access_review.may(client, "team-a", "trainer", ANNOUNCE)
    for denied in (("delete", "pods"), ("list", "jobsets.jobset.x-k8s.io"), ("get", "jobsets.jobset.x-k8s.io/other")):
        assert (await kubectl(plane.kubeconfig, *may, *denied)).out.strip() == "no", denied


async def test_a_workers_namespace_is_a_kustomization(
    plane: ControlPlane, installed: ApiClient, tmp_path: Path
) -> None:
    """deploy/workers with `namespace: team-b` makes the NetworkPolicy there, and the server keeps every field."""
    (tmp_path / "network.yaml").write_text((Path(__file__).parents[2] / "deploy/workers/network.yaml").read_text())
    (tmp_path / "kustomization.yaml").write_text("namespace: team-b\nresources: [network.yaml]\n")
    await done(plane.kubeconfig, "create", "namespace", "team-b")
    await done(plane.kubeconfig, "apply", "--server-side", "--validate=strict", "-k", str(tmp_path))
    path = "/apis/networking.k8s.io/v1/namespaces/team-b/networkpolicies/inplace-workers"
    written = yaml.safe_load((tmp_path / "network.yaml").read_text())["spec"]
    assert (await installed.get(path))["spec"] == written


async def test_before_1_36_leaves_out_what_older_servers_do_not_know(plane: ControlPlane) -> None:
    """The overlay before-1.36 leaves out only the MutatingAdmissionPolicies."""
    whole = kinds(await done(plane.kubeconfig, "kustomize", "deploy/"))
    older = kinds(await done(plane.kubeconfig, "kustomize", "deploy/overlays/before-1.36"))
    assert sorted(set(whole) - set(older)) == ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]
    assert len(whole) - len(older) == 4  # two of each kind: one fills in defaults, one keeps fields that clients drop


async def test_an_older_server_takes_the_overlay_and_keeps_templates(binaries: Binaries) -> None:
    """A server with 1.34's behaviour takes the overlay, refuses a changed template and accepts another spelling."""
    async with ControlPlane(binaries, apiserver_flags=("--emulated-version=1.34",)) as older, older.client() as api:
        await done(older.kubeconfig, *APPLY, "deploy/overlays/before-1.36")
        await done(older.kubeconfig, "wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io")
        stored = await api.post(JOBSETS, jobset())
        worker = "spec.replicatedJobs.0.template.spec.template.spec.containers.0"

        async def said(key: str, value: object) -> str | None:
            body = changed(stored, f"{worker}.{key}", value)
            return await refusal(api.text("PUT", f"{JOBSETS}/train", body=body, query={"dryRun": "All"}))

        async def refused() -> bool:
            return "template.spec.template.spec.containers[0].image: field is immutable" in str(
                await said("image", "x")
            )

        await until(refused, "a refusal that names the field")
        assert await said("resources", {}) is None


def kinds(rendered: str) -> list[str]:
    """Return the kind of each document."""
    documents: list[Any] = list(yaml.safe_load_all(rendered))
    return [document["kind"] for document in documents]
