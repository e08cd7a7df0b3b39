"""Exec plugins: what they are told, where they are looked for, and what is taken from them."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import CredentialsError
from inplace.controller.api.credentials import Identity, load_credentials

pytestmark = pytest.mark.asyncio

V1 = "client.authentication.k8s.io/v1"
ANSWER = {"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "good"}}


def kubeconfig(folder: Path, program: str, *, cluster: dict[str, Any] | None = None, **settings: Any) -> str:
    """Write a plugin with this Python code, and a kubeconfig beside it that names it; `settings` are the plugin's."""
    file = folder / "bin" / "plugin"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!{sys.executable}\nimport json, os, sys\n{program}\n")
    file.chmod(0o755)
    user = {"exec": {"apiVersion": V1, "command": "bin/plugin", "interactiveMode": "Never"} | settings}
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://near:6443"} | (cluster or {})}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(json.dumps(content))
    return str(path)


def answering(answer: object) -> str:
    """Return the code of a plugin that answers so."""
    return f"print({json.dumps(answer)!r})"


async def load(path: str) -> Identity:
    """Read a kubeconfig as the controller does."""
    return await load_credentials(path, clock=LoopClock(), environment={})


async def test_a_relative_command_starts_at_the_kubeconfig_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command with a slash is looked for beside its kubeconfig, wherever we run."""
    monkeypatch.chdir("/")
    identity = await load(kubeconfig(tmp_path, answering(ANSWER)))
    assert identity.now.identity() == (("authorization", "Bearer good"),)


async def test_a_plugin_is_told_the_cluster_when_it_asks(tmp_path: Path) -> None:
    """With provideClusterInfo the plugin gets server, CA, name and its own settings; its variables come along."""
    seen = tmp_path / "seen"
    program = f"open({str(seen)!r}, 'w').write(os.environ['KUBERNETES_EXEC_INFO'] + os.environ['MORE'])\n"
    (tmp_path / "ca").write_text("pem")
    cluster = {
        "tls-server-name": "api",
        "certificate-authority": "ca",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
    }
    env = [{"name": "MORE", "value": "!"}]
    await load(kubeconfig(tmp_path, program + answering(ANSWER), cluster=cluster, env=env, provideClusterInfo=True))
    told = seen.read_text()
    assert told.endswith("!")
    assert json.loads(told[:-1]) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://near:6443",
                "tls-server-name": "api",
                "certificate-authority-data": "cGVt",
                "config": {"audience": "x"},
            },
        },
    }


async def test_a_token_is_asked_for_again_before_it_expires(tmp_path: Path) -> None:
    """A token that is about to expire is renewed at the next reading; one that lives is kept until it is rejected."""
    calls = tmp_path / "calls"
    for expires, count in (("2000-01-01T00:00:00Z", 2), ("2099-01-01T00:00:00Z", 1), (None, 1)):
        calls.write_text("")
        status = {"token": "good"} | ({"expirationTimestamp": expires} if expires else {})
        program = f"open({str(calls)!r}, 'a').write('x')\n" + answering(ANSWER | {"status": status})
        identity = await load(kubeconfig(tmp_path, program))
        await identity._read(False)  # as after a minute
        assert len(calls.read_text()) == count, expires
        await identity.renew(True)
        assert len(calls.read_text()) == count + 1, expires


async def test_whose_rights_are_asked_for_goes_along(tmp_path: Path) -> None:
    """`as` beside an exec plugin is honoured, never dropped."""
    path = Path(kubeconfig(tmp_path, answering(ANSWER)))
    content = json.loads(path.read_text())
    content["users"][0]["user"] |= {"as": "ann", "as-groups": ["dev"]}
    path.write_text(json.dumps(content))
    headers = (await load(str(path))).now.identity()
    assert headers[1:] == (("impersonate-user", "ann"), ("impersonate-group", "dev"))


@pytest.mark.parametrize(
    ("program", "settings", "said"),
    [
        ("sys.exit('log in first')", {}, "exit code 1: log in first"),
        ("print('<html>')", {}, "expected an ExecCredential of .*, saw b'<html>"),
        (answering([]), {}, "with a status, saw none"),
        (answering(ANSWER | {"apiVersion": "client.authentication.k8s.io/v1beta1"}), {}, "saw 'client.*v1beta1'"),
        (answering(ANSWER | {"status": {}}), {}, "expected a token, or a certificate and its key, saw none"),
        (answering(ANSWER | {"status": {"clientKeyData": "k"}}), {}, "its key, saw clientKeyData"),
        (answering(ANSWER | {"status": {"token": "t", "expirationTimestamp": "soon"}}), {}, "expected a time"),
        ("", {"command": "./none", "installHint": "apt install it"}, "none: No such file or directory; apt install it"),
        ("", {"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "apiVersion: expected client.*saw client"),
        ("", {"interactiveMode": "Always"}, "interactiveMode: expected a terminal"),
        ("", {"args": "x"}, "args: expected a list of texts"),
        ("", {"env": {"A": "b"}}, "env: expected a list of names"),
        ("", {"command": ""}, "command: expected a text"),
    ],
)
async def test_what_is_wrong_is_told(tmp_path: Path, program: str, settings: dict[str, Any], said: str) -> None:
    """Each refusal names file, plugin, the expected and the seen value."""
    with pytest.raises(CredentialsError, match=said) as refused:
        await load(kubeconfig(tmp_path, program, **settings))
    assert str(tmp_path / "config") in str(refused.value)


async def test_other_providers_are_refused(tmp_path: Path) -> None:
    """An auth-provider that kubectl has not taken since 1.26 is refused by name."""
    path = Path(kubeconfig(tmp_path, ""))
    content = json.loads(path.read_text())
    content["users"][0]["user"] = {"auth-provider": {"name": "gcp", "config": {}}}
    path.write_text(json.dumps(content))
    with pytest.raises(CredentialsError, match="auth-provider: expected oidc, or an exec plugin instead, saw 'gcp'"):
        await load(str(path))


async def test_an_openid_token_is_taken(tmp_path: Path) -> None:
    """The auth-provider oidc, which kubectl still takes, gives its token while that lives."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 4_000_000_000}).encode()).decode().rstrip("=")
    token = f"head.{claims}.signature"
    path = Path(kubeconfig(tmp_path, ""))
    content = json.loads(path.read_text())
    content["users"][0]["user"] = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}, "as": "ann"}
    path.write_text(json.dumps(content))
    found = (await load(str(path))).now.identity()
    assert found == (("authorization", f"Bearer {token}"), ("impersonate-user", "ann"))
