"""A missing part of the installation is reported once, with a command, until it is there."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from inplace.common.injection.pod import InjectOptions
from inplace.common.jobset.node_taints import TaintLimits
from inplace.common.jobset.scopes import CRD_CURE
from inplace.common.kube.client import KubeClient
from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from inplace.common.wire import names as wire
from inplace.controller.act.job_settings import JobSettings
from inplace.controller.config import ControllerConfig
from inplace.controller.preflight import (
    AGAIN_S,
    AGENTS_CURE,
    CRD,
    OUR_FIELDS,
    POLICIES,
    POLICIES_CURE,
    TAINTS_CURE,
    Preflight,
)
from inplace.simulator.apiserver import InMemoryTransport
from tests.common.kube.answers import refusal
from tests.controller.background import background
from tests.controller.rig import USER, Rig
from tests.deploy.admission import policies
from tests.deploy.crd_cases import crd

pytestmark = pytest.mark.virtual_time

WHOLE = {"event": "installation_complete", "log_level": "info"}
GUARDS = policies("jobsets.yaml", "immutable.yaml", "agents.yaml", "controller.yaml")


def preflight(rig: Rig, **settings: Any) -> Preflight:
    """Return a preflight as the controller's user."""
    client = KubeClient(InMemoryTransport(rig.server, user=USER), user_agent="c", field_manager="c")
    log = structlog.get_logger("test")
    return Preflight(client, ControllerConfig(**({"lease_namespace": "s"} | settings)), clock=rig.clock, log=log)


async def install_guards(rig: Rig) -> None:
    """Store the policies that the preflight needs."""
    for document in GUARDS:
        plural = f"{document['kind'].lower()}s".replace("policys", "policies")
        resource = Resource("admissionregistration.k8s.io", "v1", plural, document["kind"], namespaced=False)
        await rig.admin.create(resource, None, document)


async def test_what_an_opt_in_needs_is_looked_for_where_it_is_asked_for(rig: Rig) -> None:
    """Without the right to watch Namespaces a controller with --agent-opt-in is not ready; others do not ask for it."""
    await install_guards(rig)
    rig.fault = denying(("watch", "namespaces"))
    for opt_in, missing in ((True, True), (False, False)):
        look = preflight(rig, job_settings=JobSettings(agent=InjectOptions(), opt_in=opt_in))
        async with background(look.run()):
            await rig.settle()
            assert ("watch namespaces" in (look.why_not_ready or "")) is missing


def denying(*denied: tuple[str, str]) -> Any:
    """Return a fault: access reviews of these (verb, resource) are denied."""

    def answer(request: Request) -> Response | None:
        if not request.path.split("?")[0].endswith("selfsubjectaccessreviews"):
            return None
        asked = msgspec.json.decode(request.body)["spec"]["resourceAttributes"]
        allowed = (asked["verb"], asked["resource"]) not in denied
        return Response(
            201,
            {"content-type": "application/json"},
            msgspec.json.encode({"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}),
        )

    return answer


async def test_a_whole_installation_is_called_whole(rig: Rig) -> None:
    """With a whole installation the preflight ends at once, reports nothing, and the controller is ready."""
    await install_guards(rig)
    looking = preflight(rig)
    with capture_logs() as logs:
        await looking.run()
    assert (logs, looking.why_not_ready) == ([WHOLE], None)


async def test_a_missing_crd_is_named_until_it_is_installed(rig: Rig) -> None:
    """A missing CRD is reported once with a command; the controller is ready within a minute of its installation."""
    await install_guards(rig)
    await rig.admin.delete(CUSTOM_RESOURCE_DEFINITIONS, None, CRD)
    looking = preflight(rig)
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as group:
            group.create_task(looking.run())
            await rig.settle(3 * AGAIN_S)
            assert looking.why_not_ready == (f"expected the CustomResourceDefinition {CRD}, found none; {CRD_CURE}")
            await rig.admin.create(CUSTOM_RESOURCE_DEFINITIONS, None, crd())
            await rig.settle(AGAIN_S + 5.0)
            assert looking.why_not_ready is None
    ours = [entry for entry in logs if entry["event"].startswith("installation")]  # a controller runs, too
    assert [(entry["log_level"], entry["event"]) for entry in ours] == [
        ("error", "installation_incomplete"),
        ("info", "installation_complete"),
    ]


# Source: config/components/crd of sigs.k8s.io/jobset v0.12.0.
UPSTREAMS = {
    "spec": {
        "coordinator",
        "failurePolicy",
        "managedBy",
        "network",
        "replicatedJobs",
        "startupPolicy",
        "successPolicy",
        "suspend",
        "ttlSecondsAfterFinished",
        "volumeClaimPolicies",
    },
    "status": {
        "conditions",
        "currentInPlaceRestartAttempt",
        "previousInPlaceRestartAttempt",
        "replicatedJobsStatus",
        "restarts",
        "restartsCountTowardsMax",
        "terminalState",
    },
}


@pytest.mark.parametrize("part", ["spec", "status"])
def test_every_field_of_ours_is_looked_for(part: str) -> None:
    """The preflight looks for exactly those fields of deploy/crd that upstream's CRD lacks."""
    parts = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert set(parts[part]["properties"]) - UPSTREAMS[part] == OUR_FIELDS[part]


async def test_another_projects_crd_is_a_warning(rig: Rig) -> None:
    """With upstream's CRD the controller works and warns about the missing fields and the consequence."""
    await install_guards(rig)
    stored = await rig.admin.get(CUSTOM_RESOURCE_DEFINITIONS, None, CRD)
    parts = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for name in (wire.SYNCED_EPOCH, wire.EXEMPT_EPOCHS):
        del parts["status"]["properties"][name]
    del parts["spec"]["properties"]["activeDeadlineSeconds"]
    await rig.admin.replace(CUSTOM_RESOURCE_DEFINITIONS, None, CRD, stored)
    (line,), ready = await look_once(rig)
    absent = "exemptEpochs, syncedEpoch, spec.activeDeadlineSeconds"
    assert line["message"].endswith(f"found one without {absent}: what is written there is lost")
    assert (line["log_level"], line["cure"], ready) == ("warning", CRD_CURE, None)


async def test_missing_rights_are_listed_with_who_lacks_them(rig: Rig) -> None:
    """One line names the account, all missing rights and their namespaces; the controller is not ready."""
    await install_guards(rig)
    rig.fault = denying(("patch", "pods"), ("update", "leases"))
    (line,), ready = await look_once(rig, namespace="team")
    assert line["message"] == (
        f"expected {USER} to be allowed to patch pods in namespace team, update leases in namespace s; "
        "the API server says no"
    )
    assert "kubectl apply --server-side -k deploy/rbac" in line["cure"]
    assert ready == f"{line['message']}; {line['cure']}"


async def test_rights_for_agents_are_a_warning(rig: Rig) -> None:
    """A controller that adds agents and may not bind their rights is ready, and says so; another does not ask."""
    await install_guards(rig)
    rig.fault = denying(("create", "rolebindings"), ("bind", "clusterroles"))
    assert await look_once(rig) == ([WHOLE], None)
    (line,), ready = await look_once(rig, job_settings=JobSettings(agent=InjectOptions()))
    assert line["message"].startswith(f"expected {USER} to be allowed to create rolebindings, bind clusterroles; ")
    assert (line["log_level"], line["cure"], ready) == ("warning", AGENTS_CURE, None)


async def test_the_right_to_taint_nodes_is_a_warning(rig: Rig) -> None:
    """A controller that is to taint bad nodes and may not is ready, and says so; another does not ask."""
    await install_guards(rig)
    rig.fault = denying(("patch", "nodes"))
    assert await look_once(rig) == ([WHOLE], None)
    (line,), ready = await look_once(rig, namespace="team", taint_limits=TaintLimits(1, 60))
    assert line["message"] == f"expected {USER} to be allowed to patch nodes; the API server says no"
    assert (line["log_level"], line["cure"], ready) == ("warning", TAINTS_CURE, None)


async def test_one_namespace_needs_no_right_to_read_nodes(rig: Rig) -> None:
    """With --namespace the preflight does not check rights that only a ClusterRole can grant."""
    await install_guards(rig)
    rig.fault = denying(("get", "nodes"))
    assert await look_once(rig, namespace="team") == ([WHOLE], None)
    assert len((await look_once(rig))[0]) == 1


async def test_missing_policies_are_warnings(rig: Rig) -> None:
    """Each missing policy is a warning with its consequence, and the controller is ready without them."""
    lines, ready = await look_once(rig)
    assert [line["cure"] for line in lines] == [POLICIES_CURE] * len(POLICIES)
    assert "JobSets are not checked" in lines[0]["message"]
    assert "templates of a JobSet that runs may change" in lines[1]["message"]
    assert "an agent may change any Pod" in lines[2]["message"]
    assert ready is None


async def test_what_may_not_be_asked_counts_as_there(rig: Rig) -> None:
    """Without the right to read the CRD or the policies they count as present, so an older role gives no alarm."""
    rig.fault = lambda request: refusal(403, "Forbidden") if request.method == "GET" else None
    assert await look_once(rig) == ([WHOLE], None)


async def test_a_server_that_is_away_is_asked_again(rig: Rig) -> None:
    """When the server does not answer, the preflight asks again and reports nothing as missing."""
    rig.fault = lambda _: refusal(503, "ServiceUnavailable")
    looking = preflight(rig)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(looking.run())
        await rig.settle()
        assert looking.why_not_ready is None
        await install_guards(rig)
        rig.fault = lambda _: None
        await rig.settle(AGAIN_S)
        assert task.done()


async def look_once(rig: Rig, **settings: Any) -> tuple[list[Any], str | None]:
    """Return what one preflight logs, a controller runs beside it, and the reason why the controller is not ready."""
    looking = preflight(rig, **settings)
    with capture_logs() as logs:
        async with background(looking.run()):
            await rig.settle()
    return [entry for entry in logs if entry["event"].startswith("installation")], looking.why_not_ready
