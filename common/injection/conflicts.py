"""Find ports, names and folders of a Pod template that the agent needs for itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from inplace.common.agent_command import GUARD
from inplace.common.injection import agent_pieces
from inplace.common.injection.finding import Finding, refusal
from inplace.common.injection.pod_roles import RUN, Container, Member

_PROGRAMS: Final = (agent_pieces.PREFIX, agent_pieces.IMAGE_VOLUME, "the agent's programs")
_SHARED: Final = (agent_pieces.FOLDER, agent_pieces.VOLUME, "the agent and its guards")


def conflicts(member: Member, workers: Sequence[Container], port: int, images: Sequence[str]) -> Iterator[Finding]:
    """Yield what keeps an agent, or a guard that is not there yet, out of the Pod.

    Args:
        member: as its author wrote it.
        workers: the containers that train.
        port: of the barrier.
        images: references under which the agent's image may be a volume already.
    """
    fresh = [worker for worker in workers if not (worker.calls(GUARD) or worker.calls(RUN))]
    if member.agent is None:
        yield from _ports(member, port)
        yield from _containers(member)
        for worker in workers:
            yield from _mounts(worker, *_SHARED)
    if fresh:
        yield from _volumes(member, images)
    for worker in fresh:
        yield from _mounts(worker, *_PROGRAMS)


def _ports(member: Member, wanted: int) -> Iterator[Finding]:
    """All containers of a Pod share its address: nobody else may listen on the barrier's port."""
    for container in member.every_container:
        for position, port in enumerate(container.raw.get("ports") or ()):
            if port.get("containerPort") == wanted:
                path = f"{container.path}.ports[{position}].containerPort"
                fix = "change it: the agent takes 8080, or the first of 18080 to 18099 that is free"
                yield refusal(path, wanted, "a port that the agent does not need", fix)


def _containers(member: Member) -> Iterator[Finding]:
    """Names of containers are unique in a Pod."""
    for container in member.every_container:
        is_copier = container.words[:1] == [agent_pieces.COPY_PROGRAM]
        if container.name == agent_pieces.CONTAINER or (container.name == agent_pieces.COPIER and not is_copier):
            fix = "rename it: the agent's container has this name"
            yield refusal(f"{container.path}.name", container.name, "another name", fix)


def _volumes(member: Member, images: Sequence[str]) -> Iterator[Finding]:
    """Yield volumes that have a name of ours and are something else."""
    for position, volume in enumerate(member.pod_spec.get("volumes") or ()):
        name = str(volume.get("name"))
        needed = {
            agent_pieces.IMAGE_VOLUME: None if _has_programs(member, volume, images) else "the agent's image",
            agent_pieces.VOLUME: None if "emptyDir" in volume else "an emptyDir",
            agent_pieces.PROGRESS_VOLUME: None if "emptyDir" in volume else "an emptyDir",
            agent_pieces.TOKEN_VOLUME: None if agent_pieces.holds_token(volume) else "a token",
        }.get(name)
        if needed:
            path, fix = f"{member.pod_path}.volumes[{position}]", "rename it: a volume of the agent has this name"
            yield refusal(path, f"{name}, which is {_kind(volume)}", f"{needed} under this name", fix)


def _kind(volume: dict[str, Any]) -> str:
    source = next((key for key in volume if key != "name"), "of no kind")
    reference = (volume["image"] or {}).get("reference", "") if source == "image" else ""
    return f"image {reference}" if reference else source


def _has_programs(member: Member, volume: dict[str, Any], images: Sequence[str]) -> bool:
    """Say whether a volume is the agent's image, or the folder into which an init container copies it."""
    if "image" in volume:
        return (volume["image"] or {}).get("reference") in images
    name = volume.get("name")
    copiers = (one for one in member.inits if one.words[:1] == [agent_pieces.COPY_PROGRAM])
    return "emptyDir" in volume and any(
        mounted.get("name") == name for one in copiers for mounted in one.raw.get("volumeMounts") or ()
    )


def _mounts(worker: Container, folder: str, volume: str, owner: str) -> Iterator[Finding]:
    """Yield mounts in a worker's container that hide, or are hidden by, a folder of the agent's."""
    for position, mounted in enumerate(worker.raw.get("volumeMounts") or ()):
        place = str(mounted.get("mountPath", "")).rstrip("/")
        is_ours = place == folder and mounted.get("name") == volume
        if not is_ours and (place == folder or place.startswith(f"{folder}/")):
            path, found = f"{worker.path}.volumeMounts[{position}]", f"{mounted.get('name')} at {place}"
            yield refusal(path, found, f"nothing there: {folder} is for {owner}", "mount it elsewhere")
