"""The files of `manifests/`, their expectations, and what lint, inject, the API servers and the demo say of them."""

from __future__ import annotations

import contextlib
import io
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from inplace.cli.demo.demo import DemoOptions, run_demo
from inplace.cli.inject.jobset import Refusal, inject
from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.lint import LintReport, _judged, lint
from inplace.cli.manifests.documents import StreamError, read_stream
from inplace.cli.manifests.text import with_documents
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.controller.injection.pod import InjectOptions
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.manifests import admission_policies, custom_resource_definitions

FOLDER: Final = Path(__file__).parent / "manifests"
COLUMNS: Final = ("lint", "inject", "injected", "api", "demo")
"""`expected.toml` says what each means."""

USUAL: Final = "usual"  # the table of what most files share
OTHER_NAMESPACE: Final = "research"
"""The namespace of the manifests that name one."""

Create = Callable[[str, KubeObject], Awaitable[str | None]]
"""Create a JobSet in a namespace, without storing it; return the server's refusal."""


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
        reports: list[LintReport] = _judged(lint(read_stream(str(file), of_trainer=True)))
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
    stream = read_stream(str(file), of_trainer=True)
    documents, first = inject(stream.documents, InjectOptions())
    return with_documents(stream, documents, first).text


async def seen_by_api(file: Path, create: Create) -> Seen:
    """Say `accepted` or `refused`; `unreadable` where there is no JobSet to send."""
    try:
        (jobset,) = read_stream(str(file)).jobsets()
    except (StreamError, ValueError) as error:
        return Seen("unreadable", str(error))
    said = await create(str(jobset["metadata"].get("namespace") or "default"), jobset)
    return Seen("accepted") if said is None else Seen("refused", said)


def seen_by_embedded(file: Path) -> Seen:
    """Say what the embedded API server does with the JobSet."""

    async def run() -> Seen:
        server = ApiServer(clock=LoopClock(), rng=Random(0))
        server.load([*custom_resource_definitions(), *admission_policies()])
        server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER_NAMESPACE}}])
        client = KubeClient(InMemoryTransport(server), user_agent="cases", field_manager="cases")
        return await seen_by_api(file, lambda namespace, jobset: creation(client, namespace, jobset))

    return virtual_time.run(run())


async def creation(client: KubeClient, namespace: str, jobset: KubeObject) -> str | None:
    """Create a JobSet as a dry run; return the server's refusal."""
    try:
        await client.raw("POST", JOBSETS.path(namespace, query={"dryRun": "All"}), body=jobset)
    except ApiError as error:
        return str(error)
    return None


def seen_by_demo(file: Path) -> Seen:
    """Say `restarts` where a modelled group restarts in place, else `refused` or `ends`."""
    options = DemoOptions(None, 1, "model", None, file, seed=1, json=True, keep=False)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_demo(options)
    if code == 0:
        return Seen("restarts", err.getvalue())
    return Seen("ends" if "saw that it ended" in err.getvalue() else "refused", err.getvalue())


def seen(case: Case, folder: Path) -> dict[str, Seen]:
    """Return what every tool that needs no cluster does with a file; inject's output goes to a folder."""
    changed = seen_by_inject(case.file)
    output = folder / case.name
    if changed.word == "changed":
        output.write_text(changed.text)
    return {
        "lint": seen_by_lint(case.file),
        "inject": changed,
        "injected": seen_by_lint(output) if changed.word == "changed" else Seen("nothing"),
        "api": seen_by_embedded(case.file),
        "demo": seen_by_demo(case.file),
    }
