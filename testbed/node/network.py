"""Connect nodes to the control plane: a bridge in the capsule, a cable to each node, and routes; nothing is translated.

10.0.0.1, the Service address of the API server, is an address of the capsule itself; so a Pod reaches the API server
under the name and port that every Pod gets, with no kube-proxy and no rule.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from testbed.credentials import SERVICE_ADDRESS

BRIDGE = "nodes"
NODES_NETWORK = "10.77.0"
PODS_NETWORK = "10.78"
BRIDGE_MAC = "02:00:00:4d:00:01"
"""Set, because a bridge otherwise takes the lowest of its ports': each node that came or went could change it, and the
others had the old one in their ARP tables for up to 45 s, in which they reached nobody."""

GATEWAY = f"{NODES_NETWORK}.1"
"""The capsule itself, as nodes and Pods see it."""

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
"""The network namespace's own: the machine's stays as it is."""


@dataclass(frozen=True, slots=True)
class Address:
    """What belongs to the node with this number, counted from 0."""

    number: int

    @property
    def node(self) -> str:
        """Return the node's own address."""
        return f"{NODES_NETWORK}.{10 + self.number}"

    @property
    def pods(self) -> str:
        """Return the network of its Pods."""
        return f"{PODS_NETWORK}.{self.number}.0/24"


def set_up() -> None:
    """Give the capsule the bridge and the Service address, and let it forward; the capsule's end takes it all down."""
    _ip("link", "add", BRIDGE, "address", BRIDGE_MAC, "type", "bridge", "forward_delay", "0")
    _ip("addr", "add", f"{GATEWAY}/24", "dev", BRIDGE)
    _ip("addr", "add", f"{SERVICE_ADDRESS}/32", "dev", "lo")
    _ip("link", "set", BRIDGE, "up")
    FORWARDING.write_text("1")


def connect(address: Address, pid: int) -> None:
    """Plug the node whose network namespace belongs to `pid` into the bridge."""
    cable = f"node{address.number}"
    _ip("link", "add", cable, "master", BRIDGE, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _ip("link", "set", cable, "up")
    inside = ("nsenter", "--target", str(pid), "--net", "--")
    _run(*inside, "ip", "link", "set", "lo", "up")
    _run(*inside, "ip", "addr", "add", f"{address.node}/24", "dev", "eth0")
    _run(*inside, "ip", "link", "set", "eth0", "up")
    _run(*inside, "ip", "route", "add", "default", "via", GATEWAY)
    _run(*inside, "sh", "-c", f"echo 1 > {FORWARDING}")
    _ip("route", "replace", address.pods, "via", address.node)


def cut(address: Address) -> None:
    """Unplug a node: nothing that it sends arrives, and nobody is told."""
    _ip("link", "set", f"node{address.number}", "down")


def heal(address: Address) -> None:
    """Plug it in again."""
    _ip("link", "set", f"node{address.number}", "up")


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    subprocess.run(words, check=True)
