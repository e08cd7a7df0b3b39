"""Containers that kubelet cannot start are told on the JobSet: how many, which, and kubelet's words."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.cli.group.pod_facts import POD_CODEC as POD_FACTS
from inplace.cli.group.straggler import straggler_of
from inplace.common.jobset.kinds import POD_CODEC
from inplace.common.kube.resources import KubeObject
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.objects import pod_manifest
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

ONE = [replicated_job(pods=1)]
AGENT = "registry.example.com/inplace-agent:1"
TRAIN = "registry.example.com/train:1"


def refused(image: str) -> str:
    """Return what kubelet 1.36 says with containerd where a registry does not have an image."""
    return f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found'


def waiting(name: str, image: str, reason: str, message: str | None = None) -> KubeObject:
    """Return the status of a container as kubelet reports it."""
    state = {"waiting": {"reason": reason} | ({} if message is None else {"message": message})}
    return {"name": name, "image": image, "imageID": "", "ready": False, "restartCount": 0, "state": state}


def agent_waits(reason: str = "ErrImagePull", message: str | None = None) -> dict[str, Any]:
    """Return the status of a Pod whose agent's image cannot be pulled."""
    return {
        "phase": "Pending",
        "initContainerStatuses": [waiting("inplace-agent", AGENT, reason, message or refused(AGENT))],
        "containerStatuses": [waiting("worker", TRAIN, "PodInitializing")],
    }


async def blocked(rig: Rig, seconds: float = 8.0, **fields: Any) -> tuple[Crew, str]:
    """Submit a JobSet of one Pod whose agent's image cannot be pulled, and let time pass; return its crew and Pod."""
    crew = await rig.with_pods(jobset(jobs=ONE, **fields))
    (pod,) = crew.pods.values()
    await crew.set_pod(pod, **agent_waits())
    await rig.settle(seconds)
    return crew, pod


def back_off(image: str, said: str) -> str:
    """Return kubelet's message between two attempts."""
    return f'Back-off pulling image "{image}": ErrImagePull: {said}'


OWN, VOLUME = f", image {TRAIN}", ", an image volume"
NO_NAME = f'Failed to apply default image tag "{TRAIN}": couldn\'t parse image name "{TRAIN}": invalid reference format'
NO_KEY = f"image pull failed for {TRAIN} because the signature validation failed: no key"
OLDER = f'Back-off pulling image "{TRAIN}"'


def never(image: str) -> str:
    """Return what kubelet says of an image that is not there and that it may not pull."""
    return f'Container image "{image}" is not present with pull policy of Never'


PULLS: dict[str, tuple[str, str | None, str]] = {  # kubelet's reason, its message, what is said of container worker
    "not found": ("ErrImagePull", refused(TRAIN), f"{OWN}: ErrImagePull: {refused(TRAIN)}"),
    "back-off": ("ImagePullBackOff", back_off(TRAIN, refused(TRAIN)), f"{OWN}: ErrImagePull: {refused(TRAIN)}"),
    "back-off of an older kubelet": ("ImagePullBackOff", OLDER, f"{OWN}: ImagePullBackOff: {OLDER}"),
    "no message": ("ErrImagePull", None, f"{OWN}: ErrImagePull"),
    "no such name": ("InvalidImageName", NO_NAME, f"{OWN}: InvalidImageName: {NO_NAME}"),
    "never": ("ErrImageNeverPull", never(TRAIN), f"{OWN}: ErrImageNeverPull: {never(TRAIN)}"),
    "signature": ("SignatureValidationFailed", NO_KEY, f"{OWN}: SignatureValidationFailed: {NO_KEY}"),
    # The volume's image is named by the message alone, with the container's own image in the status.
    "volume": ("ErrImagePull", refused(AGENT), f"{VOLUME}: ErrImagePull: {refused(AGENT)}"),
    "volume, back-off": (
        "ImagePullBackOff",
        back_off(AGENT, refused(AGENT)),
        f"{VOLUME}: ErrImagePull: {refused(AGENT)}",
    ),
    "volume, never": ("ErrImageNeverPull", never(AGENT), f"{VOLUME}: ErrImageNeverPull: {never(AGENT)}"),
}


@pytest.mark.parametrize(("reason", "message", "words"), PULLS.values(), ids=PULLS)
def test_controller_and_commands_say_it_in_the_same_words(reason: str, message: str | None, words: str) -> None:
    """As kubelet 1.36.3 writes it (pkg/kubelet/images/image_manager.go), of an image of its own and of a volume's."""
    status = {"phase": "Pending", "containerStatuses": [waiting("worker", TRAIN, reason, message)]}
    pod = pod_manifest(spec={"nodeName": "n"}, status=status)
    found = POD_CODEC.convert(pod).status.blocked
    assert found is not None
    assert found.detail == f"container worker{words}"
    straggler = straggler_of("w-0-0", POD_FACTS.convert(pod), 0, 1)
    assert straggler.reason == f"{found.what}: {found.detail}"


@pytest.mark.parametrize(
    ("image", "quoted"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("localhost:5000/train", "localhost:5000/train:latest"),
        ("train:1@sha256:0123", "docker.io/library/train@sha256:0123"),
    ],
)
def test_a_name_that_containerd_completes_is_the_containers_own(image: str, quoted: str) -> None:
    """Registry, tag and digest may differ from what the manifest says."""
    pod = pod_manifest(status={"containerStatuses": [waiting("worker", image, "ErrImagePull", refused(quoted))]})
    found = POD_CODEC.convert(pod).status.blocked
    assert found is not None
    assert found.subject == f"container worker, image {image}"


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    """A runtime names an image several times before it says what is wrong."""
    said = refused(TRAIN) + ": " + "x" * 5_000 + ": dial tcp: lookup registry.example.com: no such host"
    waits = waiting("worker", "r/" + "i" * 500, "ErrImagePull", said[:1000])
    pod = pod_manifest(status={"containerStatuses": [waits]})
    found = POD_CODEC.convert(pod).status.blocked
    assert found is not None
    assert len(found.detail) <= 410
    assert found.subject in found.detail
    pod["status"] = {"containerStatuses": [waiting("worker", TRAIN, "ErrImagePull", said[:300] + said[-300:])]}
    found = POD_CODEC.convert(pod).status.blocked
    assert found is not None
    assert found.detail.endswith("no such host")


def kept_words(pod: KubeObject) -> list[tuple[str | None, str | None]]:
    """Return what the cache keeps of images and messages."""
    status = POD_CODEC.convert(pod).status
    statuses = status.all_statuses
    return [(one.image, one.state.waiting.message if one.state.waiting else None) for one in statuses]


def test_of_containers_that_are_not_blocked_nothing_more_is_kept() -> None:
    """Of 5,000 Pods that start, neither images nor messages stay in the cache; blocked ones share one text."""
    loops = waiting("worker", TRAIN, "CrashLoopBackOff", "back-off 5m0s restarting failed container")
    running = {"name": "worker", "image": TRAIN, "state": {"running": {}}}
    pod = pod_manifest()
    for status in (loops, running, waiting("worker", TRAIN, "ContainerCreating")):
        assert kept_words(pod | {"status": {"containerStatuses": [status]}}) == [(None, None)]
    blocked = pod | {"status": {"containerStatuses": [waiting("worker", TRAIN, "ErrImagePull", "x" * 5_000)]}}
    ((image, first),), ((_, second),) = kept_words(blocked), kept_words(blocked)
    assert image == TRAIN
    assert first is not None
    assert len(first) == 1024
    assert first is second
