"""
Say in the words of in-toto of what the files of a release were made, and by whom.

It is SLSA's build level 1: the provenance exists and is complete. No hosted builder made it, so it is signed only with
the checksums. Sources: in-toto Statement v1 and SLSA Provenance v1 (https://slsa.dev/spec/v1.0/provenance).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from release.parts import digest

FILE: Final = "provenance.intoto.json"


def write_provenance(
    out: Path, files: Iterable[Path], *, homepage: str, commit: str, inputs: Mapping[str, str], asked: Mapping[str, str]
) -> None:
    """Write the statement.

    Args:
        out: the folder of the release.
        files: that were made.
        homepage: of the project.
        commit: the sources.
        inputs: the SHA-256 of each file that names something from outside, such as the lock file.
        asked: what the command line said.
    """
    source = {"uri": f"git+{homepage}", "digest": {"gitCommit": commit}}
    more = [{"uri": f"{homepage}#{name}", "digest": {"sha256": sha256}} for name, sha256 in sorted(inputs.items())]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": digest(file)}} for file in sorted(files)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{homepage}/blob/main/docs/release.md",
                "externalParameters": dict(asked),
                "resolvedDependencies": [source, *more],
            },
            "runDetails": {"builder": {"id": f"{homepage}/blob/main/docs/release.md#on-a-machine-of-the-maintainers"}},
        },
    }
    (out / FILE).write_text(json.dumps(statement, indent=2) + "\n")
