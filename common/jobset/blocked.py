"""
Containers that kubelet cannot start: which of its words say so, and the one sentence about it.

The JobSet's condition ContainersBlocked, its Event, `inplace explain` and `inplace status` all have this sentence. An
image volume that cannot be pulled blocks each container that mounts it, and kubelet then names the volume's image in
the message alone. Source: pkg/kubelet/images/types.go, image_manager.go and pkg/kubelet/kuberuntime v1.36; KEP-4639.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from inplace.common.bare.record import record

IMAGE: Final = "image cannot be pulled"
CREATION: Final = "container cannot be created"
BLOCKING: Final = dict.fromkeys(
    (
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    ),
    IMAGE,
) | dict.fromkeys(
    (
        "CreateContainerConfigError",
        "CreateContainerError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
        "RunContainerError",
    ),
    CREATION,
)
"""Reasons of state.waiting that last until something changes outside of the Pod, and what they mean."""

END_CHARS: Final = 200  # of each end of a sentence: the image stands at its beginning, and the cause at its end
IMAGE_CHARS: Final = 100  # the end of an image's name; with the container's it is within the beginning of a sentence
_CUT: Final = " ... "
_BACK_OFF: Final = re.compile(r'Back-off pulling image "[^"]*": (\w+): (.+)', re.DOTALL)
_QUOTED: Final = re.compile(r'image (?:tag )?"([^"]+)"')


@record
class Blocked:
    """One container that kubelet cannot start.

    Args:
        what: IMAGE or CREATION.
        subject: the container and its image, which stay the same while kubelet tries again.
        said: kubelet's reason and message.
    """

    what: str
    subject: str
    said: str

    @property
    def cause(self) -> str:
        """Return what makes two of them one cause."""
        return f"{self.what}: {self.subject}"

    @property
    def detail(self) -> str:
        """Return all but what it means, cut."""
        return both_ends(f"{self.subject}: {self.said}")


def blocked(container: str, image: str, reason: str | None, message: str | None) -> Blocked | None:
    """Return why kubelet cannot start a container; None where it waits for something else.

    Args:
        container: its name.
        image: as its status has it; "" where that was not read.
        reason: of state.waiting.
        message: of state.waiting.
    """
    if reason is None or (what := BLOCKING.get(reason)) is None:
        return None
    said = message or ""
    if (retried := _BACK_OFF.fullmatch(said)) is not None:  # the error before says more, and says it all the time
        reason, said = retried[1], retried[2]
    subject = f"container {container}"
    if what == IMAGE and image:
        is_volume = (quoted := _QUOTED.search(said)) is not None and _repository(image) not in quoted[1]
        subject += ", an image volume" if is_volume else f", image {image[-IMAGE_CHARS:]}"
    return Blocked(what, subject, f"{reason}: {said}" if said else reason)


@record
class BlockedCause:
    """One cause for which kubelet cannot start containers.

    Args:
        sample: of one of the Pods.
        pods: how many there are.
    """

    sample: Blocked
    pods: int

    def __str__(self) -> str:
        """Say it in one line."""
        pods = "1 Pod" if self.pods == 1 else f"{self.pods:,} Pods"
        return f"{pods}: {self.sample.what}: {self.sample.detail}"


def causes_of(found: Iterable[Blocked]) -> Sequence[BlockedCause]:
    """Return the causes, most Pods first."""
    samples: dict[str, Blocked] = {}
    counts: dict[str, int] = {}
    for one in found:
        samples.setdefault(one.cause, one)
        counts[one.cause] = counts.get(one.cause, 0) + 1
    return [BlockedCause(samples[cause], counts[cause]) for cause in sorted(counts, key=lambda cause: -counts[cause])]


def both_ends(text: str) -> str:
    """Return a text in one line; of a long one the beginning and the end."""
    line = " ".join(text.split())
    return line if len(line) <= 2 * END_CHARS + len(_CUT) else line[:END_CHARS] + _CUT + line[-END_CHARS:]


def _repository(image: str) -> str:
    """Return an image's name without tag and digest."""
    name = image.partition("@")[0]
    return name.rpartition(":")[0] if ":" in name.rpartition("/")[2] else name
