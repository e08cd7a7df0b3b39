"""The rights of an agent's token on a real kube-apiserver with RBAC and our policy."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import pytest
import pytest_asyncio

from inplace.agent.announce.jobset_requests import announcement_request, failure_request, list_request, watch_request
from inplace.agent.settings.config import AgentConfig
from inplace.common.kube.client import APPLY_PATCH
from inplace.common.kube.http.request import Request
from inplace.common.protocol.bounds import INT32_MAX, STEP_MAX
from inplace.common.protocol.bounds import STEP_MAX as PROGRESS_STEP_MAX
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire import names as wire
from inplace.common.wire.last_progress import last_progress_text
from inplace.common.wire.phases import MILLISECONDS_MAX, RestartPhase, phases_text
from inplace.common.wire.worker_failure import STALLED_S_MAX, WorkerFailure, failure_text
from testbed.api_client import UnexpectedStatus
from testbed.control_plane import ControlPlane
from testbed.ports import free_ports
from tests.agent.process import ROOT, process
from tests.cluster.agent_scene import Answer, Scene, agent_scene, own_pod, pod_path
from tests.deploy.agent_attempts import ACCOUNT, ATTEMPTS, FORCED, OWN, Attempt, announced
from tests.deploy.agent_permissions import PAGE, refuser, row

pytestmark = pytest.mark.asyncio(loop_scope="session")

AGENT_S_MAX = 60.0  # it announces within a second, and later when the machine is busy


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(plane: ControlPlane) -> AsyncIterator[Scene]:
    """Give a namespace with the permissions that `inject` prints."""
    async with agent_scene(plane) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mighty(plane: ControlPlane) -> AsyncIterator[Scene]:
    """Give a namespace whose agents RBAC allows everything: only the policy refuses there."""
    async with agent_scene(plane, is_mighty=True) as made:
        yield made


def names(attempt: Attempt) -> str:
    """Return a test's id."""
    return attempt.claim


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=names)
async def test_refused(scene: Scene, attempt: Attempt) -> None:
    """With the shipped permissions the attempt is refused and changes nothing."""
    await is_refused(scene, attempt)


async def is_refused(scene: Scene, attempt: Attempt) -> Answer:
    """Check that an attempt is refused as the page says, and changes nothing; return the refusal."""
    before = await scene.pods()
    answer = await scene.answer(attempt)
    assert answer.code in (401, 403, 422), answer
    assert await scene.pods() == before
    assert row(attempt, answer) in PAGE.read_text().splitlines(), f"{PAGE.name} should say {row(attempt, answer)}"
    return answer


@pytest.mark.parametrize("attempt", [attempt for attempt in ATTEMPTS if attempt.words], ids=names)
async def test_refused_by_the_policy_alone(mighty: Scene, attempt: Attempt) -> None:
    """Where RBAC allows the attempt, the policy refuses it, with the expected and the seen value."""
    before = await mighty.pods()
    answer = await mighty.answer(attempt)
    assert (answer.code, refuser(answer)) == (403, "policy"), answer
    assert attempt.words in answer.message
    assert await mighty.pods() == before


async def test_a_put_is_refused_by_the_policy_alone(mighty: Scene) -> None:
    """A PUT of the whole Pod with an added label is refused like a patch."""
    stored = await own_pod(mighty)
    stored["metadata"]["labels"]["a"] = "b"
    with pytest.raises(UnexpectedStatus, match="saw a change of other metadata"):
        await mighty.clients["own"].text("PUT", pod_path(mighty), body=stored)


async def send(scene: Scene, request: Request) -> str:
    """Send an agent's request."""
    path, _, query = request.path.partition("?")
    body = json.loads(request.body) if request.body else None
    pairs = dict(parse_qsl(query))
    if "watch" in pairs:
        pairs["timeoutSeconds"] = "1"  # wait for its end
    return await scene.clients["own"].text(
        request.method, path, body=body, query=pairs, content_type=request.headers.get("content-type", "")
    )


async def test_our_agents_requests_are_allowed(plane: ControlPlane) -> None:
    """List and watch by name; announcements: the first, the same again, with all phases, int32's last; and deaths."""
    async with agent_scene(plane) as scene:
        config = AgentConfig(scene.namespace, OWN, "train", pod_uid=scene.uid)
        told = last_progress_text(
            LastProgress(PROGRESS_STEP_MAX, MILLISECONDS_MAX, MILLISECONDS_MAX, 999.9, 999.9, 9_999_999)
        )
        longest = phases_text(dict.fromkeys(RestartPhase, MILLISECONDS_MAX), 9_999.999, told)
        await send(scene, list_request(config, as_table=True, consistent=True))
        await send(scene, watch_request(config, as_table=True, resource_version="0", jitter=0.0))
        await scene.admin.patch(pod_path(scene), announced(epoch=None, attempt=None, phases=None))
        for epoch, phases in ((1, ""), (1, ""), (2, "v1"), (3, longest), (INT32_MAX, longest)):
            await send(scene, announcement_request(config, epoch, phases))
            for how in ((None,), (1,), (255,), (None, 1), (None, STALLED_S_MAX, 0), (None, STALLED_S_MAX, STEP_MAX)):
                code, *stall = how
                failure = WorkerFailure(epoch, code, 1_790_000_000.0, *stall)
                await send(scene, failure_request(config, failure_text(failure)))
            stored = (await own_pod(scene))["metadata"]["annotations"]
            assert wire.epoch_of_pod(stored) == epoch
        assert stored[wire.PHASES] == longest


async def test_upstreams_agent_is_allowed(plane: ControlPlane) -> None:
    """Upstream's agent may apply its annotation by force, also to a Pod with our agent's announcement."""
    async with agent_scene(plane) as scene:
        path = pod_path(scene)
        for attempt in ("4", "5", "17"):
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": OWN, **announced(attempt=attempt)["metadata"]},
            }
            await scene.clients["own"].text("PATCH", path, body=body, query=FORCED, content_type=APPLY_PATCH)
            assert (await own_pod(scene))["metadata"]["annotations"][wire.ATTEMPT] == attempt


async def test_garbage_of_somebody_else_does_not_wedge_an_agent(plane: ControlPlane) -> None:
    """An annotation that is no epoch is overwritten by the next announcement."""
    async with agent_scene(plane) as scene:
        await scene.admin.patch(pod_path(scene), announced(epoch="many", attempt=None))
        config = AgentConfig(scene.namespace, OWN, "train", pod_uid=scene.uid)
        await send(scene, announcement_request(config, 1))
        assert (await own_pod(scene))["metadata"]["annotations"][wire.EPOCH] == "1"


async def test_others_are_left_alone(scene: Scene) -> None:
    """The policy restricts only agents' accounts: other users may label Pods."""
    path = pod_path(scene)
    await scene.admin.patch(path, {"metadata": {"labels": {"a": "b"}}}, dryRun="All")
    await scene.admin.patch(path, announced(epoch=None), dryRun="All")


async def first_line(scene: Scene, token: str, event: str, **more: str) -> dict[str, Any]:
    """Run our agent for the scene's Pod, as kubelet would, until it logs an event; return that line."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "KUBECONFIG": str(scene.kubeconfigs[token]),
        "NAMESPACE": scene.namespace,
        "POD_NAME": OWN,
        "POD_UID": scene.uid,
        "JOBSET_NAME": "train",
        "BARRIER_ADDRESS": "127.0.0.1",
        "BARRIER_PORT": str(free_ports(1)[0]),
        "RESTART_POD_IN_PLACE_EXIT_CODE": "88",
    }
    async with process(environment | more) as agent, asyncio.timeout(AGENT_S_MAX):
        assert agent.stderr is not None
        async for line in agent.stderr:
            found: dict[str, Any] = json.loads(line)
            if found["event"] == event:
                return found
    raise AssertionError(f"expected {event}, and the agent ended without it")


@pytest.mark.parametrize("account", [ACCOUNT, "trainer"])
async def test_the_agent_itself_is_allowed(plane: ControlPlane, account: str) -> None:
    """The program, with its Pod's token and the shipped Role, or ClusterRole, announces epoch 1 on a new Pod."""
    async with agent_scene(plane, account=account) as scene:
        await scene.admin.patch(pod_path(scene), announced(epoch=None, attempt=None, phases=None))
        line = await first_line(scene, "own", "announcement_accepted")
        assert line["epoch"] == 1
        assert (await own_pod(scene))["metadata"]["annotations"][wire.EPOCH] == "1"


async def test_the_agent_says_who_refuses_it(scene: Scene) -> None:
    """With another Pod's token, or after a foreign epoch far ahead, the agent logs the policy's message."""
    line = await first_line(scene, "unbound", "announcement_failed")
    assert (line["cause"], "saw one of no Pod" in line["message"]) == ("forbidden", True)
    assert line["cure"].startswith("an admission policy")
    line = await first_line(scene, "own", "announcement_failed", PREVIOUS_EPOCH="5")
    assert "where somebody else wrote a wrong one, delete the Pod" in line["message"]


async def test_the_agent_says_which_right_it_lacks(scene: Scene) -> None:
    """Without a Role the agent logs its account, the missing right and who gives it."""
    line = await first_line(scene, "stranger", "watch_failed")
    assert f"system:serviceaccount:{scene.namespace}:default" in line["message"]
    assert "AgentBindingFailed" in line["cure"]
