"""Read the JobSet of a manifest as the controller reads a new one. Pure."""

from __future__ import annotations

from typing import Final

from inplace.common.injection.finding import Finding
from inplace.common.jobset.jobset import JobSet, parse_jobset
from inplace.common.kube.resources import KubeObject

# The controller reads metadata that only stored objects have.
_STORED: Final = {"uid": "00000000-0000-0000-0000-000000000000", "resourceVersion": "1"}
UNNAMED: Final = "?"
_GENERATED: Final = "xxxxx"  # what the API server appends to a generateName


def stored(jobset: KubeObject) -> KubeObject:
    """Return a JobSet of a manifest as the API server would keep a new one; its metadata is a mapping."""
    given = {name: value for name, value in (jobset.get("metadata") or {}).items() if value is not None}
    name = f"{given['generateName']}{_GENERATED}" if given.get("generateName") else UNNAMED
    metadata = {"name": name, "namespace": "default"} | _STORED | given
    return jobset | {"metadata": metadata, "status": {}}


def as_stored(jobset: KubeObject) -> JobSet:
    """Read a JobSet as the controller does when it is new.

    Raises:
        RemoteProtocolError: it does not have a JobSet's form.
    """
    return parse_jobset(stored(jobset))


def finding_of(rule: str, problem: str) -> Finding:
    """Return a sentence of the controller's SpecProblem as a finding."""
    path, _, rest = problem.partition(": ")
    words, _, fix = rest.partition("; ")
    needed, _, found = words.removeprefix("expected ").partition(", saw ")
    found = "nothing" if found == repr(UNNAMED) else found
    return Finding(rule, path, found or words, needed if found else "a spec without it", fix or "correct it")
