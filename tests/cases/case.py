"""The files of `manifests/`, their expectations, and what lint, inject, the API servers and the demo say of them."""

from __future__ import annotations

import contextlib
import io
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from inplace.cli.demo.demo import DemoOptions, run_demo
from inplace.cli.inject.inject import Refusal, inject
from inplace.cli.lint.admission import refusals_of_jobs, refusals_of_jobset
from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.lint import LintReport, _judged, lint
from inplace.cli.lint.stored import as_stored
from inplace.cli.lint.subjects import subjects
from inplace.cli.manifests.documents import StreamError, objects_of, read_stream
from inplace.cli.manifests.text import with_documents
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.manifests import admission_policies, custom_resource_definitions

FOLDER: Final = Path(__file__).parent / "manifests"
COLUMNS: Final = ("lint", "inject", "injected", "api", "demo")
"""`expected.toml` says what each means."""

_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # a server draws one for each Job
USUAL: Final = "usual"  # the table of what most files share
OTHER_NAMESPACE: Final = "research"
"""The namespace of the manifests that name one."""


@dataclass(frozen=True, slots=True)
class Case:
    """One file.

    Args:
        expected: the word for each of `COLUMNS`.
        words: what lint (its rules or texts), inject and the demo have to mention, all together.
    """

    file: Path
    expected: Mapping[str, str]
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.file.name


@dataclass(frozen=True, slots=True)
class Seen:
    """What a tool did with a file, in one of the words of `expected.toml`, and its text for people."""

    word: str
    text: str = ""


@cache
def cases() -> tuple[Case, ...]:
    """Return every file with its expectation."""
    with (FOLDER.parent / "expected.toml").open("rb") as file:
        table: dict[str, dict[str, Any]] = tomllib.load(file)
    usual = table.pop(USUAL)
    files = {path.stem: path for path in sorted(FOLDER.iterdir())}
    assert files.keys() == table.keys(), (
        f"expected a table for each file, saw a difference: {files.keys() ^ table.keys()}"
    )
    return tuple(_case(path, usual | table[stem]) for stem, path in files.items())


def _case(file: Path, said: dict[str, Any]) -> Case:
    expected = {column: str(said[column]) for column in COLUMNS}
    return Case(file, expected, tuple(said.get("words", ())))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines, with columns as wide as they need."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def differences(case: Case, found: Mapping[str, Seen]) -> list[str]:
    """Return where a tool did something else than expected."""
    texts = "\n".join(one.text for one in found.values())
    said = [
        f"{column}: expected {case.expected[column]}, saw {one.word}: {one.text[:600]}"
        for column, one in found.items()
        if case.expected[column] != one.word
    ]
    said += [f"expected the words {word!r}" for word in case.words if word not in texts]
    return [f"{case.name}: {one}" for one in said]


def seen_by_lint(file: Path) -> Seen:
    """Say `clean`, `warnings`, `errors` or `unreadable`; the text has the rules' names and the policy's sentences."""
    try:
        reports: list[LintReport] = _judged(lint(read_stream(str(file))))
    except StreamError as error:
        return Seen("unreadable", str(error))
    findings = [finding for report in reports for finding in report.findings]
    severities = {RULES[finding.rule].severity for finding in findings}
    word = "errors" if "error" in severities else "warnings" if severities else "clean"
    sentences = [sentence for report in reports for sentence in report.policy]
    return Seen(word, "\n".join((*(f"{finding.rule}: {finding}" for finding in findings), *sentences)))


def seen_by_inject(file: Path) -> Seen:
    """Say `changed`, `refused` or `unreadable`."""
    try:
        return Seen("changed", injected(file))
    except StreamError as error:
        return Seen("unreadable", str(error))
    except Refusal as refusal:
        return Seen("refused", str(refusal))


def injected(file: Path) -> str:
    """Return what inject prints."""
    stream = read_stream(str(file))
    documents, first = inject(stream.documents, InjectOptions())
    return with_documents(stream, documents, first).text


async def seen_by_api(file: Path, client: KubeClient) -> Seen:
    """Say what a server does with the JobSets and their Jobs, if it is asked as kubectl asks; nothing is stored.

    Returns:
        `accepted`, `refused`, or `jobs-refused` where it takes the JobSet and not its Jobs; `unreadable` where there is
        no JobSet to send, and none that Trainer makes. The text names each field and why.
    """
    objects = [one for document in parse(file.read_text("utf-8-sig")) for one in objects_of(document)]
    jobsets = [one.jobset for one in subjects(objects)]
    word, found = "accepted" if jobsets else "unreadable", list[Finding]()
    for jobset in jobsets:
        namespace = jobset["metadata"].get("namespace") or "default"
        placed = jobset | {"metadata": jobset["metadata"] | {"namespace": namespace}}
        if refused := await refusals_of_jobset(client, placed, namespace):
            word, found = "refused", [*found, *refused]
        elif refused := await _refusals_of_jobs(client, placed):
            word, found = "jobs-refused", [*found, *refused]
    text = "\n".join(sorted(f"{one.path}: {one.found}" for one in found))
    return Seen(word, _UID.sub("(uid)", text))


async def _refusals_of_jobs(client: KubeClient, jobset: KubeObject) -> list[Finding]:
    """Return why there would be no Jobs: the controller cannot read the JobSet, or the server refuses what it makes."""
    try:
        as_stored(jobset)
    except RemoteProtocolError as error:
        return [Finding("admission", "the controller", str(error), "", "")]
    return [one async for one in refusals_of_jobs(client, jobset)]


def seen_by_embedded(file: Path) -> Seen:
    """Say what the embedded API server does with the JobSets."""

    async def run() -> Seen:
        server = ApiServer(clock=LoopClock(), rng=Random(0))
        server.load([*custom_resource_definitions(), *admission_policies()])
        server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER_NAMESPACE}}])
        return await seen_by_api(file, KubeClient(InMemoryTransport(server), user_agent="cases", field_manager="cases"))

    return virtual_time.run(run())


def seen_by_demo(file: Path) -> Seen:
    """Say `restarts` where a modelled group restarts in place, else `refused` or `ends`."""
    options = DemoOptions(None, 1, "model", None, file, seed=1, json=True, keep=False)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_demo(options)
    if code == 0:
        return Seen("restarts", err.getvalue())
    return Seen("ends" if "saw that it ended" in err.getvalue() else "refused", err.getvalue())


def seen(file: Path, folder: Path) -> dict[str, Seen]:
    """Return what every tool that needs no cluster does with a file; inject's output goes to a folder."""
    changed = seen_by_inject(file)
    output = folder / file.name
    if changed.word == "changed":
        output.write_text(changed.text)
    return {
        "lint": seen_by_lint(file),
        "inject": changed,
        "injected": seen_by_lint(output) if changed.word == "changed" else Seen("nothing"),
        "api": seen_by_embedded(file),
        "demo": seen_by_demo(file),
    }
