"""What this machine must have before a node can run on it, and how to get it.

Nothing here changes the machine, except `install()`, which `make node` calls: it installs Debian packages when it may.

Usage: python -m testbed.node.host      (installs, then says what is missing all the same and exits with 1)
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from images.build_once import MissingComponent

PROGRAMS: Mapping[str, str] = {
    "buildah": "buildah",
    "busybox": "busybox-static",
    "debootstrap": "debootstrap",
    "gcc": "gcc libc6-dev",
    "ip": "iproute2",
    "mount": "mount",
    "musl-gcc": "musl-tools",
    "nsenter": "util-linux",
    "pkg-config": "pkg-config",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""Each program a node or its images need, and the Debian packages that bring it."""

LIBRARIES: Mapping[str, str] = {"libseccomp": "libseccomp-dev"}
"""Each library that runc is built with, by its name for pkg-config, and the Debian package that brings it."""

CONTROLLERS = ("cpu", "memory", "pids")
"""What kubelet asks of a cgroup at least."""

CGROUPS = Path("/sys/fs/cgroup")


def check(programs: Mapping[str, str] = PROGRAMS) -> None:
    """
    Return when a node can run here.

    Raises:
        MissingComponent: it names everything that is missing, not the first thing only.
    """
    problems = []
    if os.geteuid() != 0:
        problems.append("expected root, because containers need namespaces, mounts and cgroups")
    absent = missing_packages(programs)
    if absent:
        problems.append(f"expected these Debian packages: apt-get install --no-install-recommends {' '.join(absent)}")
    lacking = [name for name in CONTROLLERS if not (CGROUPS / name / "cgroup.procs").exists()]
    if lacking:
        problems.append(f"expected cgroup v1 hierarchies below {CGROUPS}, saw none of {', '.join(lacking)}")
    if "overlay" not in Path("/proc/filesystems").read_text():
        problems.append("expected a kernel with overlayfs, saw none in /proc/filesystems")
    problems = problems or [*_refusals()]
    if problems:
        raise MissingComponent("a node cannot run here: " + "; ".join(problems))


def _refusals() -> Iterator[str]:
    """Try what a node begins with, and leave nothing of it: a container that calls itself a machine may refuse it."""
    with tempfile.TemporaryDirectory(prefix="node-probe-") as name:
        folder = Path(name)
        for part in ("lower", "upper", "work", "merged"):
            (folder / part).mkdir()
        layers = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
        namespaces = ("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork")
        mount = ("mount", "-t", "overlay", "overlay", "-o", layers, f"{folder}/merged")
        tried = subprocess.run((*namespaces, *mount), capture_output=True, text=True, check=False)
        if tried.returncode:
            yield f"expected namespaces and overlayfs below {folder.parent}, saw {tried.stderr.strip()!r}"
        for controller in CONTROLLERS:
            cgroup = CGROUPS / controller / folder.name
            try:
                cgroup.mkdir()
                cgroup.rmdir()
            except OSError as error:
                yield f"expected to make cgroups, saw {error}"


def missing_packages(programs: Mapping[str, str] = PROGRAMS, libraries: Mapping[str, str] = LIBRARIES) -> list[str]:
    """Return the Debian packages that would bring the programs that are not on PATH, and the libraries."""
    absent = [names for name, names in programs.items() if shutil.which(name) is None]
    absent += [names for name, names in libraries.items() if not _has_library(name)]
    return sorted({package for names in absent for package in names.split()})


def _has_library(name: str) -> bool:
    """Say whether pkg-config knows a library; it knows none where it is missing itself."""
    if shutil.which("pkg-config") is None:
        return False
    return subprocess.run(("pkg-config", "--exists", name), check=False).returncode == 0


def install() -> None:
    """Install the missing Debian packages when this is root on a Debian; `check()` tells of the rest."""
    absent = missing_packages()
    if absent and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(("apt-get", "update", "-q"), check=True, env=quiet)
        subprocess.run(("apt-get", "install", "-qy", "--no-install-recommends", *absent), check=True, env=quiet)


def main() -> int:
    """Install what may be installed; say what is missing all the same and return 1."""
    try:
        install()
        check()
    except (MissingComponent, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
