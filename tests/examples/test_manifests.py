"""Every manifest of examples/ is accepted, and the controller finds nothing wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.lint import lint
from inplace.cli.manifests.documents import read_stream
from inplace.common.injection.pod import InjectOptions
from inplace.common.jobset.jobset import parse_jobset
from inplace.common.kube.client import APPLY_PATCH, KubeClient
from inplace.common.kube.resources import JOBSETS, SERVICES, KubeObject, Resource
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.plan.problems.report import known_problems
from tests.cli.injecting import injected
from tests.controller.crew import Crew
from tests.controller.rig import Rig
from tests.deploy.admission import policies

FOLDER = Path(__file__).parents[2] / "examples"
CRDS = FOLDER.parent / "deploy" / "crd"
TEMPLATES = (  # Kubernetes' own objects
    *("template", "volumeClaimTemplates", "schedulingPolicy", "schedulingConstraints", "disruptionMode"),
    "resourceClaims",
)
NOT_SHOWN = {
    # The defaults.
    ".failurePolicy.restartStrategy=Recreate",
    ".startupPolicy.startupPolicyOrder=AnyOrder",
    ".volumeClaimPolicies.retentionPolicy.whenDeleted=Delete",
    # Tested with the action whose name begins with it.
    ".failurePolicy.rules.action=RestartJobSetAndIgnoreMaxRestarts",
    ".failurePolicy.rules.action=RestartReplicatedJobAndIgnoreMaxRestarts",
    # A claim is made in its JobSet's namespace; the API refuses another value of the field.
    ".volumeClaimPolicies.templates.metadata.namespace",
    # Devices of a driver, which neither the demo nor Kueue has.
    ".scheduling.replicatedJobs.job.resourceClaims",
}
MANIFESTS = sorted(path.name for path in FOLDER.glob("*.yaml"))


def documents(name: str) -> list[KubeObject]:
    """Return the JobSets of one file; its other objects need a cluster."""
    found = yaml.safe_load_all((FOLDER / name).read_text())
    return [document for document in found if document["kind"] == JOBSETS.kind]


async def apply(client: KubeClient, manifest: KubeObject) -> KubeObject:
    """Apply a manifest as `kubectl apply --server-side` does."""
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    return await client.patch(JOBSETS, namespace, name, manifest, kind=APPLY_PATCH)


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield each field of a schema, and each enum value as `.field=word`; a template is one field."""
    for name, each in schema.get("properties", {}).items():
        inner = each["items"] if each["type"] == "array" else each
        yield f"{path}.{name}"
        yield from (f"{path}.{name}={word}" for word in inner.get("enum", ()))
        if name not in TEMPLATES:
            yield from fields(inner, f"{path}.{name}")


def used(value: Any, path: str = "") -> Iterator[str]:
    """Yield the fields and enum values of a manifest in the same form."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name}"
            yield from used(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from used(inner, path)
    else:
        yield f"{path}={value}"


def test_there_is_one_for_each_feature() -> None:
    """Each field of a JobSet's spec and each enum value is in some example."""
    crd = yaml.safe_load((CRDS / "jobsets.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    known = set(fields(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))
    shown = {field for name in MANIFESTS for document in documents(name) for field in used(document["spec"])}
    assert known - shown == NOT_SHOWN
    assert {name for name in MANIFESTS if not documents(name)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.virtual_time
async def test_an_example_is_accepted_and_its_first_jobs_appear(name: str) -> None:
    """A second apply keeps the generation; the first Jobs and the Service exist, without problem or Warning."""
    assert documents(name)
    rig = Rig(serves_gangs=True)
    rig.server.load(policies("jobsets.yaml", "immutable.yaml"))
    async with rig.running():
        for manifest in documents(name):
            jobset = parse_jobset(await apply(rig.admin, manifest))
            await rig.settle(2.0)
            assert (await apply(rig.admin, manifest))["metadata"]["generation"] == 1
            assert list(known_problems(jobset)) == []
            assert bool(await Crew(rig.admin, "default", jobset.name).jobs()) is jobset.is_ours
            if jobset.is_ours and jobset.network.dns_hostnames:
                await rig.admin.get(SERVICES, "default", jobset.subdomain)
        events = await rig.admin.list(Resource("events.k8s.io", "v1", "events", "Event"))
        assert [event["note"] for event in events["items"] if event["type"] == "Warning"] == []


@pytest.mark.virtual_time
async def test_the_smallest_manifest_is_enough() -> None:
    """The server takes what a user writes as it is, the controller adds the agent, and the group waits."""
    written = (FOLDER / "minimal.yaml").read_text()
    assert "{" not in written, "expected YAML as people write it"
    rig = Rig()
    rig.server.load(policies("jobsets.yaml", "immutable.yaml"))
    async with rig.running(rig.controller(job_settings=JobSettings(agent=InjectOptions()))):
        manifest = yaml.safe_load(written)
        jobset = parse_jobset(await apply(rig.admin, manifest))
        await rig.settle(2.0)
        assert jobset.is_in_place
        assert list(known_problems(jobset)) == []
        crew = Crew(rig.admin, "default", "minimal")
        (job,) = (await crew.jobs()).values()
        pod = job["spec"]["template"]["spec"]
        assert pod["containers"][0]["command"][:2] == ["/inplace/bin/guard", "--"]
        for index in range(8):
            await crew.make_pod(job, index)
        await rig.meet(crew, 1, 0.2)
        assert await crew.epochs() == (1, 0)


@pytest.mark.parametrize("name", MANIFESTS)
def test_lint_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    """`lint` finds no error in an example, also after the inject of its comment; one example shows a warning."""
    text = (FOLDER / name).read_text()
    if f"inplace inject -f examples/{name} | kubectl" in text:
        text = injected(text)
    file = tmp_path / name
    file.write_text(text)
    reports = lint(read_stream(str(file)))
    assert reports
    findings = [finding for report in reports for finding in report.findings]
    assert [str(finding) for finding in findings if RULES[finding.rule].severity == "error"] == []
    assert {finding.rule for finding in findings} <= ({"startup-order"} if name == "in-place-in-order.yaml" else set())
