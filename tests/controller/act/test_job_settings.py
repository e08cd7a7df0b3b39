"""The agent that the controller adds to its Jobs: to which, how, and what keeps it out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import EVENTS, JOBSETS, NAMESPACES, ROLE_BINDINGS, KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.plan.actions import CreateJob
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.objects import parsed
from tests.controller.rig import Rig, running_rig

POD = "spec.replicatedJobs.0.template.spec.template.spec"
ADDS = JobSettings(agent=InjectOptions(agent_image="registry.example.com/agent:1"))


def plain(**fields: Any) -> KubeObject:
    """Return an in-place JobSet as a user writes it: a container with a command."""
    return changed(jobset(**fields), f"{POD}.containers.0.command", ["train"])


def job_of(manifest: KubeObject, settings: JobSettings = ADDS, place: int = 0) -> tuple[KubeObject, list[str]]:
    """Return the Job of a JobSet's first place, and what kept the agent out."""
    found = parsed(manifest)
    built, findings = settings.manifest_of(CreateJob(found, found.replicated_jobs[place], 0))
    return built, [str(finding) for finding in findings]


def names(built: KubeObject) -> list[str]:
    """Return the init containers' names."""
    return [one["name"] for one in built["spec"]["template"]["spec"].get("initContainers") or ()]


def test_the_agent_is_added_with_its_image_as_a_volume() -> None:
    """The worker's command is a guard's; the JobSet is what it was."""
    manifest = plain()
    before = json.dumps(manifest)
    built, findings = job_of(manifest)
    pod = built["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    assert findings == []
    assert names(built) == ["inplace-agent"]
    assert pod["initContainers"][0]["image"] == "registry.example.com/agent:1"
    assert worker["command"] == ["/inplace/bin/guard", "--", "train"]
    assert {"name": "inplace", "mountPath": "/inplace", "readOnly": True} in worker["volumeMounts"]
    image = {"reference": "registry.example.com/agent:1", "pullPolicy": "IfNotPresent"}
    assert {"name": "inplace", "image": image} in pod["volumes"]
    assert "serviceAccountName" not in pod
    assert pod["automountServiceAccountToken"] is False
    assert json.dumps(manifest) == before


def test_what_a_restart_in_place_needs_is_filled_in() -> None:
    """Ten lines say neither a back-off limit nor completions."""
    manifest = plain()
    for field in ("backoffLimit", "podReplacementPolicy", "completions", "parallelism"):
        manifest = changed(manifest, f"spec.replicatedJobs.0.template.spec.{field}", None)
    spec = job_of(manifest)[0]["spec"]
    assert (spec["parallelism"], spec["completions"], spec["podReplacementPolicy"]) == (1, 1, "Failed")
    assert spec["backoffLimit"] == 2**31 - 1


ANNOTATED = {wire.RESTART_IN_PLACE: "10"}


def test_one_annotation_is_enough() -> None:
    """A JobSet without a failure policy gets the agent, and so does one with the server's default strategy."""
    manifest = plain(strategy=None, annotations=ANNOTATED)
    default = {"failurePolicy": {"maxRestarts": 0, "restartStrategy": "Recreate"}}
    for one in (manifest, manifest | {"spec": manifest["spec"] | default}):
        built, findings = job_of(one)
        assert (names(built), findings) == (["inplace-agent"], [])


@pytest.mark.parametrize("settings", [ADDS, JobSettings()], ids=["added", "none"])
def test_a_job_that_was_meant_to_fail_at_once_is_made_for_a_restart_in_place(settings: JobSettings) -> None:
    """Programs write a back-off limit of 0 for Recreate; the CRD refuses it beside InPlaceRestart only."""
    manifest = plain(strategy=None, annotations=ANNOTATED)
    for field, value in (("backoffLimit", 0), ("podReplacementPolicy", "TerminatingOrFailed")):
        manifest = changed(manifest, f"spec.replicatedJobs.0.template.spec.{field}", value)
    spec = job_of(manifest, settings)[0]["spec"]
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (2**31 - 1, "Failed")


def test_a_fenced_group_is_replaced_early_with_the_agent_in_it() -> None:
    """The agent leaves the replacement beside a Pod that cannot end, which its lease makes safe."""
    manifest = plain(annotations={wire.FENCE_AFTER: "60"})
    built, findings = job_of(manifest)
    assert (names(built), findings) == (["inplace-agent"], [])
    assert built["spec"]["podReplacementPolicy"] == "TerminatingOrFailed"


OPTED_OUT = replicated_job("monitor") | {}
OPTED_OUT["template"] = OPTED_OUT["template"] | {"metadata": {"annotations": {wire.DISABLE: ""}}}


@pytest.mark.parametrize(
    "manifest",
    [
        plain(strategy="Recreate"),
        plain(strategy=None),
        plain(annotations={wire.AGENT: wire.AGENT_OFF}),
        jobset(jobs=[OPTED_OUT]),
    ],
    ids=["recreate", "no policy", "off", "opted out"],
)
def test_who_gets_none(manifest: KubeObject) -> None:
    """JobSets that do not restart in place, that say so, and Pods that are no part of the group."""
    built, findings = job_of(manifest)
    assert (names(built), findings) == ([], [])


@pytest.mark.parametrize(("said", "added"), [(None, []), ("on", ["inplace-agent"]), ("off", [])])
def test_opt_in_turns_it_round(said: str | None, added: list[str]) -> None:
    """Under --agent-opt-in only a JobSet that asks for it gets the agent."""
    manifest = plain(annotations={} if said is None else {wire.AGENT: said})
    settings = JobSettings(agent=InjectOptions(), opt_in=True)
    assert names(job_of(manifest, settings)[0]) == added
    asked = {wire.RESTART_IN_PLACE: "3"} | ({} if said is None else {wire.AGENT: said})
    manifest = plain(strategy=None, annotations=asked)
    assert names(job_of(manifest, settings)[0]) == ([] if said == "off" else ["inplace-agent"])


@pytest.mark.parametrize(
    ("said", "label", "is_opt_in", "added"),
    [
        (None, "on", True, True),
        (None, "off", True, False),
        (None, "On", True, False),
        (None, None, True, False),
        ("off", "on", True, False),
        ("on", None, True, True),
        ("maybe", "on", True, True),
        (None, "off", False, True),
    ],
)
@pytest.mark.virtual_time
async def test_a_namespaces_label_asks_for_all_its_jobsets(
    said: str | None, label: str | None, is_opt_in: bool, added: bool
) -> None:
    """Under --agent-opt-in a Namespace with the label asks for its JobSets; what a JobSet says of itself wins."""
    rig = Rig()
    await rig.admin.patch(NAMESPACES, None, "default", {"metadata": {"labels": {wire.AGENT: label}}})
    settings = JobSettings(agent=InjectOptions(), opt_in=is_opt_in)
    async with rig.running(rig.controller(job_settings=settings)):
        crew = await rig.submit(plain(annotations={} if said is None else {wire.AGENT: said}))
        (job,) = (await crew.jobs()).values()
        assert (names(job) == ["inplace-agent"]) is added
        await crew.make_pods()
        await rig.settle()
        assert bool((await rig.admin.list(ROLE_BINDINGS))["items"]) is added
    asked = [request.path for request in rig.requests if request.path.startswith("/api/v1/namespaces?")]
    assert bool(asked) is is_opt_in
    assert all("labelSelector=inplace.dev%2Fagent%3Don" in path for path in asked)


@pytest.mark.virtual_time
async def test_a_label_holds_for_new_jobs() -> None:
    """It may come and go while the controller runs; a Job that exists keeps its Pods."""
    rig = Rig()
    async with rig.running(rig.controller(job_settings=JobSettings(agent=InjectOptions(), opt_in=True))):
        found = []
        for number, label in enumerate((None, "on", None)):
            await rig.admin.patch(NAMESPACES, None, "default", {"metadata": {"labels": {wire.AGENT: label}}})
            await rig.settle()
            crew = await rig.submit(plain(name=f"train-{number}"))
            (job,) = (await crew.jobs()).values()
            found.append(names(job))
    assert found == [[], ["inplace-agent"], []]


@pytest.mark.virtual_time
async def test_a_controller_of_one_namespace_watches_none() -> None:
    """A Role cannot let it: its JobSets ask themselves."""
    rig = Rig()
    await rig.admin.patch(NAMESPACES, None, "default", {"metadata": {"labels": {wire.AGENT: "on"}}})
    settings = JobSettings(agent=InjectOptions(), opt_in=True)
    async with rig.running(rig.controller(job_settings=settings, namespace="default")):
        crew = await rig.submit(plain())
        (job,) = (await crew.jobs()).values()
    assert names(job) == []
    assert not [request for request in rig.requests if request.path.startswith("/api/v1/namespaces?")]


def test_an_agent_that_is_there_stays_alone() -> None:
    """Ours or upstream's: a template with an agent is the user's as it is."""
    agent = {"name": "agent", "image": "inplace-agent", "restartPolicy": "Always", "command": ["inplace-agent"]}
    upstreams = {"name": "a", "image": "in-place-restart-agent:v0.12", "restartPolicy": "Always"}
    for one in (agent, upstreams):
        manifest = changed(plain(), f"{POD}.initContainers", [one])
        built, findings = job_of(manifest)
        assert (built["spec"]["template"]["spec"]["initContainers"], findings) == ([one], [])


def two_containers(manifest: KubeObject) -> KubeObject:
    """Leave it open which container trains."""
    both = [{"name": name, "image": "i", "command": [name]} for name in ("a", "b")]
    return changed(manifest, f"{POD}.containers", both)


@pytest.mark.parametrize(
    ("spoil", "words"), [(two_containers, (f"{wire.AGENT}: workers=NAME", "containers a, b"))], ids=["which container"]
)
def test_what_keeps_it_out_is_said_and_the_job_is_made_without(
    spoil: Callable[[KubeObject], KubeObject], words: tuple[str, ...]
) -> None:
    """Nothing of the agent is left in the Job."""
    manifest = spoil(plain())
    built, findings = job_of(manifest)
    assert built == job_of(manifest, JobSettings())[0]
    (finding,) = findings
    for word in words:
        assert word in finding


@pytest.mark.parametrize("value", [7, "x"])
@pytest.mark.parametrize("field", ["env", "resources", "restartPolicyRules", "command", "lifecycle"])
def test_a_template_of_another_form_is_refused_with_its_place(field: str, value: object) -> None:
    """Upstream's definition stores any form; no Job is made of it, which the API server would refuse."""
    manifest = changed(plain(), f"{POD}.containers.0.{field}", value)
    with pytest.raises(RemoteProtocolError, match=rf"template\.spec\.containers\[0\]\.{field}: expected a"):
        job_of(manifest)


def test_annotations_say_the_worker_and_the_agents_resources() -> None:
    """As the options of `inplace inject` do."""
    annotations = {wire.AGENT: "workers=b,cpu=50m"}
    manifest = two_containers(plain(annotations=annotations))
    built, findings = job_of(manifest)
    pod = built["spec"]["template"]["spec"]
    assert findings == []
    assert [one["command"][0] for one in pod["containers"]] == ["a", "/inplace/bin/guard"]
    assert pod["initContainers"][0]["resources"]["requests"]["cpu"] == "50m"


def test_an_image_cannot_be_named_by_an_annotation() -> None:
    """Only the Deployment names the agent's image: it runs with the agent's rights."""
    manifest = plain(annotations={"inplace.dev/agent-image": "evil:1", wire.AGENT: "evil:1"})
    assert "evil" not in json.dumps(job_of(manifest)[0]["spec"])


def test_depth_and_settings_are_the_jobsets() -> None:
    """The depth stands in the Pod's annotation where the JobSet says one; without one a guard's agent has `process`."""
    said = plain(annotations={wire.RESTART: "containers"})
    for manifest, depth in ((said, "containers"), (plain(), None)):
        metadata = job_of(manifest)[0]["spec"]["template"]["metadata"]
        assert metadata["annotations"].get(wire.RESTART_DEPTH) == depth


def test_what_a_worker_keeps_is_the_jobsets() -> None:
    """The volume has the size that the JobSet says; a worker whose memory cannot hold it keeps the agent out."""
    asks = plain(annotations={wire.RESTART: "keep=64Gi"})
    built, findings = job_of(asks)
    volume = {"name": "inplace-keep", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    assert volume in built["spec"]["template"]["spec"]["volumes"]
    assert findings == []
    built, (finding,) = job_of(changed(asks, f"{POD}.containers.0.resources", {"limits": {"memory": "64Gi"}}))
    assert "raise its limit by the volume's size, or keep less" in finding
    assert names(built) == []


def test_nodes_without_image_volumes_get_a_copy() -> None:
    """An init container runs first and copies the agent's programs to a folder of the Pod."""
    settings = JobSettings(agent=InjectOptions(copies_image=True))
    pod = job_of(plain(), settings)[0]["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["inplace-copy", "inplace-agent"]
    assert {"name": "inplace", "emptyDir": {"sizeLimit": "256Mi"}} in pod["volumes"]


@pytest.mark.virtual_time
async def test_the_server_gets_the_agent_and_the_user_the_reason() -> None:
    """A Job with an agent; where it cannot be added, a Warning that says why."""
    async with running_rig(job_settings=ADDS) as rig:
        crew = await rig.submit(plain())
        (job,) = (await crew.jobs()).values()
        assert names(job) == ["inplace-agent"]
        stored = await rig.admin.get(JOBSETS, "default", "train")
        assert "initContainers" not in json.dumps(stored["spec"])
        await rig.submit(two_containers(plain(name="open")))
        events = await rig.admin.list(EVENTS)
    (note,) = [one["note"] for one in events["items"] if one["reason"] == "AgentNotAdded"]
    assert "containers a, b" in note
    assert "job open-workers-0" in note


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("automount", "strategy", "is_told"),
    [(True, "InPlaceRestart", True), (False, "InPlaceRestart", False), (True, "Recreate", False)],
)
async def test_a_token_in_every_container_is_told(automount: bool, strategy: str, is_told: bool) -> None:
    """One Warning for all Jobs says what it means that the author asks for it beside an agent; his word stays."""
    manifest = changed(plain(strategy=strategy), f"{POD}.automountServiceAccountToken", automount)
    manifest["spec"]["replicatedJobs"][0]["replicas"] = 3
    async with running_rig(job_settings=ADDS) as rig:
        crew = await rig.submit(manifest)
        job, *_ = (await crew.jobs()).values()
        told = [event["note"] for event in await rig.events("TokenReadable")]
    assert job["spec"]["template"]["spec"]["automountServiceAccountToken"] is automount
    assert [("training code can announce" in note, "remove the field" in note) for note in told] == [
        (True, True)
    ] * is_told


@pytest.mark.virtual_time
async def test_a_resume_keeps_the_agent() -> None:
    """A suspended JobSet is made with the agent and resumed with it, its annotations included."""
    async with running_rig(job_settings=ADDS) as rig:
        crew = await rig.submit(plain(suspend=True))
        (before,) = (await crew.jobs()).values()
        await rig.admin.patch(JOBSETS, "default", "train", {"spec": {"suspend": False}})
        await rig.settle()
        (after,) = (await crew.jobs()).values()
    assert after["spec"]["suspend"] is False
    assert after["spec"]["template"]["spec"] == before["spec"]["template"]["spec"]


PROBED: dict[str, KubeObject] = {"livenessProbe": {"tcpSocket": {"port": 9000}}}
UNLOCK: list[KubeObject] = [{"name": "unlock", "image": "i:1", "command": ["rm", "-f", "/work/lock"]}]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("annotations", "reason", "words"),
    [
        (None, "ContainersRestart", ("init container unlock runs before each try", "livenessProbe of container")),
        ({wire.RESTART: "process"}, "WorkerProbedEarly", ("livenessProbe of container", "process")),
        ({wire.RESTART: "containers"}, "", ()),
    ],
)
async def test_the_depth_is_said_on_the_jobset(
    annotations: dict[str, str] | None, reason: str, words: tuple[str, ...]
) -> None:
    """A depth that we choose has one Event with its reasons; one under which kubelet kills workers has a Warning."""
    manifest = changed(plain(annotations=annotations or {}), f"{POD}.initContainers", UNLOCK)
    manifest = changed(manifest, f"{POD}.containers.0.livenessProbe", PROBED["livenessProbe"])
    manifest["spec"]["replicatedJobs"][0]["replicas"] = 3
    async with running_rig(job_settings=ADDS) as rig:
        await rig.submit(manifest)
        events = (await rig.admin.list(EVENTS))["items"]
    told = [one for one in events if one["reason"] in ("ContainersRestart", "WorkerProbedEarly")]
    assert [one["reason"] for one in told] == [reason] * bool(reason)
    assert all(word in one["note"] for one in told for word in words)


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("said", "copies", "has_rules"),
    [("v1.30.4", True, False), ("v1.35.2-gke.1", False, False), ("v1.36.0", False, True), ("", False, True)],
)
async def test_agents_are_added_as_the_server_has_features_for_them(said: str, copies: bool, has_rules: bool) -> None:
    """A server that is away is asked again; one that tells no version is taken for a new one."""
    asked = list[Request]()

    def answer(request: Request) -> Response | None:
        if request.path != "/version":
            return None
        asked.append(request)
        code = 503 if len(asked) < 3 else 200 if said else 403
        return Response(code, {"content-type": "application/json"}, json.dumps({"gitVersion": said}).encode())

    rig = Rig()
    rig.fault = answer
    async with rig.running(rig.controller(job_settings=replace(ADDS, by_version=True))):
        await rig.settle(4.0)
        (job,) = (await (await rig.submit(plain())).jobs()).values()
    pod = job["spec"]["template"]["spec"]
    assert len(asked) == 3
    assert names(job) == [*(["inplace-copy"] if copies else []), "inplace-agent"]
    containers = pod["initContainers"] + pod["containers"]
    assert any("restartPolicyRules" in one for one in containers) == has_rules
    assert pod["containers"][0]["command"][0] == "/inplace/bin/guard"
