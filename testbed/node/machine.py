"""One node: containerd and kubelet as processes in namespaces, folders and a cgroup of its own.

Guarantees: kubelet and containerd believe that they own the machine, and change nothing of it. Each may be stopped,
killed and started again while containers run on, as on a real node. `power_off()` ends everything at once, containers
too. Runs in a capsule only (`testbed.node.capsule`), whose end takes the rest down.
"""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.component import Component
from testbed.control_plane import ControlPlane
from testbed.frameworks.ranks import in_order_of_start
from testbed.node import capsule, cgroups, network, registry, settings
from testbed.node.network import Address

READY_S_MAX = 60.0
"""From exec to an answer on the socket takes a second; the rest is for a busy machine."""

POLL_S = 0.02
SYNCING = "Starting kubelet main sync loop"


class Node:
    """
    Start, disturb and end one node.

    Args:
        number: counted from 0; name, addresses and cgroup follow from it.
        programs: the folder of containerd, runc and the CNI plugins.
        kubelet: the first words of kubelet's command line.
        folder: for all its files.
    """

    def __init__(self, number: int, *, programs: Path, kubelet: Sequence[str], folder: Path) -> None:
        self.name = f"node-{number}"
        self.cgroup = f"{capsule.cgroup()}/{self.name}"
        self._address = Address(number)
        self._programs = programs
        self._kubelet_command = tuple(kubelet)
        self._folder = folder
        self._holder = Component(f"{self.name}-holder", self._isolated(), folder)
        self._components = [self._holder]
        self._containerd: Component
        self._kubelet: Component

    async def start(self, plane: ControlPlane, images: Sequence[Path]) -> None:
        """Bring the node up with these images; return when kubelet runs (it is not Ready yet)."""
        for cgroup in (self.cgroup, f"{self.cgroup}/system"):
            cgroups.make(cgroup)
        self._write_settings(plane)
        self._holder.start()
        await self._until(self._is_isolated, self._holder, "namespaces of its own")
        self._mount()
        network.connect(self._address, self._pid)
        first_words = settings.environment(self._programs)
        self._containerd = self._component(
            "containerd", (*first_words, f"{self._programs}/containerd", *self._containerd_flags())
        )
        await self.start_containerd()
        await self.load(images)
        self._kubelet = self._component("kubelet", (*first_words, *self._kubelet_command, *self._kubelet_flags(plane)))
        await self.start_kubelet()

    async def start_containerd(self) -> None:
        """Start the runtime and return when it answers."""
        self._containerd.start()
        await self._until(self._containerd_answers, self._containerd, f"an answer on {settings.SOCKET}")

    async def stop_containerd(self, *, kill: bool = False) -> None:
        """End the runtime; containers and their shims run on."""
        await self._containerd.stop(kill=kill)

    async def start_kubelet(self) -> None:
        """Start kubelet and return when it has begun to work: before that it ends when the runtime does not answer."""
        log = self._kubelet.log_path
        before = log.read_text().count(SYNCING) if log.exists() else 0
        self._kubelet.start()
        await self._until(lambda: log.read_text().count(SYNCING) > before, self._kubelet, f"{SYNCING!r} in its log")

    async def stop_kubelet(self, *, kill: bool = False) -> None:
        """End kubelet; containers run on."""
        await self._kubelet.stop(kill=kill)

    async def restart_kubelet(self, **changes: object) -> None:
        """Start kubelet anew after changes of its configuration; containers run on."""
        path = self._folder / "kubelet.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        await self.stop_kubelet()
        await self.start_kubelet()

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Cut the node's network meanwhile: kubelet and containers live on."""
        network.cut(self._address)
        try:
            yield
        finally:
            network.heal(self._address)

    async def power_off(self) -> None:
        """End everything on the node at once, without a word to anybody."""
        cgroups.kill(self.cgroup)
        for component in self._components:
            await component.stop(kill=True)

    def processes(self, container_id: str) -> list[int]:
        """Return the processes of a container, its first one first; the number is what `containerID` ends with.

        A container that ends while it is looked at has none.
        """
        found = cgroups.of_container(self.cgroup, container_id)
        with suppress(OSError):
            return in_order_of_start(map(int, (found / "cgroup.procs").read_text().split())) if found else []
        return []

    def logs(self) -> str:
        """Return the ends of the programs' logs, for a failure's message."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-8:])
            for path in sorted(self._folder.glob("*.log"))
        )

    @property
    def is_on(self) -> bool:
        """Say whether the node has not been powered off."""
        return self._holder.pid_or_none() is not None

    @property
    def _pid(self) -> int:
        pid = self._holder.pid_or_none()
        assert pid is not None, f"{self.name} is not on"
        return pid

    @staticmethod
    def _isolated() -> tuple[str, ...]:
        return ("unshare", "--mount", "--net", "--uts", "--", "sleep", "infinity")

    def _is_isolated(self) -> bool:
        return Path(f"/proc/{self._pid}/comm").read_text().strip() == "sleep"

    def _inside(self, *command: str) -> tuple[str, ...]:
        return ("nsenter", "--target", str(self._pid), "--mount", "--net", "--uts", "--", *command)

    def _component(self, name: str, command: Sequence[str]) -> Component:
        words = (*cgroups.joining(f"{self.cgroup}/system"), *self._inside(*command))
        component = Component(f"{self.name}-{name}", words, self._folder)
        self._components.append(component)
        return component

    def _write_settings(self, plane: ControlPlane) -> None:
        files = {
            "containerd.toml": settings.containerd(self._programs, self._folder),
            "cni/pods.conflist": settings.cni(self._address.pods),
            "kubelet.json": settings.kubelet(self._folder, self.cgroup, plane.ca, network.GATEWAY),
            "resolv.conf": "",
            f"registries/{registry.ADDRESS}/hosts.toml": registry.HOSTS,
        }
        tunables = {f"sys/{name}": f"{value}\n" for name, value in settings.tunables().items()}
        for name, text in (files | tunables).items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def _mount(self) -> None:
        """Hide the machine's folders and settings behind the node's own, in the node's mount namespace only."""
        pairs = []
        for name in settings.OWN_FOLDERS:
            source = self._folder / "own" / name.lstrip("/")
            source.mkdir(parents=True)
            pairs.append((source, Path(name)))
        pairs += [(self._folder / "sys" / name, Path("/proc/sys") / name) for name in settings.tunables()]
        for source, target in pairs:
            subprocess.run(self._inside("mount", "--bind", str(source), str(target)), check=True)
        subprocess.run(self._inside("mount", "-t", "tmpfs", "tmpfs", "/run"), check=True)  # as on any machine

    async def load(self, images: Sequence[Path]) -> None:
        """Give the runtime these images; it pulls none."""
        for image in images:
            await self._images("import", str(image))

    async def tag(self, image: str, name: str) -> None:
        """Give an image of the runtime another name."""
        await self._images("tag", image, name)

    async def _images(self, *words: str) -> None:
        command = self._inside(f"{self._programs}/ctr", "-n", "k8s.io", "images", *words)
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise self._containerd.failure(f"expected to {' '.join(words)}, saw {done.stderr.strip()}")

    def _containerd_flags(self) -> tuple[str, ...]:
        return (f"--config={self._folder}/containerd.toml",)

    def _kubelet_flags(self, plane: ControlPlane) -> tuple[str, ...]:
        kubeconfig = plane.client_kubeconfig(f"system:node:{self.name}", "system:nodes", inside_cluster=True)
        return (
            f"--config={self._folder}/kubelet.json",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self._address.node}",
        )

    def _containerd_answers(self) -> bool:
        words = self._inside(f"{self._programs}/ctr", "--connect-timeout=1s", "version")
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    @staticmethod
    async def _until(holds: Callable[[], bool], component: Component, what: str) -> None:
        until_s = time.monotonic() + READY_S_MAX
        while not holds():
            component.check_alive()
            if time.monotonic() > until_s:
                raise component.failure(f"expected {what} within {READY_S_MAX:g} s")
            await asyncio.sleep(POLL_S)
