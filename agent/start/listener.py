"""
Bind the barrier's socket, BEFORE anything is announced and before there is an event loop.

An agent may announce its Pod only if its barrier can be asked: kubelet's startup probe holds the worker back.
"""

from __future__ import annotations

import errno
import socket

from inplace.agent.settings.exit_code import ExitCode, StartError
from inplace.common.bare.typed import Final

_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # IPv6 compiled in but switched off


class BarrierError(StartError):
    """The barrier cannot listen where the manifest says."""

    event = "barrier_unavailable"
    code = ExitCode.BARRIER_UNAVAILABLE


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket on one address, or on all of both families where the system has both.

    Binding takes no name look-up and no thread.

    Raises:
        BarrierError: another program listens there, or this host lacks the address.
    """
    try:
        return _listen(address, port)
    except OSError as error:
        where = f"{address or 'every address'} port {port}"
        raise BarrierError(f"cannot listen on {where}: {error.strerror or error}") from error


def _listen(address: str, port: int) -> socket.socket:
    if not address and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family)
