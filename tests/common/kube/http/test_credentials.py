"""Server address and credentials: every source, and every refusal."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from inplace.agent.start.shell import credentials_from_env
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.request import CredentialsError, TransportError


@pytest.fixture
def mounted(tmp_path: Path) -> dict[str, str]:
    """Return a Pod's environment, with its service account on disk."""
    (tmp_path / "token").write_text("abc\n")
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    return {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "INPLACE_SERVICE_ACCOUNT_DIR": str(tmp_path),
    }


def test_a_pod_has_its_service_account(mounted: dict[str, str]) -> None:
    """Host and port from the environment, CA and token from the mounted folder."""
    credentials = credentials_from_env(mounted)
    assert credentials.authority == "10.96.0.1:443"
    assert credentials.tls
    assert credentials.identity() == (("authorization", "Bearer abc"),)
    assert credentials.ssl_context() is not None


@pytest.mark.parametrize("host", ["fd00::1", "[fd00::1]"])
def test_an_ipv6_host_gets_brackets(mounted: dict[str, str], host: str) -> None:
    """The Host header has brackets, the socket's address has none."""
    credentials = credentials_from_env(mounted | {"KUBERNETES_SERVICE_HOST": host})
    assert credentials.host == "fd00::1"
    assert credentials.authority == "[fd00::1]:443"


def test_a_rotated_token_is_read_again(mounted: dict[str, str]) -> None:
    """Each request carries the token that is on disk at that time."""
    credentials = credentials_from_env(mounted)
    token = Path(mounted["INPLACE_SERVICE_ACCOUNT_DIR"]) / "token"
    token.write_text("new")
    assert credentials.identity() == (("authorization", "Bearer new"),)
    token.unlink()
    with pytest.raises(TransportError, match="token") as failed:
        credentials.identity()
    assert not failed.value.sent


@pytest.mark.parametrize(
    "change",
    [
        {"KUBERNETES_SERVICE_HOST": ""},
        {"KUBERNETES_SERVICE_PORT": ""},
        {"KUBERNETES_SERVICE_PORT": "https"},
        {"KUBERNETES_SERVICE_PORT": "70000"},
    ],
)
def test_no_pod_is_said(mounted: dict[str, str], change: dict[str, str]) -> None:
    """Without kubelet's two variables the message names them, and KUBECONFIG."""
    with pytest.raises(CredentialsError, match="KUBECONFIG, or KUBERNETES_SERVICE_HOST"):
        credentials_from_env(mounted | change)


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_service_account_that_is_not_mounted_is_said(mounted: dict[str, str], name: str) -> None:
    """The message names the missing file and the likely reason."""
    (Path(mounted["INPLACE_SERVICE_ACCOUNT_DIR"]) / name).unlink()
    with pytest.raises(CredentialsError, match=f"{name}: .*automountServiceAccountToken"):
        credentials_from_env(mounted)


def test_a_ca_that_is_no_certificate_is_said(mounted: dict[str, str]) -> None:
    """The message names the file."""
    (Path(mounted["INPLACE_SERVICE_ACCOUNT_DIR"]) / "ca.crt").write_text("no")
    with pytest.raises(CredentialsError, match=r"ca.crt: expected CA certificates in PEM"):
        credentials_from_env(mounted).ssl_context()


def test_secrets_are_not_shown() -> None:
    """A credentials' repr, which may end up in a log, holds neither token nor key."""
    shown = repr(Credentials("h", 1, token="hush", key_pem="hush"))
    assert "hush" not in shown


# kubeconfig


def kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a kubeconfig with one context; another one beside it must not be taken."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "there", "context": {"cluster": "far", "user": "nobody"}},
            {"name": "here", "context": {"cluster": "near", "user": "me"}},
        ],
        "clusters": [
            {"name": "far", "cluster": {"server": "https://far"}},
            {"name": "near", "cluster": {"server": "https://near:6443"} | (cluster or {})},
        ],
        "users": [{"name": "me", "user": {"token": "abc"} | (user or {})}],
    }


def read(folder: Path, content: object, *, as_yaml: bool = False) -> Credentials:
    """Write a kubeconfig and read it."""
    file = folder / "config"
    if not isinstance(content, str):
        content = yaml.safe_dump(content) if as_yaml else json.dumps(content)
    file.write_text(content)
    return credentials_from_env({"KUBECONFIG": str(file), "KUBERNETES_SERVICE_HOST": "ignored"})


@pytest.mark.parametrize("as_yaml", [False, True])
def test_the_current_context_is_taken(tmp_path: Path, as_yaml: bool) -> None:
    """The current context is read from JSON and YAML alike; KUBECONFIG wins over the Pod's own account."""
    credentials = read(tmp_path, kubeconfig(), as_yaml=as_yaml)
    assert (credentials.host, credentials.port, credentials.tls) == ("near", 6443, True)
    assert credentials.identity() == (("authorization", "Bearer abc"),)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://api.example", ("api.example", 443, True, "")),
        ("http://127.0.0.1:8001/", ("127.0.0.1", 8001, False, "")),
        ("http://proxy", ("proxy", 80, False, "")),
        ("https://[fd00::1]:6443", ("fd00::1", 6443, True, "")),
        ("https://rancher/k8s/clusters/c-1/", ("rancher", 443, True, "/k8s/clusters/c-1")),
    ],
)
def test_the_servers_url_is_taken_apart(tmp_path: Path, server: str, expected: tuple[str, int, bool, str]) -> None:
    """Scheme, host, port and path, with the scheme's default port."""
    found = read(tmp_path, kubeconfig({"server": server}))
    assert (found.host, found.port, found.tls, found.path_prefix) == expected


def test_certificates_come_from_files_or_inline(tmp_path: Path) -> None:
    """Relative paths start at the kubeconfig's folder; -data fields win."""
    authority = trustme.CA()
    mine = authority.issue_cert("me")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    mine.cert_chain_pems[0].write_to_path(str(tmp_path / "me.pem"))
    mine.private_key_pem.write_to_path(str(tmp_path / "me.key"))
    user = {"client-certificate": "me.pem", "client-key": "me.key"}
    by_file = read(tmp_path, kubeconfig({"certificate-authority": "ca.pem"}, user))
    assert by_file.ca_file == str(tmp_path / "ca.pem")
    assert by_file.ssl_context() is not None

    def inline(blob: trustme.Blob) -> str:
        return base64.b64encode(blob.bytes()).decode()

    by_text = read(
        tmp_path,
        kubeconfig(
            {"certificate-authority-data": inline(authority.cert_pem)},
            {
                "client-certificate-data": inline(mine.cert_chain_pems[0]),
                "client-key-data": inline(mine.private_key_pem),
            },
        ),
    )
    assert by_text.ssl_context() is not None


def test_a_certificate_without_its_key_is_said(tmp_path: Path) -> None:
    """The message names the certificate."""
    mine = trustme.CA().issue_cert("me")
    data = base64.b64encode(mine.cert_chain_pems[0].bytes()).decode()
    credentials = read(tmp_path, kubeconfig(user={"client-certificate-data": data}))
    with pytest.raises(CredentialsError, match="client-certificate-data: expected a certificate and its key"):
        credentials.ssl_context()


def test_a_token_file_wins_over_a_token(tmp_path: Path) -> None:
    """TokenFile is read for each request."""
    (tmp_path / "token").write_text("from-file\n")
    assert read(tmp_path, kubeconfig(user={"tokenFile": "token"})).identity() == (
        ("authorization", "Bearer from-file"),
    )


def test_server_name_and_insecure_are_taken(tmp_path: Path) -> None:
    """tls-server-name and insecure-skip-tls-verify."""
    found = read(tmp_path, kubeconfig({"tls-server-name": "api", "insecure-skip-tls-verify": True}))
    assert (found.server_name, found.insecure) == ("api", True)


@pytest.mark.parametrize("field", ["certificate-authority", "certificate-authority-data"])
def test_insecure_beside_a_ca_is_refused(tmp_path: Path, field: str) -> None:
    """`insecure-skip-tls-verify` beside a CA is refused, as by kubectl: it would silently disable the CA."""
    text = trustme.CA().cert_pem.bytes()
    (tmp_path / "ca.crt").write_bytes(text)
    value = "ca.crt" if field == "certificate-authority" else base64.b64encode(text).decode()
    with pytest.raises(CredentialsError, match="insecure-skip-tls-verify: expected it or a certificate-authority"):
        read(tmp_path, kubeconfig({field: value, "insecure-skip-tls-verify": True}))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "JSON or YAML"),
        ("just words", "a mapping with clusters, .* saw 'just words'"),
        ([], r"a mapping with clusters, .* saw \[\]"),
        ({}, "current-context: expected the name of a context"),
        (kubeconfig() | {"current-context": "nowhere"}, "an entry named 'nowhere' with a context, saw .*'here'"),
        (kubeconfig() | {"clusters": {}}, "clusters: expected a list"),
        (kubeconfig({"server": ""}), "server: expected a text"),
        (kubeconfig({"server": "ftp://x"}), "server: expected http:// or https://"),
        (kubeconfig({"server": "https://x:port"}), "server: expected a URL"),
        (kubeconfig({"certificate-authority": "none.pem"}), "certificate-authority: expected a readable file"),
        (kubeconfig({"certificate-authority-data": "%%%"}), "certificate-authority-data: expected base64"),
        (
            kubeconfig({"proxy-url": "https://me:hush@p"}),
            r"proxy-url: expected http://HOST:PORT or socks5://.* saw https://p",
        ),
        (kubeconfig({"proxy-url": 3}), "proxy-url: expected a text"),
        (kubeconfig(user={"exec": {"command": "aws"}}), "exec: expected a token or a client certificate"),
        (
            kubeconfig(user={"auth-provider": {"name": "oidc"}}),
            "auth-provider: expected a token or a client certificate",
        ),
        (kubeconfig(user={"username": "u"}), "username: expected a password or a token"),
        (kubeconfig(user={"as-groups": ["system:masters"]}), "as: expected a user to impersonate"),
        (kubeconfig(user={"as-uid": "7"}), "as: expected a user to impersonate"),
        (kubeconfig(user={"as": "ann", "as-groups": "admins"}), "as-groups: expected a list of texts"),
        (kubeconfig(user={"as": "ann", "as-user-extra": {"k": "v"}}), "as-user-extra.k: expected a list of texts"),
        (kubeconfig(user={"as": "ann\nimpersonate-group: system:masters"}), "as: expected printable ASCII"),
        ("[" * 200_000, "nested too deep"),
        (r'{"users": ["\ud800"]}', "expected whole characters"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path: Path, content: object, words: str) -> None:
    """Each refusal names the file, the field, the expected and the seen value."""
    with pytest.raises(CredentialsError, match=words) as refused:
        read(tmp_path, content)
    assert str(tmp_path / "config") in str(refused.value)


def test_the_first_of_several_files_wins(tmp_path: Path) -> None:
    """Files are merged by name, the first one wins, and relative paths start at the folder of their own file."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "token").write_text("from b")
    first = {"current-context": "here", "contexts": [{"name": "here", "context": {"cluster": "near", "user": "you"}}]}
    second = kubeconfig() | {"users": [{"name": "you", "user": {"tokenFile": "token"}}], "current-context": "there"}
    (tmp_path / "a").write_text(json.dumps(first))
    (tmp_path / "b" / "config").write_text(json.dumps(second))
    paths = f"{tmp_path}/none:{tmp_path}/a:{tmp_path}/b/config"
    credentials = credentials_from_env({"KUBECONFIG": paths})
    assert (credentials.host, credentials.identity()) == ("near", (("authorization", "Bearer from b"),))


def test_no_file_at_all_is_refused(tmp_path: Path) -> None:
    """A KUBECONFIG whose files are all missing is refused."""
    with pytest.raises(CredentialsError, match="expected a readable file"):
        credentials_from_env({"KUBECONFIG": f"{tmp_path}/a:{tmp_path}/b"})


def test_somebody_else_s_rights_are_asked_for(tmp_path: Path) -> None:
    """`as` and its companions become client-go's headers, also without TLS, where no token leaves."""
    user = {"as": "ann", "as-uid": "7", "as-groups": ["dev", "ops"], "as-user-extra": {"Acme.io/Scope": ["a", "b"]}}
    asked = (
        ("impersonate-user", "ann"),
        ("impersonate-uid", "7"),
        ("impersonate-group", "dev"),
        ("impersonate-group", "ops"),
        ("impersonate-extra-Acme.io%2FScope", "a"),
        ("impersonate-extra-Acme.io%2FScope", "b"),
    )
    assert read(tmp_path, kubeconfig(user=user)).identity() == (("authorization", "Bearer abc"), *asked)
    assert read(tmp_path, kubeconfig({"server": "http://near"}, user)).identity() == asked


def test_user_and_password_are_sent(tmp_path: Path) -> None:
    """A username and its password become a Basic authorization."""
    config = kubeconfig() | {"users": [{"name": "me", "user": {"username": "me", "password": "a:b"}}]}
    assert read(tmp_path, config).identity() == (("authorization", "Basic bWU6YTpi"),)


def test_the_kubeconfig_s_proxy_wins_over_the_environment_s(tmp_path: Path) -> None:
    """`proxy-url` wins over HTTPS_PROXY, whatever NO_PROXY says; a password is never shown."""
    file = tmp_path / "config"
    file.write_text(json.dumps(kubeconfig({"proxy-url": "socks5://me:hush@p"})))
    env = {"KUBECONFIG": str(file), "HTTPS_PROXY": "http://q:3128", "NO_PROXY": "*"}
    proxy = credentials_from_env(env).proxy
    assert proxy is not None
    assert (proxy.scheme, proxy.host, proxy.port, proxy.password) == ("socks5", "p", 1080, "hush")
    assert "hush" not in f"{proxy} {proxy!r}"


def test_a_pod_s_proxy_is_the_environment_s(mounted: dict[str, str]) -> None:
    """In a Pod too a proxy of the environment is used, unless NO_PROXY names the API server."""
    proxied = credentials_from_env(mounted | {"HTTPS_PROXY": "http://p:3128"})
    assert str(proxied.proxy) == "http://p:3128 (HTTPS_PROXY)"
    assert credentials_from_env(mounted | {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.96.0.0/12"}).proxy is None
