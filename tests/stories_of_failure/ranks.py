"""
What the stories' scripts use: who they are, steps that a witness counts, and a collective over TCP.

It stands for a framework, and knows nothing of inplace. The folder `witness` has a file for each rank and epoch, so the
tests see who goes on, whatever the product says. A collective that lost a peer breaks as gloo's does.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent  # of the link in the story's folder
RANK = int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
EPOCH = int(os.environ.get("INPLACE_EPOCH") or "0")
STEP_S = 0.1
PORT = 29500
CONNECT_S = 0.05
LEAVE_S = 0.3


def step(number: int) -> None:
    """Make one step."""
    print(f"step={number}", flush=True)
    witness(number)
    time.sleep(STEP_S)


def witness(number: int) -> None:
    """Tell the test how far this rank is, in one write."""
    (HERE / "witness" / f"{EPOCH}.{RANK}").write_text(f"{number}\n")


def steps() -> Iterator[int]:
    """Make steps, and yield the number of each."""
    number = 0
    while True:
        step(number)
        yield number
        number += 1


def hang() -> None:
    """Never return."""
    while True:
        time.sleep(3600)


class Group:
    """All ranks, with rank 0 in their middle; `world` is how many it waits for."""

    def __init__(self, world: int, port: int = PORT) -> None:
        self.peers: list[socket.socket] = []
        if RANK:
            self.peers = [_connected(port)]
            return
        with socket.create_server((os.environ["POD_IP"], port)) as server:
            self.peers = [server.accept()[0] for _ in range(world - 1)]

    def all_reduce(self, value: int, name: str = "all_reduce") -> int:
        """Return the sum of all ranks' values; one that calls another collective is waited for without end."""
        if RANK:
            (peer,) = self.peers
            self._send(peer, value)
            return self._receive(peer)
        if name != "all_reduce":
            hang()
        total = value + sum(self._receive(peer) for peer in self.peers)
        for peer in self.peers:
            self._send(peer, total)
        return total

    def close(self) -> None:
        """Leave the others, as destroy_process_group() does; it takes a while, and they break at once."""
        for peer in self.peers:
            peer.close()
        time.sleep(LEAVE_S)

    def _send(self, peer: socket.socket, value: int) -> None:
        try:
            peer.sendall(struct.pack("!q", value))
        except OSError:
            raise _broken(peer) from None

    def _receive(self, peer: socket.socket) -> int:
        try:
            body = peer.recv(8, socket.MSG_WAITALL)
        except OSError:
            body = b""
        if len(body) < 8:
            raise _broken(peer)
        return int(struct.unpack("!q", body)[0])


def _broken(peer: socket.socket) -> RuntimeError:
    return RuntimeError(
        f"[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [{PORT}]"
    )


def _connected(port: int) -> socket.socket:
    """Connect to rank 0, once it listens; a file of the simulator stands for DNS."""
    name = os.environ["HOSTNAME"].rsplit("-", 1)[0] + "-0"
    while True:
        for line in Path(os.environ["INPLACE_HOSTS_FILE"]).read_text().splitlines():
            address, short, _ = line.split()
            if short.startswith(f"{name}."):
                try:
                    return socket.create_connection((address, port))
                except OSError:
                    pass
        time.sleep(CONNECT_S)
