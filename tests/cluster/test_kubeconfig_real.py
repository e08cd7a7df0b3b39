"""The same kubeconfigs in kubectl's hands and in ours: a real API server says who each of us is."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from inplace.cli.connection import Target, connected
from inplace.cli.refusal import RefusalError
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import CredentialsError
from inplace.common.kube.kubeconfig import Kubeconfig
from inplace.common.kube.resources import Resource
from inplace.controller.api.credentials import load_credentials
from inplace.controller.api.transport import open_transport
from testbed.control_plane import ControlPlane
from tests.common.kube.http.proxies import Proxying

pytestmark = pytest.mark.asyncio(loop_scope="session")

REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
REVIEW = {"kind": REVIEWS.kind, "apiVersion": "authentication.k8s.io/v1"}
PLUGIN = """#!{python}
import json, os
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert ("cluster" in told["spec"]) == {tells}, told
status = json.load(open({secrets!r}))
print(json.dumps({{"apiVersion": told["apiVersion"], "kind": "ExecCredential", "status": status}}))
"""


async def kubectl(file: str, env: dict[str, str]) -> dict[str, Any] | None:
    """Return who kubectl is to the server; None when it refuses the kubeconfig, or is refused."""
    own = {"PATH": str(Path(shutil.which("kubectl") or "").parent), "HOME": str(Path(file).parent), "KUBECONFIG": file}
    process = await asyncio.create_subprocess_exec(
        "kubectl", "auth", "whoami", "-o", "json",
        env=own | env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    out, _ = await process.communicate()
    return None if process.returncode else _who(json.loads(out))


async def controller(file: str) -> dict[str, Any] | None:
    """Return who the controller is to the server, None when it refuses the kubeconfig."""
    try:
        identity = await load_credentials(file, clock=LoopClock())
    except CredentialsError:
        return None
    async with open_transport(identity) as transport:
        client = KubeClient(transport, user_agent="test", field_manager="test")
        return _who(await client.create(REVIEWS, None, REVIEW))


async def cli(file: str) -> dict[str, Any] | None:
    """Return who the command line is to the server, None when it refuses the kubeconfig."""
    try:
        async with connected(Target(kubeconfig=file)) as there:
            return _who(await there.client.create(REVIEWS, None, REVIEW))
    except RefusalError as refused:
        if "no cluster to talk to" in str(refused):
            return None
        raise


def _who(review: dict[str, Any]) -> dict[str, Any]:
    user: dict[str, Any] = review["status"]["userInfo"]
    return {name: user[name] for name in ("username", "uid", "groups") if name in user} | {
        "extra": {name: values for name, values in user.get("extra", {}).items() if "credential-id" not in name}
    }


def written(folder: Path, plane: ControlPlane, user: dict[str, Any], cluster: dict[str, Any]) -> str:
    """Write the plane's kubeconfig with changed fields of its user and cluster; a field that is None goes away."""
    content = Kubeconfig(str(plane.kubeconfig))._roots[0][1]
    content = json.loads(json.dumps(content))
    for section, changes in ((content["users"][0]["user"], user), (content["clusters"][0]["cluster"], cluster)):
        section |= changes
        for name in [name for name, value in section.items() if value is None]:
            del section[name]
    file = folder / "config"
    file.write_text(json.dumps(content))
    return str(file)


def plugin(folder: Path, plane: ControlPlane, *, tells: bool) -> dict[str, Any]:
    """Write an exec plugin that gives the plane's own credentials, and return the user that names it."""
    user = Kubeconfig(str(plane.kubeconfig)).access().credentials()
    status = {"token": user.token} if user.token else {}
    if user.certificate_file or user.certificate_pem:
        certificate = user.certificate_pem or Path(user.certificate_file).read_text()
        key = user.key_pem or Path(user.key_file).read_text()
        status = {"clientCertificateData": certificate, "clientKeyData": key}
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "secrets").write_text(json.dumps(status))
    program = folder / "bin" / "plugin"
    program.write_text(PLUGIN.format(python=sys.executable, tells=tells, secrets=str(folder / "secrets")))
    program.chmod(0o755)
    own = ("token", "tokenFile", "client-certificate", "client-key", "client-certificate-data", "client-key-data")
    settings = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./bin/plugin", "interactiveMode": "Never"}
    return dict.fromkeys(own) | {"exec": settings | {"provideClusterInfo": tells}}


ANN = {"as": "ann", "as-groups": ["dev", "ops"], "as-uid": "7", "as-user-extra": {"acme.io/Scope": ["a", "b"]}}


@pytest.mark.parametrize(
    "user",
    [
        {},
        {"as": "ann"},
        ANN,
        {"as-groups": ["system:masters"]},
        {"as-uid": "7"},
        {"username": "me", "password": "x", "token": "y"},
        "plugin",
        "plugin that is told the cluster",
        "plugin and as",
    ],
    ids=str,
)
async def test_we_are_whom_kubectl_is(control_plane: ControlPlane, tmp_path: Path, user: Any) -> None:
    """Whoever a kubeconfig says we are, kubectl, CLI and controller are the same to the server, or all refuse."""
    if isinstance(user, str):
        user = plugin(tmp_path, control_plane, tells="told" in user) | (ANN if "and as" in user else {})
    file = written(tmp_path, control_plane, user, {})
    theirs = await kubectl(file, {})
    assert await cli(file) == theirs
    assert await controller(file) == theirs


@pytest.mark.parametrize("name", ["proxy-url http", "proxy-url socks5", "HTTPS_PROXY", "NO_PROXY"])
async def test_we_take_kubectl_s_way(
    control_plane: ControlPlane, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubectl, CLI and controller go through the same proxy, or past it."""
    server = Kubeconfig(str(control_plane.kubeconfig)).access().credentials()
    async with Proxying(server.port).running() as proxy:
        cluster: dict[str, Any] = {"server": f"https://api.example:{server.port}", "tls-server-name": server.host}
        env = {}
        if "_PROXY" in name:
            env = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}"}
        else:
            cluster["proxy-url"] = f"{name.split()[1]}://127.0.0.1:{proxy.port}"
        if name == "NO_PROXY":
            env |= {"NO_PROXY": "10.0.0.0/8,*.example:1,.other"}
        for variable, value in env.items():
            monkeypatch.setenv(variable, value)
        file = written(tmp_path, control_plane, {}, cluster)
        assert await kubectl(file, env) is not None
        by_kubectl = set(proxy.asked)
        proxy.asked.clear()
        assert await cli(file) is not None
        assert set(proxy.asked) == by_kubectl == {f"api.example:{server.port}"}
        proxy.asked.clear()
        assert await controller(file) is not None
        assert set(proxy.asked) == by_kubectl
