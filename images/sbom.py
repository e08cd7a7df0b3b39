"""Write the contents of an image: a CycloneDX 1.6 document, made from the lock file.

The image's build installs from the lock file by hash, so this needs no scanner and always gives the same result. The
packages of the controller's base image are not included. The agent's image has no base: `images.agent_root` adds the
Python and the Debian packages that it took files from, and the image holds that document as /sbom.cdx.json.

Usage: python -m images.sbom {agent|controller} > sbom.json
"""

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from images.lock import ROOTS, Package, needed

REPOSITORY = Path(__file__).parents[1]
SPECIFICATION = "1.6"


@dataclass(frozen=True, slots=True)
class Part:
    """Something in an image; the hashes are of every file that the lock file admits: one wheel for each platform."""

    name: str
    version: str
    purl: str
    hashes: Sequence[str] = ()

    @classmethod
    def locked(cls, package: Package) -> Self:
        """Return a package of the lock file."""
        return cls(package.name, package.version, _purl(package), package.hashes)

    @classmethod
    def python(cls, version: str) -> Self:
        """Return an interpreter."""
        return cls("python", version, f"pkg:generic/python@{version}")

    @classmethod
    def debian(cls, name: str, version: str, architecture: str) -> Self:
        """Return a Debian package."""
        return cls(name, version, f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}")

    def component(self) -> dict[str, Any]:
        """Describe it."""
        described: dict[str, Any] = {
            "type": "library",
            "bom-ref": self.purl,
            "name": self.name,
            "version": self.version,
            "purl": self.purl,
        }
        if self.hashes:
            described["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in self.hashes]
        return described


def sbom(program: str, lock: str, version: str, parts: Sequence[Part] = ()) -> dict[str, Any]:
    """Return the document of one image; the same inputs give the same bytes, its serial number included."""
    packages = needed(lock, program)
    image = f"inplace-{program}@{version}"
    depends = [
        {"ref": _purl(package), "dependsOn": sorted(_purl(other) for other in packages if package.name in other.via)}
        for package in packages
    ]
    direct = [_purl(package) for package in packages if package.name in ROOTS[program]]
    own = {"ref": image, "dependsOn": [*direct, *(part.purl for part in parts)]}
    seed = hashlib.sha256("\n".join((image, lock, *(part.purl for part in parts))).encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, seed)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": image,
                "name": f"inplace-{program}",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [part.component() for part in (*map(Part.locked, packages), *parts)],
        "dependencies": [own, *depends],
    }


def project_version() -> str:
    """Return the version that pyproject.toml states."""
    found = re.search(r'^version = "([^"]+)"$', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None, "pyproject.toml states no version"
    return found[1]


def _purl(package: Package) -> str:
    return f"pkg:pypi/{package.name}@{package.version}"


def main() -> int:
    """Write one image's document to standard output."""
    if sys.argv[1:] not in [[program] for program in ROOTS]:
        print(f"sbom: expected one of {', '.join(ROOTS)}, saw {sys.argv[1:]}", file=sys.stderr)
        return 2
    lock = (REPOSITORY / "requirements.lock").read_text()
    print(json.dumps(sbom(sys.argv[1], lock, project_version()), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
