"""The controller's transport and its credentials over loopback: working cases, and the messages of failures."""

import asyncio
import json
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import (
    CertificateError,
    CredentialsError,
    Request,
    TooLargeError,
    Transport,
    TransportError,
    TransportTimeoutError,
)
from inplace.controller.api.credentials import REFRESH_S, load_credentials
from inplace.controller.api.transport import ANSWER_BYTES_MAX, open_transport

pytestmark = pytest.mark.asyncio

GET = Request("GET", "/version?a=b%20c", {"accept": "application/json"})


class Server:
    """A small API server over TLS that records what it is asked."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.seen: list[web.Request] = []
        self.tokens = {"good"}
        self.port = 0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.seen.append(request)
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return web.Response(status=401, text="Unauthorized")
        if request.path == "/hang":
            await asyncio.sleep(30)
        if request.path == "/large":
            return web.Response(body=bytes(ANSWER_BYTES_MAX + 1))
        if request.path == "/stream":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"one\n")
            await response.write(b"two\n")
            if request.query.get("break"):
                assert request.transport is not None
                request.transport.abort()
            return response
        return web.json_response({"path": request.path_qs, "body": await request.text()})

    def rotate(self, tmp_path: Path) -> None:
        """Show a certificate of the authority from the next handshake on, and put the authority into its file."""
        self.authority.issue_cert("127.0.0.1").configure_cert(self.context)
        self.authority.cert_pem.write_to_path(tmp_path / "ca.new")
        (tmp_path / "ca.new").replace(tmp_path / "ca.crt")

    @asynccontextmanager
    async def running(self, tmp_path: Path, *, tls: bool = True) -> AsyncIterator[None]:
        """Serve on loopback, with a certificate of the authority unless the test brought its own."""
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self.answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.context if tls else None)
        await site.start()
        self.port = runner.addresses[0][1]
        if not (tmp_path / "ca.crt").exists():
            self.rotate(tmp_path)
        try:
            yield
        finally:
            await runner.cleanup()


def kubeconfig(tmp_path: Path, port: int, user: dict[str, Any], *, ca: str = "ca.crt") -> str:
    """Write a kubeconfig and return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(tmp_path / ca)},
            }
        ],
        "users": [{"name": "u", "user": user}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    return str(path)


def plugin(tmp_path: Path, first: str = "good") -> dict[str, Any]:
    """Return an exec plugin that gives one token at first and the good one later; each call is an x in `calls`."""
    program = tmp_path / "plugin.py"
    program.write_text(
        "import json, pathlib\n"
        f"calls = pathlib.Path({str(tmp_path / 'calls')!r})\n"
        "number = len(calls.read_text()) if calls.exists() else 0\n"
        "calls.write_text('x' * (number + 1))\n"
        f"token = {first!r} if number == 0 else 'good'\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',\n"
        "    'status': {'token': token, 'expirationTimestamp': '2099-01-01T00:00:00Z'}}))\n"
    )
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(program)],
        "interactiveMode": "Never",
    }


@pytest.fixture(params=["token", "exec plugin"])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return a user of a kubeconfig who has a token, or a plugin that gives it."""
    return {"token": "good"} if request.param == "token" else {"exec": plugin(tmp_path)}


@asynccontextmanager
async def connected(path: str, clock: LoopClock | None = None) -> AsyncIterator[Transport]:
    """Open a transport with a kubeconfig's settings."""
    async with open_transport(await load_credentials(path, clock=clock or LoopClock())) as transport:
        yield transport


async def test_a_request_arrives_as_it_is(tmp_path: Path) -> None:
    """Path, query, body and headers arrive unchanged; the answer comes back with lower-case headers."""
    server = Server()
    async with server.running(tmp_path), connected(kubeconfig(tmp_path, server.port, {"token": "good"})) as transport:
        request = Request("POST", "/a%2Fb?x=1%202", {"content-type": "application/json"}, b"{}")
        response = await transport.request(request, timeout_s=5.0)
        assert response.status == 200
        assert response.headers["content-type"].startswith("application/json")
        assert server.seen[0].raw_path == "/a%2Fb?x=1%202"
        assert json.loads(response.body)["body"] == "{}"


async def test_a_stream_arrives_as_it_comes(tmp_path: Path) -> None:
    """Chunks are yielded, and a broken connection is an error, not an end."""
    server = Server()
    async with server.running(tmp_path), connected(kubeconfig(tmp_path, server.port, {"token": "good"})) as transport:
        async with transport.stream(Request("GET", "/stream"), timeout_s=5.0) as stream:
            assert stream.status == 200
            assert b"".join([chunk async for chunk in stream.chunks()]) == b"one\ntwo\n"
        with pytest.raises(TransportError, match="the connection's end"):
            async with transport.stream(Request("GET", "/stream?break=1"), timeout_s=5.0) as stream:
                _ = [chunk async for chunk in stream.chunks()]


async def test_a_server_that_does_not_answer_is_left_after_the_bound(tmp_path: Path) -> None:
    """Requests and stream openings have timeouts; the error names the exceeded one."""
    server = Server()
    async with server.running(tmp_path), connected(kubeconfig(tmp_path, server.port, {"token": "good"})) as transport:
        with pytest.raises(TransportTimeoutError, match=r"no answer to GET /hang from 127.0.0.1:\d+ within 0.2 s"):
            await transport.request(Request("GET", "/hang"), timeout_s=0.2)
        with pytest.raises(TransportTimeoutError, match="no answer"):
            async with transport.stream(Request("GET", "/hang"), timeout_s=0.2):
                pass


async def test_an_answer_that_is_too_large_is_left_at_the_bound(tmp_path: Path) -> None:
    """An answer above the bound is not read further, so that large annotations cannot fill our memory."""
    server = Server()
    async with server.running(tmp_path), connected(kubeconfig(tmp_path, server.port, {"token": "good"})) as transport:
        with pytest.raises(TooLargeError, match="expected an answer of at most 33554432 bytes"):
            await transport.request(Request("GET", "/large"), timeout_s=30.0)


async def test_an_unreachable_server_is_named(tmp_path: Path) -> None:
    """When nothing listens, the error says that the request was not sent, and names the address."""
    server = Server()
    async with server.running(tmp_path):
        path = kubeconfig(tmp_path, server.port, {"token": "good"})
    async with connected(path) as transport:
        with pytest.raises(TransportError, match=r"cannot connect to 127\.0\.0\.1") as error:
            await transport.request(GET, timeout_s=5.0)
        assert not error.value.sent


async def test_a_wrong_certificate_is_not_an_unreachable_server(tmp_path: Path) -> None:
    """A certificate of another authority is refused with its own message."""
    server = Server()
    async with server.running(tmp_path):
        trustme.CA().cert_pem.write_to_path(tmp_path / "other.crt")
        async with connected(kubeconfig(tmp_path, server.port, {"token": "good"}, ca="other.crt")) as transport:
            with pytest.raises(CertificateError, match="signed by the certificate authority that we were given"):
                await transport.request(GET, timeout_s=5.0)


async def test_a_rejected_token_is_read_again(tmp_path: Path) -> None:
    """After a 401 the token file is read again before the next request, without waiting for the minute."""
    server = Server()
    token = tmp_path / "token"
    token.write_text("expired\n")
    async with server.running(tmp_path), connected(kubeconfig(tmp_path, server.port, {"tokenFile": str(token)})) as t:
        assert (await t.request(GET, timeout_s=5.0)).status == 401
        token.write_text("good\n")
        assert (await t.request(GET, timeout_s=5.0)).status == 200


async def test_a_rotated_ca_is_read_again(tmp_path: Path, user: dict[str, Any]) -> None:
    """When server and CA file change to a new CA, requests and streams go on."""
    server = Server()
    async with server.running(tmp_path):
        path = kubeconfig(tmp_path, server.port, user)
        async with connected(path) as transport:
            assert (await transport.request(GET, timeout_s=5.0)).status == 200
            server.authority = trustme.CA()
            server.rotate(tmp_path)
            assert (await transport.request(GET, timeout_s=5.0)).status == 200
            async with transport.stream(Request("GET", "/stream"), timeout_s=5.0) as stream:
                assert stream.status == 200


async def test_a_token_does_not_leave_without_tls(tmp_path: Path, user: dict[str, Any]) -> None:
    """Over http:// neither requests nor streams carry the token, as with kubectl."""
    server = Server()
    async with server.running(tmp_path, tls=False):
        path = Path(kubeconfig(tmp_path, server.port, user))
        path.write_text(path.read_text().replace("https://", "http://"))
        async with connected(str(path)) as transport:
            assert (await transport.request(GET, timeout_s=5.0)).status == 401
            async with transport.stream(Request("GET", "/stream"), timeout_s=5.0) as stream:
                assert stream.status == 401
    assert ["authorization" in request.headers for request in server.seen] == [False, False]


async def test_an_insecure_server_with_a_ca_is_refused(tmp_path: Path, user: dict[str, Any]) -> None:
    """`insecure-skip-tls-verify` beside a CA is refused, as by kubectl: it would silently disable the CA."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    path = Path(kubeconfig(tmp_path, 443, user))
    document = json.loads(path.read_text())
    document["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path.write_text(json.dumps(document))
    with pytest.raises(CredentialsError, match="insecure-skip-tls-verify: expected it or a certificate-authority"):
        await load_credentials(str(path), clock=LoopClock())


def chain_without_key_identifiers(folder: Path) -> ssl.SSLContext:
    """Write a CA as older tools made them, and return a server's settings with a certificate of it."""
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("an old CA", "server")]
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in names]
    now = datetime.now(UTC)
    for index, file in enumerate(("ca.crt", "server.crt")):
        certificate = (
            x509.CertificateBuilder()
            .subject_name(names[index])
            .issuer_name(names[0])
            .public_key(keys[index].public_key())
            .serial_number(1 + index)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=index == 0, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .sign(keys[0], hashes.SHA256())
        )
        (folder / file).write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "server.key").write_bytes(keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    return context


async def test_every_path_takes_the_same_chains(
    tmp_path: Path, user: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every code path accepts a CA without key identifiers, as kubectl does; Python 3.13's default refuses it."""
    make_default_context = ssl.create_default_context

    def make_default_context_of_3_13(*purpose: Any, **files: Any) -> ssl.SSLContext:
        context = make_default_context(*purpose, **files)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    monkeypatch.setattr(ssl, "create_default_context", make_default_context_of_3_13)
    server = Server()
    server.context = chain_without_key_identifiers(tmp_path)
    async with server.running(tmp_path):
        path = kubeconfig(tmp_path, server.port, user)
        async with connected(path) as transport:
            assert (await transport.request(GET, timeout_s=5.0)).status == 200
        context = (await load_credentials(path, clock=LoopClock())).now.ssl_context()
    assert context is not None
    assert context.verify_flags == ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).verify_flags


async def test_a_token_file_is_read_again_for_each_request(tmp_path: Path) -> None:
    """The token file is read for each request, because kubelet renews it."""
    server = Server()
    server.tokens = {"good", "better"}
    token = tmp_path / "token"
    token.write_text("good")
    async with (
        server.running(tmp_path),
        connected(kubeconfig(tmp_path, server.port, {"tokenFile": str(token)})) as transport,
    ):
        await transport.request(GET, timeout_s=5.0)
        token.write_text("better")
        await transport.request(GET, timeout_s=5.0)
        token.unlink()
        with pytest.raises(TransportError, match="cannot read the token") as caught:
            await transport.request(GET, timeout_s=5.0)
        assert not caught.value.sent
    assert [request.headers["authorization"] for request in server.seen] == ["Bearer good", "Bearer better"]


async def test_a_kubeconfig_is_read_again_each_minute(tmp_path: Path) -> None:
    """A kubeconfig is read again each minute, so that its renewed token is used before the old one is rejected."""

    class Later(LoopClock):
        offset_s = 0.0

        def monotonic_s(self) -> float:
            return super().monotonic_s() + self.offset_s

    clock = Later()
    server = Server()
    server.tokens = {"good", "better"}
    async with (
        server.running(tmp_path),
        connected(kubeconfig(tmp_path, server.port, {"token": "good"}), clock) as transport,
    ):
        kubeconfig(tmp_path, server.port, {"token": "better"})
        await transport.request(GET, timeout_s=5.0)
        clock.offset_s = REFRESH_S + 1.0
        await transport.request(GET, timeout_s=5.0)
    assert [request.headers["authorization"] for request in server.seen] == ["Bearer good", "Bearer better"]


async def test_what_says_directly_who_we_are_needs_no_models(tmp_path: Path) -> None:
    """A kubeconfig with a token is read without kubernetes_asyncio, whose import costs 38 MB."""
    path = kubeconfig(tmp_path, 1, {"token": "good"})
    (tmp_path / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    code = (
        "import asyncio, sys\n"
        "from inplace.common.kube.clock import LoopClock\n"
        "from inplace.controller.api.credentials import load_credentials\n"
        "async def main():\n"
        f"    print((await load_credentials({path!r}, clock=LoopClock())).host, 'kubernetes_asyncio' in sys.modules)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert said.decode().split() == ["https://127.0.0.1:1", "False"]


async def test_an_exec_plugin_supplies_the_token_and_is_asked_again_after_a_401(tmp_path: Path) -> None:
    """The plugin's token is used until it is rejected, whatever expiry it claimed."""
    server = Server()
    calls = tmp_path / "calls"
    user = {"exec": plugin(tmp_path, "stale")}
    async with server.running(tmp_path), connected(kubeconfig(tmp_path, server.port, user)) as transport:
        assert (await transport.request(GET, timeout_s=5.0)).status == 401
        assert (await transport.request(GET, timeout_s=5.0)).status == 200
        assert (await transport.request(GET, timeout_s=5.0)).status == 200
    assert calls.read_text() == "xx"


async def test_without_any_configuration_the_message_says_what_to_do(tmp_path: Path) -> None:
    """Without a kubeconfig and outside a cluster the message names both ways to configure one."""
    with pytest.raises(CredentialsError, match="--kubeconfig, or run in a cluster"):
        await load_credentials(None, clock=LoopClock(), environment={"KUBECONFIG": str(tmp_path / "none")})


@pytest.mark.parametrize("text", ["", "[]", "{", "current-context: c"])
async def test_a_broken_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    """For each broken kubeconfig the message names the file or the missing part."""
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(CredentialsError):
        await load_credentials(str(path), clock=LoopClock())


async def test_a_missing_authority_is_named(tmp_path: Path) -> None:
    """A missing certificate-authority file is a configuration error that names it."""
    with pytest.raises(CredentialsError, match=r"missing\.crt"):
        await load_credentials(kubeconfig(tmp_path, 1, {"token": "t"}, ca="missing.crt"), clock=LoopClock())


async def test_in_a_cluster_the_service_account_is_used(tmp_path: Path) -> None:
    """In a cluster host, token and CA come from kubelet's places, and the token is read again."""
    server = Server()
    token = tmp_path / "token"
    token.write_text("expired")
    async with server.running(tmp_path):
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "INPLACE_SERVICE_ACCOUNT_DIR": str(tmp_path),
        }
        credentials = await load_credentials(None, clock=LoopClock(), environment=environment)
        async with open_transport(credentials) as transport:
            assert (await transport.request(GET, timeout_s=5.0)).status == 401
            token.write_text("good")
            assert (await transport.request(GET, timeout_s=5.0)).status == 200


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", "expected a mapping with clusters, contexts and users, saw None"),
        ("[]", "saw []"),
        ("word", "saw 'word'"),
        ("{", "expected JSON or YAML"),
        ("\x00", "expected JSON or YAML"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_refused_in_words(tmp_path: Path, text: str, seen: str) -> None:
    """For each file that is no kubeconfig the message has the expected and the seen content."""
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=re.escape(seen)) as caught:
        await load_credentials(str(path), clock=LoopClock())
    assert str(path) in str(caught.value)
