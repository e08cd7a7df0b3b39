"""What a run could leave on a machine: processes, mounts, interfaces, rules, namespaces, cgroups, folders, settings.

`beyond()` compares two looks. It names what our programs could have made and ignores the rest of the machine's life.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from testbed.node.host import CGROUPS

PROGRAMS = ("containerd", "runc", "kubelet", "pause")
"""Processes are compared by these names: a machine starts and ends others all the time."""

SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""What kubelet and CNI plugins set on a machine that they own."""


@dataclass(frozen=True, slots=True)
class Traces:
    """One look at the machine: a line for each thing that a run could have left."""

    lines: frozenset[str]

    @classmethod
    def seen(cls) -> Self:
        """Look now."""
        looks = (_processes(), _mounts(), _network(), _namespaces(), _cgroups(), _folders(), _settings())
        return cls(frozenset(line for look in looks for line in look))

    def beyond(self, before: "Traces") -> list[str]:
        """Return what is there now and was not before."""
        return sorted(self.lines - before.lines)


def _processes() -> Iterator[str]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "cmdline").read_text().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if Path(words[0]).name.startswith(PROGRAMS) or words[1:2] == ["kubelet"]:
                yield f"process {folder.name}: {' '.join(words).strip()}"


def _mounts() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        yield f"mount {fields[4]}"


def _network() -> Iterator[str]:
    for words in (("ip", "-o", "link"), ("ip", "-4", "route"), ("ip", "-o", "-4", "addr")):
        for line in subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines():
            yield f"{' '.join(words)}: {' '.join(line.split()[:8])}"
    yield from rules()


def rules() -> Iterator[str]:
    """Yield the rules of the machine's firewall, without what it counts: packets come in all the time."""
    for words in (["iptables-save"], ["nft", "--stateless", "list", "ruleset"]):
        if shutil.which(words[0]):
            for line in subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines():
                if not line.startswith(("#", ":")):  # dates; chains, whose lines count
                    yield f"{words[0]}: {line}"


def _namespaces() -> Iterator[str]:
    for folder in (Path("/run/netns"), Path("/var/run/netns")):
        if folder.is_dir():
            yield from (f"network namespace {entry}" for entry in folder.iterdir())


def _cgroups() -> Iterator[str]:
    for folder, below, _ in os.walk(CGROUPS):
        yield from (f"cgroup {folder}/{name}" for name in below if name.startswith(("inplace-", "kubepods")))


def _folders() -> Iterator[str]:
    temporary = Path(tempfile.gettempdir())
    yield from (f"folder {entry}" for entry in temporary.glob("inplace-[0-9]*-[0-9]*-*"))  # capsule.OWNERS
    for name in (
        "/run/containerd",
        "/var/lib/kubelet",
        "/var/lib/containerd",
        "/var/lib/cni",
        "/etc/cni",
        "/var/log/pods",
    ):
        if Path(name).exists():
            yield f"folder {name}"


def _settings() -> Iterator[str]:
    for name in SETTINGS:
        setting = Path("/proc/sys") / name
        if setting.exists():
            yield f"sysctl {name} = {setting.read_text().strip()}"
