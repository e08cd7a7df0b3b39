"""
Manifests, kubeconfigs and answers of an API server with a wrong type in them, read by every command that reads one.

    python -m tests.cli.fuzz_types --cases 20000

For each case: the command ends with a documented exit code and in words of its own, never with a traceback. A case is
made again from its number. `make soak-types` runs many, a test runs a few.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import yaml

from inplace.cli.answers import CheckedClient
from inplace.cli.connection import WHOLE_MAX, Connection, Target, in_words
from inplace.cli.main import app
from inplace.cli.refusal import CliExit, RefusalError
from inplace.common.kube.http.request import Request, Response
from inplace.simulator.cluster import virtual_time
from tests.cli.command import REPOSITORY
from tests.cli.enriched import enriched
from tests.cli.lint.test_subjects import IN_PLACE, shipped
from tests.cli.manifests.test_trainer import mpi_runtime, train_job
from tests.cli.mutations import mutated, spoiled
from tests.cli.recorded import COMMANDS, Change, Replay, World, recorded

OF_MANIFESTS: Final[Mapping[str, Sequence[str]]] = {
    "lint": ("lint", "-f"),
    "lint --json": ("lint", "--strict", "--json", "-f"),
    "inject": ("inject", "-f"),
    "inject -o json": ("inject", "--mode", "supervisor", "-q", "-o", "json", "-f"),
    "demo": ("demo", "--runtime", "model", "--failures", "1", "-f"),
}
OF_KUBECONFIGS: Final[Mapping[str, Sequence[str]]] = {
    "status with a kubeconfig": ("status", "train", "--kubeconfig"),
    "history with a context": ("history", "train", "--context", "a", "--kubeconfig"),
}
LOCAL_CODES: Final = (0, 1, 2)  # of lint, inject and demo: docs/cli.md
USER: Final[Mapping[str, Any]] = {"token": "t", "username": "u", "password": "p", "exec": {"command": "false"}}
KUBECONFIG: Final[Mapping[str, Any]] = {
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", "proxy-url": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    "current-context": "a",
}
OF_PYTHON: Final = re.compile(r"Traceback|NoneType|object has no attribute|not subscriptable|not iterable|unhashable")
SHOWN: Final = 40  # cases that went wrong


@dataclass(frozen=True, slots=True)
class End:
    """How a command ended."""

    code: int
    said: str


@cache
def manifests() -> Sequence[list[Any]]:
    """Return the documents of the repository's manifests, and of Kubeflow Trainer's."""
    texts = [file.read_text() for file in sorted((REPOSITORY / "examples").glob("*.yaml"))]
    texts += [file.read_text() for file in sorted((REPOSITORY / "tests" / "cases" / "manifests").iterdir())]
    pages = (page.read_text() for page in sorted((REPOSITORY / "docs").glob("*.md")))
    texts += [text for page in pages for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind:" in text]
    found = [
        [shipped(), train_job(trainer={"command": ["torchrun"]}, runtimePatches=[IN_PLACE])],
        [mpi_runtime(), train_job(runtimePatches=[IN_PLACE])],
    ]
    for text in texts:
        try:
            documents = list(yaml.load_all(text, yaml.CSafeLoader))
            json.dumps(documents)
        except (yaml.YAMLError, TypeError, ValueError):
            continue  # a case of no YAML, or of dates
        found.append(documents)
    return found


@cache
def worlds() -> Sequence[World]:
    """Return what a server answered, in several situations."""
    return recorded()


def read_file(rng: Random, words: Sequence[str], text: bytes, folder: Path) -> End:
    """Let a command read a file, which may have wrong bytes as well."""
    file = folder / "file.yaml"
    file.write_bytes(spoiled(rng, text) if rng.randrange(20) == 0 else text)
    printed, code = StringIO(), None
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            app((*words, str(file)))
    except SystemExit as ended:
        code = ended.code
    assert isinstance(code, int), code
    return End(code, printed.getvalue())


def read_manifest(rng: Random, words: Sequence[str], folder: Path) -> End:
    """Let a command read a manifest with something wrong in it."""
    documents = mutated(rng, rng.choice(manifests()))
    parts = documents if isinstance(documents, list) else [documents]
    return read_file(rng, words, "\n---\n".join(map(json.dumps, parts)).encode(), folder)


def read_kubeconfig(rng: Random, words: Sequence[str], folder: Path) -> End:
    """Let a command read a kubeconfig with something wrong in it; nothing listens at its server."""
    chosen = rng.sample(sorted(USER), rng.randrange(3))
    whole = {**KUBECONFIG, "users": [{"name": "u", "user": {key: USER[key] for key in chosen}}]}
    return read_file(rng, words, json.dumps(mutated(rng, whole)).encode(), folder)


def changed(rng: Random, answer: Response) -> Response:
    """Return an answer with something wrong in one of its lines."""
    lines = answer.body.split(b"\n")
    at = rng.randrange(len(lines))
    moment, opened, rest = lines[at].partition(b"{")  # a line of a log begins with its moment
    if not opened or rng.randrange(20) == 0:
        return Response(answer.status, answer.headers, spoiled(rng, answer.body))
    found = msgspec.json.decode(opened + rest)
    for jobset in (found.get("object"), *(found.get("items") or ()), found):
        if isinstance(jobset, dict) and "replicatedJobs" in (jobset.get("spec") or {}):
            enriched(rng, jobset)
    lines[at] = moment + json.dumps(mutated(rng, found)).encode()
    return Response(answer.status, answer.headers, b"\n".join(lines))


def read_answers(rng: Random, name: str) -> End:
    """Let a command read answers, one or all of which have something wrong in them."""
    wrong = rng.choice((1, 1, 2, 2, 3, 4, 5, 8, 0))

    def change(number: int, _request: Request, answer: Response) -> Response:
        return changed(rng, answer) if wrong in (0, number) else answer

    return read_as(name, change, rng.choice(worlds()), rng.choice((0, WHOLE_MAX)))


def read_as(name: str, change: Change, world: World | None = None, whole_max: int = WHOLE_MAX) -> End:
    """Let a command read recorded answers after a change; of a group above `whole_max` Pods the least is read."""
    client = CheckedClient(Replay(world or worlds()[0], change), user_agent="user", field_manager="user")
    connection, printed = Connection(client, "default", whole_max=whole_max), StringIO()

    async def run() -> int:
        with in_words(Target()):
            return await COMMANDS[name](connection) or CliExit.DONE

    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            return End(virtual_time.run(run()), printed.getvalue())
    except RefusalError as refusal:
        return End(refusal.code, f"{printed.getvalue()}{refusal}")


def run_case(seed: int, folder: Path) -> tuple[str, str]:
    """Run a case; return the command's name, and what is wrong with how it ended."""
    rng = Random(seed)
    name = rng.choice((*OF_MANIFESTS, *OF_KUBECONFIGS, *COMMANDS))
    if name in OF_MANIFESTS:
        return name, problem_of(lambda: read_manifest(rng, OF_MANIFESTS[name], folder), LOCAL_CODES)
    if name in OF_KUBECONFIGS:
        return name, problem_of(lambda: read_kubeconfig(rng, OF_KUBECONFIGS[name], folder), tuple(CliExit))
    return name, problem_of(lambda: read_answers(rng, name), tuple(CliExit))


def problem_of(run: Callable[[], End], codes: Sequence[int]) -> str:
    """Return what is wrong with how a command ends; "" where nothing is."""
    try:
        end = run()
    except Exception as caught:  # noqa: BLE001 - what a user would see as a traceback is what is looked for
        error: BaseException = caught
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename.removeprefix(f'{REPOSITORY}/')}:{last.lineno} {last.name}"
        return f"{place}: {type(error).__name__}: {error!s:.100}"
    if end.code not in codes:
        return f"exit code {end.code}, expected one of {', '.join(map(str, codes))}"
    if end.code and not end.said.strip():
        return f"exit code {end.code} without a word"
    found = OF_PYTHON.search(end.said)
    return f"words of Python: {end.said[max(found.start() - 80, 0) : found.end() + 80]!r}" if found else ""


def fuzz(first: int, cases: int) -> tuple[Counter[str], list[str]]:
    """Run cases; return how many each command had, and those that went wrong, each with what replays it."""
    ran, wrong = Counter[str](), []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + cases):
            name, problem = run_case(seed, Path(folder))
            ran[name] += 1
            if problem:
                replay = f"python -m tests.cli.fuzz_types --first {seed} --cases 1"
                wrong.append(f"{replay}  # inplace {name}: {problem}")
    return ran, wrong


def main() -> int:
    """Fuzz from the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=time.time_ns() % 10**9, help="the number of the first case")
    options = parser.parse_args()
    ran, wrong = fuzz(options.first, options.cases)
    print(f"{options.cases} cases from {options.first} on, of {len(ran)} commands: {len(wrong)} went wrong")
    print(*wrong[:SHOWN], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
