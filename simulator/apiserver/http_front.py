"""Serve an embedded API server over loopback HTTP, for kubectl and for programs in other processes."""

from __future__ import annotations

from aiohttp import web

from inplace.common.kube.http.request import Request, Response
from inplace.simulator.apiserver.reads import StreamingResponse
from inplace.simulator.apiserver.server import ApiServer

BODY_BYTES_MAX = 3 * 1024 * 1024
"""Source: k8s.io/apiserver MaxRequestBodyBytes."""

SHUTDOWN_S = 1.0
"""Open watches are cut after this; to clients it looks like a restarting server."""

ANONYMOUS = "admin"
"""The user of a request without a token of the form `user:<name>`."""

_HOST = "127.0.0.1"
_BEARER = "bearer "
_USER_PREFIX = "user:"
_AS = "/as/"
"""Neither kubectl nor our clients send a token over plain HTTP, so the URL names the user: URL/as/USER."""


def url_as(url: str, user: str) -> str:
    """Return the server's URL for one user."""
    return f"{url}{_AS}{user}"


class HttpFront:
    """One listening socket in front of a server."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listen on a free port of loopback, and return the URL."""
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        application.router.add_route("*", "/{path:.*}", self._answer)
        # An idle watch is cancelled when its client goes away, so it frees its watcher BEFORE the next event.
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=SHUTDOWN_S, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, _HOST, 0).start()
        return f"http://{_HOST}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close the socket and every connection; idempotent."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _answer(self, incoming: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in incoming.headers.items()}
        authorization, path = headers.pop("authorization", ""), incoming.raw_path
        if path.startswith(_AS):
            user, _, path = path.removeprefix(_AS).partition("/")
            path = f"/{path}"
        else:
            user = _user(authorization)
        body = await incoming.read() if incoming.body_exists else b""
        answer = await self._server.handle(Request(incoming.method, path, headers, body), user=user)
        if isinstance(answer, Response):
            return _whole(answer)
        return await _stream(incoming, answer)


def _user(authorization: str) -> str:
    token = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
    return token.removeprefix(_USER_PREFIX) if token.startswith(_USER_PREFIX) else ANONYMOUS


def _whole(response: Response) -> web.Response:
    return web.Response(status=response.status, headers=dict(response.headers), body=response.body)


async def _stream(incoming: web.Request, answer: StreamingResponse) -> web.StreamResponse:
    outgoing = web.StreamResponse(status=answer.status, headers=dict(answer.headers))
    outgoing.enable_chunked_encoding()
    try:
        await outgoing.prepare(incoming)
        async for chunk in answer.chunks():
            await outgoing.write(chunk)
        await outgoing.write_eof()
    except (ConnectionResetError, BrokenPipeError):
        pass  # the client went away; the stream is closed below
    finally:
        answer.close()
    return outgoing
