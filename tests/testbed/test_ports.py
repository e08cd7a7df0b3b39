"""Ports for the tests' own servers."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from testbed.ports import HELD_MAX, LOOPBACK, free_ports


def test_a_port_is_kept_for_our_server() -> None:
    """Nobody else gets it, a connection to it is refused, and a server of ours can listen on it again and again."""
    (port,) = free_ports(1)
    with socket.socket() as other, pytest.raises(OSError, match="in use") as refusal:
        other.bind((LOOPBACK, port))
    assert refusal.value.errno == errno.EADDRINUSE
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port))
    for _ in range(2):
        with (
            socket.create_server((LOOPBACK, port)) as server,
            socket.create_connection((LOOPBACK, port)),
            server.accept()[0],
        ):
            pass


def open_files() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_ports_cost_a_bounded_number_of_files() -> None:
    """Of many more ports, the first are not kept any longer."""
    assert len(set(free_ports(HELD_MAX))) == HELD_MAX
    files = open_files()
    free_ports(HELD_MAX)
    assert open_files() == files
