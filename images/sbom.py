"""Write the contents of an image without its base: a CycloneDX 1.6 document, made from the lock file.

The image's build installs from the lock file by hash, so this needs no scanner and always gives the same result. The
packages of the base image are not included.

Usage: python -m images.sbom {agent|controller} > sbom.json
"""

import hashlib
import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

from images.lock import ROOTS, Package, needed

REPOSITORY = Path(__file__).parents[1]
SPECIFICATION = "1.6"


def sbom(program: str, lock: str, version: str) -> dict[str, Any]:
    """Return the document of one image; the same inputs give the same bytes, its serial number included."""
    packages = needed(lock, program)
    image = f"inplace-{program}@{version}"
    depends = [
        {"ref": _purl(package), "dependsOn": sorted(_purl(other) for other in packages if package.name in other.via)}
        for package in packages
    ]
    own = {"ref": image, "dependsOn": [_purl(package) for package in packages if package.name in ROOTS[program]]}
    seed = hashlib.sha256(f"{image}\n{lock}".encode()).hexdigest()
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
        "components": [_component(package) for package in packages],
        "dependencies": [own, *depends],
    }


def project_version() -> str:
    """Return the version that pyproject.toml states."""
    found = re.search(r'^version = "([^"]+)"$', (REPOSITORY / "pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None, "pyproject.toml states no version"
    return found[1]


def _component(package: Package) -> dict[str, Any]:
    """Describe one package; the hashes are of every file that the lock file admits: one wheel for each platform."""
    return {
        "type": "library",
        "bom-ref": _purl(package),
        "name": package.name,
        "version": package.version,
        "purl": _purl(package),
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.hashes],
    }


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
