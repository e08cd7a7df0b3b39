"""
Write docs/api.md: every name that a user may rely on, and how long it stays.

python -m tests.docs.api_page   rewrites the page; test_site.py checks it.

The names come from the code, so a new one is on the page, as alpha or as what its table says, from its first day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer.main
import yaml
from typer.core import TyperGroup

from inplace.agent.settings.exit_code import ExitCode
from inplace.cli.main import app
from inplace.cli.refusal import CliExit
from inplace.common.jobset import conditions
from inplace.common.jobset.settings import OF_GROUPS
from inplace.common.wire import names as wire
from tests.docs.metrics_page import agent_rows, controller_rows

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "api.md"
ALPHA: Final = "alpha"
BETA: Final = "beta"
OURS: Final = re.compile(r"inplace\.dev/[a-z-]+")
VARIABLE: Final = re.compile(r"\"([A-Z][A-Z0-9]*_[A-Z0-9_]+|NAMESPACE|MEMBERS)\"")
OF_UPSTREAM: Final = frozenset(
    (
        "conditions",
        "currentInPlaceRestartAttempt",
        "executionAttempts",
        "previousInPlaceRestartAttempt",
        "replicatedJobsStatus",
        "restarts",
        "restartsCountTowardsMax",
        "startTime",
        "terminalState",
    )
)
TYPE: Final = re.compile("[A-Z][A-Za-z]+")
CONDITIONS_OF_UPSTREAM: Final = (
    conditions.COMPLETED,
    conditions.FAILED,
    conditions.SUSPENDED,
    conditions.RESTARTING,
    conditions.STARTUP_IN_PROGRESS,
    conditions.STARTUP_COMPLETED,
)
OF_WORKERS: Final = "INPLACE_"
INSIDE: Final = {
    "INPLACE_STANDBY": "a descriptor between agent and inplace.ready",
    "INPLACE_SUPERVISOR": "a mark by which an agent finds what its worker left",
    "INPLACE_SERVICE_ACCOUNT_DIR": "for tests",
}
"""Variables that nobody but our own programs may read or set."""
OF_OTHERS: Final = "CLOCK_BOOTTIME KUBERNETES_SERVICE_HOST LC_CTYPE LD_AUDIT SC_PAGE_SIZE TORCHELASTIC_ERROR_FILE"
"""Names in capitals that are the system's or another program's; rank_variables.py has those of the launchers."""

_HEAD: Final = """# What may change?

Generated from the code by `make rewrite`; do not edit.

Each name that a manifest, a script, a dashboard or a training program may use has a stage.

| stage | promise |
|---|---|
| alpha | It may change or go in any release. The changelog says so, and what to write instead. |
| beta | It stays for two minor releases and six months after the changelog says that it goes, and what comes instead. |
| stable | It goes with the next major version at the earliest, a year after the changelog says so. |

* **Nothing is stable before 1.0.** With 1.0 all that was beta for two minor releases becomes stable.
* **The API of JobSet is upstream's**: `jobset.x-k8s.io/v1alpha2` with its fields, labels and columns
  ([compatibility.md](compatibility.md)). We remove nothing of it that upstream has.
* **Agent and controller** of neighbouring minor releases work together, in both directions
  ([upgrade](install.md#upgrade)). That holds for the names in the last table too, although these are alpha.
* **Words for people** may change at any time: messages of logs, Events and conditions, and what commands print without
  `--json`. Reasons of conditions are beta.
* **Values**: a new value of an enumeration, a new field of a document and a new label of a metric's value are no
  change. A program passes over what it does not know.
* **A default** changes like a beta name: the changelog says it one minor release before. One that is unsafe changes at
  once.
"""


class Kind(NamedTuple):
    """Names of one kind.

    Args:
        title: its heading.
        words: what they are.
        names: each with what stands beside it.
        stage: of all that `others` does not name.
        others: the stages of the rest.
    """

    title: str
    words: str
    names: Mapping[str, str]
    stage: str
    others: Mapping[str, str] = {}

    def stages(self) -> dict[str, str]:
        """Return the stage of each name.

        Raises:
            ValueError: a stage is given to a name that the code does not have.
        """
        if gone := set(self.others) - set(self.names):
            raise ValueError(f"{self.title}: expected names that the code has, saw {', '.join(sorted(gone))}")
        return {name: self.others.get(name, self.stage) for name in self.names}


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(_section(kind) for kind in kinds())


def kinds() -> Iterator[Kind]:
    """Yield every kind of name."""
    yield Kind(
        "Annotations that you write",
        "On a JobSet; [settings.md](settings.md) has their values.",
        {setting.key: _words(part.name for part in setting.parts) for setting in OF_GROUPS}
        | {wire.RESTART_IN_PLACE: "", wire.RESTART_SCOPE: "", wire.RESTART_REQUESTED: "", wire.STACKS_REQUESTED: ""},
        BETA,
        dict.fromkeys((wire.ESCALATION, wire.FENCE_AFTER, wire.MEMBERS, wire.STACKS_REQUESTED), ALPHA),
    )
    yield Kind(
        "Fields of the status",
        "What upstream's controller does not write.",
        _status_fields(),
        ALPHA,
        dict.fromkeys(("syncedEpoch", "deprecatedEpoch", "lastGroupRestart", "restartHistory", "goodput"), BETA),
    )
    types = (value for value in vars(conditions).values() if isinstance(value, str) and TYPE.fullmatch(value))
    yield Kind(
        "Types of conditions",
        "What upstream's controller does not set ([states.md](states.md)).",
        dict.fromkeys((value for value in types if value not in CONDITIONS_OF_UPSTREAM), ""),
        BETA,
    )
    package = (ROOT / "inplace" / "__init__.py").read_text()
    calls = [f"inplace.{name}" for name in sorted(re.findall(r" import (\w+) as \1$", package, re.MULTILINE))]
    modules = _sources(ROOT / "inplace" / "integrations")
    integrations = [f"inplace.integrations.{path.stem}" for path in modules if not path.stem.startswith("_")]
    yield Kind(
        "Python",
        "Of the package `inplace`, in a training script ([agent.md](agent.md), [saving.md](saving.md)).",
        dict.fromkeys((*calls, *integrations), ""),
        BETA,
        dict.fromkeys(integrations, ALPHA),
    )
    yield Kind(
        "Variables of a worker",
        "What the agent sets, and what a script or its launcher may read.",
        dict.fromkeys(sorted(name for name in _variables() if name.startswith(OF_WORKERS)), ""),
        BETA,
        dict.fromkeys(("INPLACE_JOB_RANK", "INPLACE_JOBS", "INPLACE_STALL_PID", "INPLACE_STALL_SILENT_S"), ALPHA),
    )
    yield Kind(
        "Commands",
        "With their options ([cli.md](cli.md)). Each document of `--json` is beta too.",
        dict(_commands()),
        BETA,
        {"demo": ALPHA, "stacks": ALPHA},
    )
    yield Kind(
        "Exit codes of a command", "", {str(code.value): code.name.lower().replace("_", " ") for code in CliExit}, BETA
    )
    yield Kind(
        "Exit codes of an agent",
        "[agent.md](agent.md) says what kubelet does with them.",
        {str(code.value): code.name.lower().replace("_", " ") for code in ExitCode},
        BETA,
    )
    yield Kind(
        "Variables of an agent's container",
        "For who writes the container by hand; injection writes them.",
        dict.fromkeys(sorted(name for name in _variables() if not name.startswith(OF_WORKERS)), ""),
        BETA,
        dict.fromkeys(("CHECKS_BEFORE_ANNOUNCE", "GUARDS_AWAITED", "MEMBERS", "FENCE_AFTER_S"), ALPHA),
    )
    yield Kind(
        "Metrics of the controller",
        "[metrics.md](metrics.md) has their labels.",
        dict.fromkeys(sorted({row.name for row in controller_rows()}), ""),
        BETA,
    )
    yield Kind("Metrics of an agent", "", dict.fromkeys(sorted({row.name for row in agent_rows()}), ""), ALPHA)
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "inplace" / "values.yaml").read_text())
    yield Kind(
        "Values of the chart",
        "",
        {name: _words(value) if isinstance(value, dict) else "" for name, value in values.items()},
        BETA,
    )
    written = {key for value in vars(wire).values() if isinstance(value, str) for key in OURS.findall(value)}
    written -= {setting.key for setting in OF_GROUPS}
    written -= {wire.RESTART_IN_PLACE, wire.RESTART_SCOPE, wire.RESTART_REQUESTED, wire.STACKS_REQUESTED}
    yield Kind(
        "Names that only our programs write",
        "On Pods, Jobs and Nodes. Read them, but do not write them.",
        dict.fromkeys(sorted(written | {wire.EPOCH}), ""),
        ALPHA,
        {wire.EPOCH: BETA, wire.MANAGED_BY_US: BETA},
    )


def _status_fields() -> dict[str, str]:
    crd = yaml.safe_load((ROOT / "deploy" / "crd" / "jobsets.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    return dict.fromkeys((name for name in schema if name not in OF_UPSTREAM), "")


def _commands() -> Iterator[tuple[str, str]]:
    group: Any = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        shown = (one for one in command.params if one.param_type_name == "option" and not getattr(one, "hidden", False))
        yield name, _words(max(option.opts, key=len) for option in shown if "--help" not in option.opts)


def _variables() -> set[str]:
    """Return the variables that agents read or set, and those that a script reads."""
    found = set[str]()
    for path in (path for folder in ("agent", "inplace", "common/injection") for path in _sources(ROOT / folder)):
        is_ours = OF_WORKERS if path.name == "rank_variables.py" else ""  # a launcher's names are not ours
        found |= {name for name in VARIABLE.findall(path.read_text()) if name.startswith(is_ours)}
    return found - set(OF_OTHERS.split()) - set(INSIDE)


def _sources(folder: Path) -> Iterator[Path]:
    """Yield a package's own files: links lead to other packages."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _section(kind: Kind) -> str:
    words = f"{kind.words}\n\n" if kind.words else ""
    stages, beside = kind.stages(), any(kind.names.values())
    head = "| name | stage | with it |\n|---|---|---|\n" if beside else "| stage | names |\n|---|---|\n"
    if beside:
        rows = "".join(f"| `{name}` | {stages[name]} | {text} |\n" for name, text in kind.names.items())
    else:
        of_stage = {stage: [name for name in kind.names if stages[name] == stage] for stage in (BETA, ALPHA)}
        rows = "".join(f"| {stage} | {_words(names)} |\n" for stage, names in of_stage.items() if names)
    return f"\n## {kind.title}\n\n{words}{head}{rows}"


if __name__ == "__main__":
    PAGE.write_text(page())
