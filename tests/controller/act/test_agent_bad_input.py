"""What the controller does with JobSets that leave no place for the agent it would add, or that change meanwhile.

Elsewhere: more in the agent's place (tests/common/injection/test_conflicts.py), images that cannot be pulled
(tests/controller/tracking/test_blocked_pods.py), quotas (test_refused_pods.py), an image named by an annotation
(test_job_settings.py), a folder of the agent's that is full or read-only
(tests/agent/settings/test_epoch_file.py, test_copy_root.py), annotations of 252 KiB (tests/controller/test_size.py).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from inplace.common.injection.agent_pieces import EPOCH_FILE, FOLDER, LINK_FILE
from inplace.common.injection.pod import OTHER_PORTS, InjectOptions
from inplace.common.jobset.fields import ETCD_BYTES_MAX, TEMPLATE_BYTES_MAX
from inplace.common.kube.resources import EVENTS, JOBSETS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from tests.controller.act.test_job_settings import ADDS, POD, job_of, names, plain
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld
from tests.controller.rig import Rig, running_rig

JOB = "spec.replicatedJobs.0.template.spec"
WORKER: KubeObject = {"name": "worker", "image": "train:1", "command": ["train"]}


def worker(**fields: Any) -> KubeObject:
    """Return a JobSet whose worker has these fields."""
    return changed(plain(), f"{POD}.containers", [WORKER | fields])


def mounting(name: str, place: str, source: KubeObject) -> KubeObject:
    """Return a JobSet whose worker mounts a volume."""
    manifest = worker(volumeMounts=[{"name": name, "mountPath": place}])
    return changed(manifest, f"{POD}.volumes", [{"name": name} | source])


ALL_PORTS = [{"containerPort": port} for port in (8080, *OTHER_PORTS)]
AUDITED = {"name": "w", "image": "i", "env": [{"name": "LD_AUDIT", "value": "/mine.so"}]}  # no guard may come there
CHECK = {"name": "x", "image": "i", "command": ["x"]}

# What is in the agent's place, and what the Event says of it.
REFUSED: dict[str, tuple[KubeObject, str]] = {
    "a mount at /inplace": (mounting("data", "/inplace", {"emptyDir": {}}), "found data at /inplace, needed nothing"),
    "a volume of our name": (
        mounting("inplace", "/data", {"hostPath": {"path": "/x"}}),
        "found inplace, which is hostPath, needed the agent's image under this name; rename it",
    ),
    "a container of our name": (
        changed(plain(annotations={wire.AGENT: "workers=w"}), f"{POD}.containers", [CHECK | {"name": "inplace-agent"}]),
        "found inplace-agent, needed another name; rename it",
    ),
    "every port": (worker(ports=ALL_PORTS), "found 8080, needed a port that the agent does not need"),
    "not Indexed": (changed(plain(), f"{JOB}.completionMode", "NonIndexed"), "found NonIndexed, needed Indexed"),
    "fewer completions": (
        changed(changed(plain(), f"{JOB}.completions", 4), f"{JOB}.parallelism", 2),
        "needed parallelism (2); all Pods of a Job run at once",
    ),
    "a limit per index": (changed(plain(), f"{JOB}.backoffLimitPerIndex", 3), "found 3, needed nothing"),
    "depth process without a guard": (
        changed(plain(annotations={wire.RESTART: "process"}), f"{POD}.containers", [AUDITED]),
        "no guard beside depth process",
    ),
}


@pytest.mark.parametrize(("manifest", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_in_the_agents_place_is_said_and_the_job_is_made_without(manifest: KubeObject, words: str) -> None:
    """The Job is the user's to the letter, and the finding has the path and what was found."""
    built, findings = job_of(manifest)
    assert built == job_of(manifest, JobSettings())[0]
    assert words in findings[0]
    assert findings[0].startswith(("spec.replicatedJobs[0]", "metadata.annotations"))


@pytest.mark.virtual_time
async def test_the_event_has_it() -> None:
    """On the JobSet, as a Warning, with the Job's name; the Pods start all the same."""
    rig = Rig()
    manifest, words = REFUSED["a mount at /inplace"]
    async with rig.running(rig.controller(job_settings=ADDS)):
        crew = await rig.submit(manifest)
        assert list(await crew.jobs()) == ["train-workers-0"]
        events = (await rig.admin.list(EVENTS))["items"]
    (event,) = [one for one in events if one["reason"] == "AgentNotAdded"]
    assert event["type"] == "Warning"
    assert words in event["note"]
    assert "the Pods of job train-workers-0 cannot restart in place" in event["note"]


def agent_of(manifest: KubeObject) -> KubeObject:
    """Return the agent's container."""
    built, findings = job_of(manifest)
    assert findings == []
    agent: KubeObject = built["spec"]["template"]["spec"]["initContainers"][-1]
    return agent


@pytest.mark.parametrize("declared", [8080, 9000])
def test_on_the_hosts_network_no_node_gets_two_agents_of_one_port(declared: int) -> None:
    """The port is declared: the scheduler looks for another node, and says so where there is none."""
    manifest = changed(worker(ports=[{"containerPort": declared}]), f"{POD}.hostNetwork", True)
    agent = agent_of(manifest)
    port = OTHER_PORTS[0] if declared == 8080 else 8080
    assert agent["ports"] == [{"containerPort": port, "hostPort": port}]
    assert "ports" not in agent_of(worker())


@pytest.mark.parametrize("pod_user", [None, 0, 1000, 65534])
@pytest.mark.parametrize("worker_user", [None, 65534])
def test_users_and_read_only_roots_are_the_workers_own(pod_user: int | None, worker_user: int | None) -> None:
    """Agent and guard write into volumes of theirs alone, whoever they are; the agent never runs as root."""
    context = {"readOnlyRootFilesystem": True} | ({} if worker_user is None else {"runAsUser": worker_user})
    manifest = worker(securityContext=context)
    if pod_user is not None:
        manifest = changed(manifest, f"{POD}.securityContext", {"runAsUser": pod_user})
    built, findings = job_of(manifest)
    assert findings == []
    pod = built["spec"]["template"]["spec"]
    (made,), agent = pod["containers"], pod["initContainers"][-1]
    assert made["securityContext"] == context
    assert agent["securityContext"]["readOnlyRootFilesystem"] is True
    assert agent["securityContext"].get("runAsUser") == (65532 if pod_user == 0 else None)
    assert {"name": "inplace-agent", "mountPath": FOLDER} in agent["volumeMounts"]
    for container in (made, agent):
        assert {"name": "inplace-progress", "mountPath": f"{FOLDER}/progress"} in container["volumeMounts"]
    assert all(file.startswith(f"{FOLDER}/") for file in (EPOCH_FILE, LINK_FILE))


@pytest.mark.virtual_time
@pytest.mark.parametrize(("before", "after"), [(None, "off"), ("off", None), ("off", "on")])
async def test_what_a_jobset_says_meanwhile_holds_for_new_jobs(before: str | None, after: str | None) -> None:
    """A resume keeps the containers of a Job that exists, whatever it says by then; a new Job follows."""
    async with running_rig(job_settings=ADDS) as rig:
        crew = await rig.submit(plain(suspend=True, annotations={} if before is None else {wire.AGENT: before}))
        (first,) = (await crew.jobs()).values()
        await rig.edit({"metadata": {"annotations": {wire.AGENT: after}}, "spec": {"suspend": False}})
        (resumed,) = (await crew.jobs()).values()
        assert resumed["metadata"]["uid"] == first["metadata"]["uid"]
        assert names(resumed) == names(first) == (["inplace-agent"] if before is None else [])
        await rig.finish_job(crew, "train-workers-0", "Failed", 5.0)
        (fresh,) = (await crew.jobs()).values()
        assert fresh["metadata"]["uid"] != first["metadata"]["uid"]
        assert names(fresh) == ([] if after == "off" else ["inplace-agent"])


@pytest.mark.virtual_time
async def test_a_jobset_turns_restarts_in_place_neither_on_nor_off() -> None:
    """The failure policy is immutable, so a Job never has the agent of another strategy."""
    async with running_rig(job_settings=ADDS) as rig:
        for name, strategy, wanted in (("a", wire.IN_PLACE_RESTART, "Recreate"), ("b", "Recreate", "InPlaceRestart")):
            await rig.submit(plain(name=name, strategy=strategy))
            change = {"spec": {"failurePolicy": {"restartStrategy": wanted}}}
            with pytest.raises(Exception, match="immutable"):
                await rig.admin.patch(JOBSETS, "default", name, change)


@pytest.mark.virtual_time
async def test_two_jobsets_with_different_agents_live_side_by_side() -> None:
    """One brings an agent of another image, one gets the controller's: each keeps its own."""
    rig = Rig()
    own: KubeObject = {"name": "agent", "image": "other-registry/inplace-agent:7", "restartPolicy": "Always"}
    own |= {"command": ["inplace-agent"]}
    async with rig.running(rig.controller(job_settings=ADDS)):
        first = await rig.submit(changed(plain(name="own"), f"{POD}.initContainers", [own]))
        second = await rig.submit(plain(name="added"))
        images = {}
        for crew in (first, second):
            (job,) = (await crew.jobs()).values()
            images[crew.name] = [one["image"] for one in job["spec"]["template"]["spec"]["initContainers"]]
    assert images == {"own": ["other-registry/inplace-agent:7"], "added": ["registry.example.com/agent:1"]}


def sized(size: int) -> KubeObject:
    """Return a JobSet with a template of about so many bytes of JSON."""
    pad = {"name": "PADDING", "value": "x" * size}
    template = {"spec": {"containers": [WORKER | {"env": [pad]}]}}
    return jobset(jobs=[replicated_job(pods=1, template=template)])


def test_a_template_that_leaves_no_room_for_the_agent_is_a_problem_of_the_spec() -> None:
    """With figures and a cure; the Job is made all the same, because a server may take larger ones."""
    world = PlannerWorld(sized(TEMPLATE_BYTES_MAX))
    planned = world.plan()
    (problem,) = [one for one in planned.status["conditions"] if one["type"] == "SpecProblem"]
    assert f"at most {TEMPLATE_BYTES_MAX:,} bytes of JSON, saw 1,52" in problem["message"]
    assert f"the {ETCD_BYTES_MAX:,} bytes that etcd takes" in problem["message"]
    assert "move data into a ConfigMap" in problem["message"]
    assert planned.actions != ()
    assert "conditions" not in PlannerWorld(sized(1_000_000)).plan().status


def test_a_template_below_the_bound_has_room_for_the_agent() -> None:
    """The largest one that is no problem is below etcd's bound with all that is added, copies of the image included."""
    long = plain(name="j" * 40)
    pad = {"name": "PADDING", "value": "x" * (TEMPLATE_BYTES_MAX - 700)}
    manifest = changed(long, f"{POD}.containers.0.env", [pad])
    settings = JobSettings(300, InjectOptions(agent_image="registry.example.com/" + "i" * 900, copies_image=True))
    built, findings = job_of(manifest, settings)
    assert findings == []
    assert TEMPLATE_BYTES_MAX < len(json.dumps(built, separators=(",", ":"))) < ETCD_BYTES_MAX
