"""Find annotations with a misspelt name: nobody reads them, and nothing says so. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import members
from inplace.common.jobset.settings import MEMBERS, ON_PODS, RESTART
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire

PREFIXES: Final = ("jobset.sigs.k8s.io/", "alpha.jobset.sigs.k8s.io/", "inplace.dev/")
_PRIORITY: Final = "jobset.sigs.k8s.io/priority"  # upstream's pkg/constants; it is on Pods
KNOWN: Final = frozenset(
    {text for text in vars(wire).values() if isinstance(text, str) and text.startswith(PREFIXES)} | {_PRIORITY}
)
_BY_END: Final = {name.partition("/")[2]: name for name in sorted(KNOWN)}
_MOVED: Final = {name: RESTART.named(part) for part, name in ON_PODS.items()}  # the controller writes them on Pods
LIKENESS: Final = 0.9  # of a whole name under a foreign prefix: one or two letters differ
NEAREST: Final = 0.6  # of what follows our prefixes, difflib's own measure; such a name is misspelt for certain


def check_annotations(jobset: KubeObject) -> Iterator[Finding]:
    """Yield names under the prefixes of JobSet and of ours, or close to one of them, that nothing reads."""
    for path, metadata in _places(jobset):
        for name in metadata.get("annotations") or {}:
            nearest = _MOVED.get(str(name)) if path == "metadata" else None
            nearest = nearest or _nearest(str(name))
            if nearest is not None:
                needed, fix = nearest or "a name of docs/manifests.md", "correct the name, or remove the annotation"
                yield Finding(
                    "no-effect", f'{path}.annotations["{name}"]', f"the name {name}, which nothing reads", needed, fix
                )


def check_sizes(jobset: KubeObject) -> Iterator[Finding]:
    """Yield parts of inplace.dev/members that count only where a group may get smaller."""
    for path, metadata in _places(jobset):
        annotations = metadata.get("annotations") or {}
        if wire.MEMBERS not in annotations or path.endswith(".spec.template.metadata"):
            continue
        try:
            given = MEMBERS.read(annotations)
        except RemoteProtocolError:
            continue  # has a finding of its own
        idle = [part for part in ("step", "wait") if part in given]
        if idle and given.get("min", given.get("max")) == given.get("max"):
            where, found = f'{path}.annotations["{wire.MEMBERS}"]', f"{' and '.join(idle)}, and no min below max"
            yield Finding("no-effect", where, found, "min beside them", f"add min, or remove {' and '.join(idle)}")


def _nearest(name: str) -> str | None:
    """Return the name that is meant, or "" where none is near; None where the name is no mistake."""
    if name in KNOWN:
        return None
    if not name.startswith(PREFIXES):
        return next(iter(get_close_matches(name, sorted(KNOWN), n=1, cutoff=LIKENESS)), None)
    near = get_close_matches(name.partition("/")[2], list(_BY_END), n=1, cutoff=NEAREST)
    return _BY_END[near[0]] if near else ""


def _places(jobset: KubeObject) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "metadata", jobset.get("metadata") or {}
    for member in members(jobset):
        yield f"{member.path}.template.metadata", member.template.get("metadata") or {}
        pod = member.job_spec.get("template") or {}
        metadata = pod.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("annotations") or {}, dict):
            yield f"{member.job_path}.template.metadata", metadata
