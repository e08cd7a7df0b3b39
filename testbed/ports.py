"""
Reserve loopback ports for servers that start later, perhaps in other processes.

A port that is only looked up, and free, may be another program's a moment later: the kernel gives it to the next
program that asks for any port. So a socket of this process holds each port: it is bound, and does not listen. The
kernel gives such a port to nobody, and refuses connections to it. A server that sets SO_REUSEADDR can still listen on
it, again and again. The servers of asyncio, Go and gRPC set it.
"""

import os
import socket
from collections import deque

LOOPBACK = "127.0.0.1"

HELD_MAX = 512
"""Half of the usual limit of open files. Beyond it the oldest port is held no longer."""

_held: deque[int] = deque()


def free_ports(count: int) -> list[int]:
    """Return `count` different ports on which a server of this process, or of a child, can listen."""
    return [_reserve() for _ in range(count)]


def _reserve() -> int:
    while len(_held) >= HELD_MAX:
        os.close(_held.popleft())
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((LOOPBACK, 0))
    port: int = holder.getsockname()[1]
    _held.append(holder.detach())
    return port
