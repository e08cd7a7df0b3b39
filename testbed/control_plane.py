"""Run a real Kubernetes control plane on loopback: etcd, kube-apiserver and, on request, the controllers.

The simulator is fast and can lie; this cannot. It is what the simulator's conformance tests, the product's
client and the benchmarks are checked against: real watch caches, admission, RBAC, 409s, 410s, priority and
fairness.

Guarantees, once `start()` has returned:
* /readyz of the API server (and /healthz of each controller) has said ok, and the controller-manager has
  begun to act, which is seconds after it calls itself healthy.
* `restart_apiserver` keeps the port, the data and every credential, so that clients may simply retry.
* Everything listens on 127.0.0.1 and lives in one temporary folder that `stop()` removes. Logs of a
  component that failed are in the error. Any number of control planes run side by side.
* Only processes started here are ever signalled, and none outlives this one, even if it is killed (then its
  folder stays in /tmp).
* Defaults are upstream's: feature gates, admission (see `with_controllers`), API priority and fairness,
  RBAC.

Deliberately no kubelet and no Node (tests/cluster/node has them), so a Pod stays Pending until a test writes its
status; without controllers nothing creates a Job's Pods and a deleted namespace stays Terminating. Nothing restarts a
component that dies.
"""

import tempfile
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed import flags
from testbed.api_client import ApiClient, collection, connect
from testbed.binaries import CONTROLLERS, SERVERS, Binaries
from testbed.component import Component
from testbed.credentials import SERVICE_ADDRESS, SERVICE_PORT, Credentials
from testbed.ports import LOOPBACK, free_ports
from testbed.readiness import wait_until_found, wait_until_healthy

TOKEN_LIFETIME_S = 24 * 3600
"""Longer than any test run: renewal of tokens is tested on purpose or not at all."""


class ControlPlane:
    """Start, expose and stop one control plane; use it as an async context manager or by start() and stop().

    Args:
        binaries: the result of `find_binaries()`.
        with_controllers: also run kube-controller-manager and kube-scheduler, and with them the admission
            plugin ServiceAccount, which needs them.
        apiserver_flags: appended to kube-apiserver's own, so a later value wins.
        feature_gates: of every component but etcd, as `--feature-gates` takes them.
        for_pods: serve Pods too, at SERVICE_ADDRESS as in every cluster; the caller makes that an address of
            this network namespace, in which nobody else uses port 443.

    Raises:
        MissingComponent: `binaries` is a folder without one of them.
    """

    def __init__(
        self,
        binaries: Binaries,
        *,
        with_controllers: bool = False,
        apiserver_flags: Sequence[str] = (),
        feature_gates: str = "",
        for_pods: bool = False,
    ) -> None:
        names = (*SERVERS, *CONTROLLERS) if with_controllers else SERVERS
        self._commands = {name: binaries.command(name) for name in names}  # BEFORE anything has an effect.
        self._scratch = tempfile.TemporaryDirectory(prefix="inplace-kubelab-")
        self.directory = Path(self._scratch.name)
        self._ports = flags.Ports(*free_ports(5))
        if for_pods:
            self._ports = replace(self._ports, apiserver=SERVICE_PORT)
        self.url = f"https://{LOOPBACK}:{self._ports.apiserver}"
        self._credentials = Credentials(self.directory)
        self.ca = self._credentials.ca
        self.kubeconfig = self._credentials.client_kubeconfig(self.url, "admin", "system:masters")
        if for_pods:
            kubelets_client = self._credentials.client("kube-apiserver-kubelet-client", "system:masters")
            apiserver_flags = (*flags.apiserver_for_pods(kubelets_client), *apiserver_flags)
        self._gates = (f"--feature-gates={feature_gates}",) if feature_gates else ()
        self._etcd = self._component("etcd", flags.etcd(self._ports, self.directory))
        self._apiserver = self._component(
            "kube-apiserver",
            (
                *flags.apiserver(self._ports, self._credentials, service_account_admission=with_controllers),
                *self._gates,
                *apiserver_flags,
            ),
        )
        self._controllers = self._controller_components() if with_controllers else {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start every component and return when all of them are ready.

        Raises:
            ControlPlaneError: one exited or was not ready in READY_TIMEOUT_S; the message has the tail of its
                log. Nothing is left running.
        """
        try:
            self._etcd.start()
            await self.start_apiserver()
            await self._start_controllers()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End every component, clients before servers, and remove the folder."""
        async with AsyncExitStack() as ending:  # Last pushed, first run; and all run, also when cancelled.
            ending.callback(self._scratch.cleanup)
            for component in (self._etcd, self._apiserver, *self._controllers.values()):
                ending.push_async_callback(component.stop)

    async def start_apiserver(self) -> None:
        """Start kube-apiserver and return when it is ready."""
        self._apiserver.start()
        await wait_until_healthy(self._apiserver, f"{self.url}/readyz", self.ca, needs=[self._etcd])

    async def stop_apiserver(self, *, kill: bool = False) -> None:
        """End kube-apiserver, by SIGTERM (it ends its watches cleanly) or as a crash would; etcd stays."""
        await self._apiserver.stop(kill=kill)

    async def restart_apiserver(self, *, kill: bool = False) -> None:
        """Replace kube-apiserver by a new process on the same port and data, with an empty watch cache."""
        await self.stop_apiserver(kill=kill)
        await self.start_apiserver()

    async def restart_controller_manager(self, *more_flags: str) -> None:
        """Replace kube-controller-manager by a new process, with these flags behind its own until the next call."""
        await self._controller_manager.stop()
        component = self._controller_components(more_flags)[self._ports.controller_manager]
        self._controllers[self._ports.controller_manager] = component
        component.start()
        await wait_until_healthy(component, f"https://{LOOPBACK}:{self._ports.controller_manager}/healthz", self.ca)

    def apiserver_pid(self) -> int:
        """Return the process id of the current kube-apiserver."""
        return self._apiserver.pid()

    def apiserver_cpu_seconds(self) -> float:
        """Return the CPU time of the current kube-apiserver process; a restart begins at zero."""
        return self._apiserver.cpu_seconds()

    def client(self, kubeconfig: Path | None = None) -> AbstractAsyncContextManager[ApiClient]:
        """Open a client as the user of `kubeconfig`, or as the administrator."""
        return connect(kubeconfig or self.kubeconfig)

    def client_kubeconfig(self, user: str, group: str, *, inside_cluster: bool = False) -> Path:
        """Write a kubeconfig with a new client certificate of a user and return its path.

        `inside_cluster` is for clients in other network namespaces: they know the server by its Service address.
        """
        url = f"https://{SERVICE_ADDRESS}:{SERVICE_PORT}" if inside_cluster else self.url
        return self._credentials.client_kubeconfig(url, user, group)

    def serving_certificate(self, directory: Path) -> None:
        """Write `tls.crt` and `tls.key` of a server on loopback, which `ca` vouches for, into a folder."""
        self._credentials.serving(directory)

    async def create_namespace(self, prefix: str = "test") -> str:
        """Create a namespace with a unique name, in which Pods can be created, and return the name."""
        async with self.client() as api:
            created = await api.post("/api/v1/namespaces", {"metadata": {"generateName": f"{prefix}-"}})
            name: str = created["metadata"]["name"]
            if self._controllers:
                await self._until_it_takes_pods(api, name)
        return name

    async def service_account_kubeconfig(self, namespace: str, name: str, *, pod: str = "", uid: str = "") -> Path:
        """Write a kubeconfig with a new token of a ServiceAccount, created if absent, and return its path.

        With the name and UID of a Pod the token is bound to it, as the tokens are that kubelet mounts.
        """
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        async with self.client() as api:
            await api.create([account])
            bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}} if pod else {}
            request = {"spec": {"expirationSeconds": TOKEN_LIFETIME_S, **bound}}
            granted = await api.post(f"{collection(account)}/{name}/token", request)
        user = f"system:serviceaccount:{namespace}:{name}"
        return self._credentials.token_kubeconfig(self.url, user, granted["status"]["token"], pod=pod)

    async def _start_controllers(self) -> None:
        """Start the controllers, if there are any, and return when they act on objects."""
        for component in self._controllers.values():
            component.start()
        for port, component in self._controllers.items():
            await wait_until_healthy(component, f"https://{LOOPBACK}:{port}/healthz", self.ca)
        if self._controllers:
            async with self.client() as api:
                await self._until_it_takes_pods(api, "default")

    async def _until_it_takes_pods(self, api: ApiClient, namespace: str) -> None:
        """Return when a namespace has the ServiceAccount without which the admission plugin refuses every Pod."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        await wait_until_found(self._controller_manager, api, path)

    @property
    def _controller_manager(self) -> Component:
        return self._controllers[self._ports.controller_manager]

    def _component(self, name: str, arguments: Sequence[str]) -> Component:
        return Component(name, (*self._commands[name], *arguments), self.directory)

    def _controller_components(self, more_flags: Sequence[str] = ()) -> dict[int, Component]:
        """Return the two controllers by the port on which each reports its health."""
        components = {}
        for name, port, spell, more in (
            (CONTROLLERS[0], self._ports.controller_manager, flags.controller_manager, more_flags),
            (CONTROLLERS[1], self._ports.scheduler, flags.scheduler, ()),
        ):
            kubeconfig = self._credentials.client_kubeconfig(self.url, f"system:{name}", "inplace")
            words = (*spell(self._ports, self._credentials, kubeconfig), *self._gates, *more)
            components[port] = self._component(name, words)
        return components
