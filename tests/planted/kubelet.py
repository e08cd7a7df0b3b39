"""Real bugs of kubelet, in the simulator's kubelet."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from inplace.simulator.cluster.pod_lifecycle import GRACE_OF_RESTART_ALL_S, Action, Kill, PodLifecycle, State
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.prober import Prober
from tests.planted.bug import Area, hunted
from tests.planted.mistake import instead_of


async def _passes_unprobed(original: Callable[..., Coroutine[Any, Any, bool]], self: Prober, probe: Probe) -> bool:
    return self._instance >= 3 or await original(self, probe)


def _does_not_wait(
    original: Callable[..., Iterable[Action]], self: PodLifecycle, sources: frozenset[str]
) -> Iterable[Action]:
    for container in self._removal_order(sources):
        if not container.alive:
            self._remove(container)
        elif container.state is State.RUNNING and not container.killing:
            container.killing = True
            yield Kill(container.spec.name, container.instance, GRACE_OF_RESTART_ALL_S)
    self.restarting = None
    self.initialized = False


KUBELET = (
    hunted(
        "kubelet takes a sidecar for started before its probe ran",
        Area.KUBELET,
        (instead_of(Prober._succeeds, _passes_unprobed),),
        "kubernetes #141155: a replaced sidecar passes for started",
    ),
    hunted(
        "kubelet starts containers while others of the Pod still run",
        Area.KUBELET,
        (instead_of(PodLifecycle._remove_next, _does_not_wait),),
        "KEP-5532, the hazard its removal order excludes: RestartAllContainers without waiting",
    ),
    hunted(
        "kubelet never starts a sidecar and its crashed worker again",
        Area.KUBELET,
        (
            instead_of(
                PodLifecycle._start,
                lambda original, self, container, now_s: (
                    () if container.restart_count > 1 else original(self, container, now_s)
                ),
            ),
        ),
        "kubernetes #136910, mended by #137146: a crashed main container is not started again",
    ),
)
