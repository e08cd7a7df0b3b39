"""Suspend and resume as a queue does it: the changes in the Jobs, their time, and their count against maxRestarts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import ResumeJob
from inplace.controller.plan.resume import GENERATED_LABELS, template_patch
from inplace.simulator.apiserver.merge_patch import merge_patch
from tests.controller.manifests import changed, jobset
from tests.controller.plan.planner_world import NOW, PlannerWorld, settled, settled_world
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

POD = "spec.replicatedJobs.0.template.spec.template"
JOB = "train-workers-0"
SUSPENDED = {"type": "Suspended", "status": "True", "lastTransitionTime": NOW}


def resumes(world: PlannerWorld) -> list[str]:
    """Return the Jobs that the next plan resumes."""
    return [action.name for action in world.plan().actions if isinstance(action, ResumeJob)]


def test_a_running_job_never_follows_the_template() -> None:
    """Template changes reach Jobs on resume only."""
    world = settled_world()
    world.manifest["spec"] = changed(world.manifest, f"{POD}.spec.nodeSelector", {"zone": "a"})["spec"]
    assert world.plan().actions == ()


@pytest.mark.parametrize("strategy", [{}, {wire.NODE_SELECTOR_STRATEGY: "true"}])
def test_a_resume_takes_a_stale_flavor_away_and_keeps_what_is_ours(strategy: dict[str, str]) -> None:
    """A queue's selector, toleration and gate of the last admission go; those of exclusive placement stay."""
    flavor = {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "schedulingGates": [{"name": "example.com/topology"}],
    }
    manifest = jobset(strategy="Recreate", suspend=True, annotations={wire.EXCLUSIVE_TOPOLOGY: "rack"} | strategy)
    bare = settled(manifest)
    wanted = bare.jobs[JOB]["spec"]["template"]["spec"]
    for part, value in flavor.items():
        manifest = changed(manifest, f"{POD}.spec.{part}", value)
    world = settled(manifest)
    spec = world.manifest["spec"]
    for part in flavor:
        del spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][part]
    spec["suspend"] = False
    world.settle()
    seen = world.jobs[JOB]["spec"]["template"]["spec"]
    assert {part: seen.get(part) or None for part in flavor} == {part: wanted.get(part) or None for part in flavor}
    assert any(wanted.get(part) for part in flavor)


def test_a_jobset_that_is_resumed_before_its_jobs_were_suspended_costs_nothing() -> None:
    """A resume before the Jobs were suspended exempts no epoch, because nothing restarted."""
    world = settled_world(strategy=wire.IN_PLACE_RESTART)
    world.status.update(wire.status_of_epochs(1, 0))
    world.manifest["spec"]["suspend"] = True
    world.carry_out(world.plan())
    for job in world.jobs.values():
        job["spec"]["suspend"] = False
    world.manifest["spec"]["suspend"] = False
    world.settle()
    assert "exemptEpochs" not in world.status


QUANTITIES = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2"]), max_size=2)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": QUANTITIES, "limits": QUANTITIES})
CONTAINERS = st.lists(
    st.builds(
        lambda name, resources, image: {"name": name, "image": image} | ({"resources": resources} if resources else {}),
        st.sampled_from(["worker", "log", "agent"]),
        RESOURCES,
        st.sampled_from(["a:1", "b:1"]),
    ),
    max_size=3,
    unique_by=lambda container: container["name"],
)
KEYS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"]), max_size=3)
LISTS = st.lists(st.sampled_from([{"key": "x"}, {"key": "y"}]), max_size=2)
TEMPLATES = st.builds(
    lambda labels, annotations, nodes, tolerations, gates, containers, init_containers: {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {
            "nodeSelector": nodes,
            "tolerations": tolerations,
            "schedulingGates": gates,
            "containers": containers,
            "initContainers": init_containers,
        },
    },
    KEYS,
    KEYS,
    KEYS,
    LISTS,
    LISTS,
    CONTAINERS,
    CONTAINERS,
)


@given(TEMPLATES, TEMPLATES)
def test_the_patch_makes_one_template_the_other(stored: KubeObject, wanted: KubeObject) -> None:
    """The patch turns any template into any other, keeps generated fields, and is empty the second time."""
    generated = dict.fromkeys(GENERATED_LABELS, "uid")
    stored["metadata"]["labels"] |= generated
    stored["spec"]["hostNetwork"] = True
    result = merge_patch(stored, template_patch(stored, wanted))
    assert result["metadata"]["labels"] == wanted["metadata"]["labels"] | generated
    assert result["metadata"]["annotations"] == wanted["metadata"]["annotations"]
    for part in ("nodeSelector", "tolerations", "schedulingGates"):
        assert (result["spec"].get(part) or None) == (wanted["spec"][part] or None)
    for part in ("containers", "initContainers"):
        named = {container["name"]: container for container in wanted["spec"][part]}
        for before, after in zip(stored["spec"][part], result["spec"][part], strict=True):
            assert (after["name"], after["image"]) == (before["name"], before["image"])
            given = named.get(before["name"], before).get("resources", {})
            seen = after.get("resources", {})
            assert all((seen.get(kind) or {}) == (given.get(kind) or {}) for kind in ("requests", "limits"))
    assert result["spec"]["hostNetwork"] is True
    assert template_patch(result, wanted) == {}


def test_a_resume_keeps_what_is_not_requests_or_limits() -> None:
    """Claims and the rest of a container stay, a container that the template does not name too, and order as well."""
    claims = [{"name": "gpu"}]
    log = {"name": "log", "resources": {"limits": {"cpu": "1"}}}
    worker = {"name": "worker", "image": "a:1", "resources": {"requests": {"cpu": "1"}, "claims": claims}}
    stored = {"spec": {"containers": [log, worker]}}
    other = {"name": "worker", "image": "b:2", "resources": {"limits": {"cpu": "2"}, "claims": []}}
    patch = template_patch(stored, {"spec": {"containers": [other, {"name": "new"}]}})
    resized = {"name": "worker", "image": "a:1", "resources": {"claims": claims, "limits": {"cpu": "2"}}}
    assert patch == {"spec": {"containers": [log, resized]}}


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, {}), ({}, None), ({"requests": {}}, None), ({"limits": None}, {"requests": {}}), (None, {"claims": []})],
)
def test_no_resources_are_no_resources(before: Any, after: Any) -> None:
    """No resources in another spelling are no change, so that an older server is not asked for what it refuses."""
    stored, wanted = ({"spec": {"containers": [{"name": "w", "resources": each}]}} for each in (before, after))
    assert template_patch(stored, wanted) == {}


async def test_a_queue_admits_evicts_and_admits_elsewhere(rig: Rig) -> None:
    """Each admission's labels, selectors, tolerations and gates are on the Job, and those of the last are gone."""
    first = {
        "metadata": {"labels": {"queue": "a", "only-first": "x"}, "annotations": {"flavor": "a"}},
        "spec": {
            "nodeSelector": {"zone": "a", "gpu": "h100"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "schedulingGates": [{"name": "example.com/topology"}],
        },
    }
    second = {
        "metadata": {"labels": {"queue": "b", "only-first": None}, "annotations": {"flavor": "b"}},
        "spec": {"nodeSelector": {"zone": "b", "gpu": None}, "tolerations": None, "schedulingGates": None},
    }
    crew = await rig.submit(jobset(suspend=True, strategy="Recreate"))
    before = (await crew.jobs())[JOB]["spec"]["template"]

    async def admit(template: KubeObject) -> KubeObject:
        entry = (await crew.jobset())["spec"]["replicatedJobs"][0]
        entry = merge_patch(entry, {"template": {"spec": {"template": template}}})
        await rig.edit({"spec": {"suspend": False, "replicatedJobs": [entry]}})
        job = (await crew.jobs())[JOB]
        assert job["spec"]["suspend"] is False
        found: KubeObject = job["spec"]["template"]
        return found

    template = await admit(first)
    assert template["metadata"]["labels"]["only-first"] == "x"
    assert template["spec"]["nodeSelector"] == {"zone": "a", "gpu": "h100"}
    assert template["spec"]["schedulingGates"] == [{"name": "example.com/topology"}]

    await crew.set_job(JOB, startTime=NOW, active=2)
    await rig.edit({"spec": {"suspend": True}})
    assert (await crew.jobs())[JOB]["spec"]["suspend"] is True
    await crew.set_job(JOB, active=0, conditions=[SUSPENDED])

    template = await admit(second)
    assert "only-first" not in template["metadata"]["labels"]
    assert template["metadata"]["annotations"]["flavor"] == "b"
    assert template["spec"]["nodeSelector"] == {"zone": "b"}
    assert "tolerations" not in template["spec"]
    assert before["metadata"]["labels"].items() <= template["metadata"]["labels"].items()
    assert "startTime" not in (await crew.jobs())[JOB]["status"]
