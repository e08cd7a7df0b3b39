"""Make a base for our images from a Debian mirror, where no registry is reachable: Debian with Python.

Two roots, both byte-compiled. `build` is debootstrap's result with pip and gcc, for the stage that builds. `python` is
the base of the images: the interpreter and the libraries that it links to, no shell, no package manager.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from images.build_once import MissingComponent, build_once, cache_dir, run_nicely

SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = ("python3", "python3-pip", "gcc")
REVISION = "2"
"""The version of `python`'s recipe; another version is another folder of the cache."""

WHEELS = ("libdl.so.2", "libgcc_s.so.1", "libpthread.so.0", "librt.so.1", "libstdc++.so.6", "libutil.so.1")
"""What a compiled wheel may expect of any system (PEP 600, manylinux) and Python itself does not need."""

UNUSED = ("ensurepip", "idlelib", "lib2to3", "test", "tkinter", "turtledemo", "config-*", "pydoc_data")
"""Parts of the standard library that no program of ours imports: 8 MB."""

SKELETON = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/os-release", "/etc/ssl/openssl.cnf")


def roots() -> tuple[Path, Path]:
    """
    Return (build, python), two folders with a root file system each, after making them when they are not cached.

    Raises:
        MissingComponent: debootstrap is not here, or this is not root.
        BuildFailed: debootstrap failed, on the network most likely; what it said went to stderr.
    """
    folder = cache_dir() / "debian" / f"{SUITE}-{'-'.join(PACKAGES)}"
    build = build_once(folder / "build" / "root", _install)
    return build, build_once(folder / f"python-{REVISION}" / "root", lambda python: _extract_python(build, python))


def _install(build: Path) -> None:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise MissingComponent(
            "expected root and debootstrap, to make a Debian base: apt-get install --no-install-recommends debootstrap"
        )
    command = ("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(build), MIRROR)
    run_nicely(command, directory=build)
    for unwanted in ("usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(build / unwanted, ignore_errors=True)


def _extract_python(build: Path, python: Path) -> None:
    """Copy the interpreter, its standard library, what they link to, and who root is."""
    library = next((build / "usr/lib").glob("python3.*")).relative_to(build)
    triplet = next((build / "usr/lib").glob("*-linux-gnu*/libc.so.6")).parent.relative_to(build)
    extensions = (f"/{path.relative_to(build)}" for path in (build / library / "lib-dynload").glob("*.so"))
    wheels = [f"/{triplet}/{name}" for name in WHEELS]
    linked = _linked(build, [f"/usr/bin/{library.name}", *extensions, *wheels])
    for name, real in _resolved(build, sorted({"/usr/bin/python3", *linked, *wheels, *SKELETON})):
        _copy(build, python, name, real)
    shutil.copytree(build / library, python / library, symlinks=True, ignore=shutil.ignore_patterns(*UNUSED))
    for link in ("bin", "lib", "lib64"):  # merged /usr, as Debian has it
        if (build / link).is_symlink() and (python / "usr" / link).exists():
            (python / link).symlink_to(f"usr/{link}")
    for name in ("tmp", "run", "proc", "dev", "sys"):
        (python / name).mkdir()
    (python / "tmp").chmod(0o1777)


def _linked(build: Path, names: list[str]) -> list[str]:
    """Return the shared libraries of programs and libraries, and the loader, as the root's own loader finds them."""
    said = subprocess.run(("chroot", str(build), "ldd", *names), capture_output=True, text=True, check=True)
    return re.findall(r"(/\S+) \(0x", said.stdout)


def _resolved(build: Path, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each name, its folder's links followed, and the file it leads to, both as the root itself sees them."""
    program = (
        "import os, sys\n"
        "for n in sys.argv[1:]: print(os.path.join(os.path.realpath(os.path.dirname(n)), os.path.basename(n)),"
        " os.path.realpath(n))"
    )
    words = ("chroot", str(build), "python3", "-IS", "-c", program, *names)
    for line in subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines():
        name, real = line.split(" ")
        yield name, real


def _copy(build: Path, python: Path, name: str, real: str) -> None:
    """Copy a file, and give it its other name too."""
    file, link = python / real.lstrip("/"), python / name.lstrip("/")
    for path in (file, link):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        shutil.copy2(build / real.lstrip("/"), file)
    if name != real and not link.is_symlink():
        link.symlink_to(real)
