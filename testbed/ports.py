"""Pick loopback ports that nobody is about to take.

Asking the kernel for port 0 gives a port of its ephemeral range, which the next outgoing connection of any
program may occupy while our server is being restarted on it. These come from below that range, so a server
that stops keeps its port in practice. Deliberately no reservation: a rare clash with another test run shows
in the component's log.
"""

import random
import socket

LOOPBACK = "127.0.0.1"

PORTS = range(20_000, 32_768)
"""Above the well-known services, below the first port of net.ipv4.ip_local_port_range (32768)."""

ATTEMPTS_MAX = 1_000
"""Of 12,768 ports; a machine on which so many in a row are taken has another problem."""


def free_ports(count: int) -> list[int]:
    """Return `count` different ports on which a server can listen now."""
    # The system's randomness: two test runs with the same seed must not fight for the same ports.
    candidates = random.SystemRandom().sample(PORTS, ATTEMPTS_MAX)
    free: list[int] = []
    for port in candidates:
        if len(free) < count and _is_free(port):
            free.append(port)
    if len(free) < count:
        raise OSError(f"expected {count} free ports on {LOOPBACK}, found {len(free)} among {ATTEMPTS_MAX} tried")
    return free


def _is_free(port: int) -> bool:
    """Return whether a server could listen on `port`: nobody listens there and no connection uses it."""
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
