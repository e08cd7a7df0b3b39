"""
`inplace inject`: print a manifest with all that in-place restart needs; it never talks to a cluster.

Exit codes: 0 printed, 1 refused (a person has to decide something first), 2 bad usage or a file that is not a manifest.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Sequence
from typing import Any, Literal

from inplace.cli.inject.jobset import Refusal, inject
from inplace.cli.manifests.documents import Stream, StreamError, is_jobset, objects_of, read_stream
from inplace.cli.manifests.text import Edited, dump, with_documents
from inplace.cli.manifests.trainer import is_runtime, jobset_in
from inplace.cli.terminal.visible import raw_of, visible
from inplace.common.injection.depth import chosen_words, probed_words
from inplace.common.injection.pod import InjectOptions
from inplace.common.injection.pod_roles import group_of
from inplace.common.kube.resources import KubeObject

Rbac = Literal["both", "none", "only"]
REFUSED = 1
UNREADABLE = 2
GENERATED = (
    "kubectl can apply no JobSet with generateName, and can create the agents' account only once; apply the account "
    "with `inject --rbac only | kubectl apply -f -`, then create each JobSet with "
    "`inject --rbac none | kubectl create -f -`"
)
DIFF_LINES_MAX = 3_000  # some 60 JobSets: a second; the comparison's time grows with the square


def run_inject(
    file: str,
    options: InjectOptions,
    *,
    output: Literal["yaml", "json"],
    diff: bool,
    quiet: bool = False,
    rbac: Rbac = "both",
) -> int:
    """Print the manifest, and the difference on stderr (with `diff`, the difference alone); return the exit code.

    Args:
        file: the manifest's path, or "-".
        options: what to add.
        output: the format.
        diff: print the difference alone.
        quiet: print no difference.
        rbac: print the agents' accounts and rights in front of the manifest, not at all, or alone.
    """
    try:
        stream = read_stream(file)
        documents, first = inject(stream.documents, options)
    except StreamError as error:
        print(f"inplace inject: {error}", file=sys.stderr)
        return UNREADABLE
    except Refusal as refusal:
        for finding in refusal.findings:
            print(f"inplace inject: {stream.source}: {finding}", file=sys.stderr)
        return REFUSED
    if rbac == "only":
        sys.stdout.write(_json(first) if output == "json" else dump(first))
        return 0
    first = first if rbac == "both" else []
    if first and any(_is_generated(obj) for document in documents for obj in objects_of(document)):
        print(f"inplace inject: {stream.source}: {GENERATED}", file=sys.stderr)
    for said in [] if quiet else _depths(documents):
        print(f"inplace inject: {stream.source}: {said}", file=sys.stderr)
    edited = with_documents(stream, documents, first)
    if not edited.keeps_comments:
        print(f"inplace inject: {stream.source}: rewritten without its comments: its layout", file=sys.stderr)
    is_shown = (diff or not quiet) and len(edited.text.splitlines()) <= DIFF_LINES_MAX
    if (diff or not quiet) and not is_shown:
        note = (
            f"the difference is not shown, the file has more than {DIFF_LINES_MAX:,} lines; compare it with the output"
        )
        print(f"inplace inject: {stream.source}: {note}", file=sys.stderr)
    if diff:
        raw_of(sys.stdout).write(difference(stream, edited, color=sys.stdout.isatty()) if is_shown else "")
        return 0 if is_shown else REFUSED
    if is_shown:
        raw_of(sys.stderr).write(difference(stream, edited, color=sys.stderr.isatty()))
    if output == "json":
        sys.stdout.write(_json([*first, *documents]))
    else:  # kubectl reads a pipe, and the manifest as it is
        is_terminal = sys.stdout.isatty()
        text = edited.text if is_terminal else edited.text.replace("\n", stream.newline)
        (sys.stdout if is_terminal else raw_of(sys.stdout)).write(text)
    return 0


def _is_generated(obj: KubeObject) -> bool:
    metadata = obj.get("metadata") or {}
    return is_jobset(obj) and not metadata.get("name") and bool(metadata.get("generateName"))


def _depths(documents: Sequence[Any]) -> list[str]:
    """Say how deep restarts go where the manifest asks for it, and which workers are probed too early."""
    objects = [obj for document in documents for obj in objects_of(document)]
    jobsets = [*filter(is_jobset, objects), *(jobset_in(runtime) for runtime in filter(is_runtime, objects))]
    found = [member for jobset in jobsets for member in group_of(jobset)]
    return [said for member in found for said in (chosen_words(member), probed_words(member)) if said]


def difference(stream: Stream, edited: Edited, *, color: bool) -> str:
    """Return a unified diff; "" when nothing changed."""
    before, after = (text.splitlines(keepends=True) for text in (stream.text, edited.text))
    lines = difflib.unified_diff(before, after, stream.source, f"{stream.source} (injected)")
    whole = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return "".join(_painted(line) if color else line for line in map(visible, whole))


def _painted(line: str) -> str:
    if line.startswith(("+++", "---")):
        return f"\033[1m{line}\033[0m"
    number = {"+": 32, "-": 31, "@": 36}.get(line[:1])
    return line if number is None else f"\033[{number}m{line}\033[0m"


def _json(documents: Sequence[Any]) -> str:
    """Return one object, or a List of several."""
    objects = [obj for document in documents for obj in objects_of(document)]
    whole = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
