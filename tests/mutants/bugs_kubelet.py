"""Real bugs of kubelet, in the simulator's kubelet."""

from tests.mutants.mutant import Area, Edit, Mutant

_LIFE = "simulator/cluster/pod_lifecycle.py"

KUBELET = (
    Mutant(
        "kubelet takes a sidecar for started before its probe ran",
        Area.KUBELET,
        (
            Edit(
                "simulator/cluster/prober.py",
                "            if not await self._reaches(self._spec.startup, wanted=True):\n",
                "            if instance < 3 and not await self._reaches(self._spec.startup, wanted=True):\n",
            ),
        ),
        "kubernetes #141155: a replaced sidecar passes for started",
    ),
    Mutant(
        "kubelet starts containers while others of the Pod still run",
        Area.KUBELET,
        (
            Edit(
                _LIFE,
                "            if container.alive:\n                if container.state is State.RUNNING and not "
                "container.killing:\n                    container.killing = True\n                    yield Kill("
                "container.spec.name, container.instance, GRACE_OF_RESTART_ALL_S)\n                return\n",
                "            if container.alive:\n                if container.state is State.RUNNING and not "
                "container.killing:\n                    container.killing = True\n                    yield Kill("
                "container.spec.name, container.instance, GRACE_OF_RESTART_ALL_S)\n                continue\n",
            ),
        ),
        "KEP-5532, the hazard its removal order excludes: RestartAllContainers without waiting",
    ),
    Mutant(
        "kubelet never starts a sidecar and its crashed worker again",
        Area.KUBELET,
        (
            Edit(
                _LIFE,
                "        if container.state is not State.WAITING:\n            return\n",
                "        if container.state is not State.WAITING or container.restart_count > 1:\n            return\n",
            ),
        ),
        "kubernetes #136910, mended by #137146: a crashed main container is not started again",
    ),
)
