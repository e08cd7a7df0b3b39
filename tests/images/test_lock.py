"""Each image gets its program's dependencies, by hash, and nothing else."""

import ast
import json
import sys
from pathlib import Path

import pytest

from images.lock import ROOTS, needed, packages
from images.sbom import project_version, sbom

REPOSITORY = Path(__file__).parents[2]
LOCK = (REPOSITORY / "requirements.lock").read_text()
DISTRIBUTIONS = {"re2": "google-re2", "yaml": "pyyaml", "kubernetes_asyncio": "kubernetes-asyncio"}
OWN = {"inplace"}
DEVELOPMENT = {"pytest", "mypy", "ruff", "hypothesis", "typer", "rich", "common-expression-language"}


def imported(folders: list[str]) -> set[str]:
    """Return the distributions that the modules of some folders import."""
    names = set()
    for path in (path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    foreign = names - set(sys.stdlib_module_names) - OWN
    return {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in foreign}


def test_the_controller_has_everything_that_it_imports() -> None:
    """Every package that the controller imports is in its image's list."""
    assert imported(["controller", "common"]) <= set(ROOTS["controller"])


def test_the_agent_has_everything_that_it_imports() -> None:
    """Every package that the agent imports is in its image's list; common's controller-only modules do not count."""
    assert imported(["agent"]) <= set(ROOTS["agent"])


@pytest.mark.parametrize("program", ROOTS)
def test_what_is_needed_is_complete_and_no_more(program: str) -> None:
    """Each list has all dependencies of its packages with hashes, and no development tool."""
    chosen = {package.name: package for package in needed(LOCK, program)}
    for package in packages(LOCK).values():
        assert (package.name in chosen) == bool(package.name in ROOTS[program] or package.via & set(chosen))
    assert all(package.hashes for package in chosen.values())
    assert not DEVELOPMENT & set(chosen)


def test_the_agent_needs_three_packages() -> None:
    """The agent's image has three packages, as its docs promise."""
    assert [package.name for package in needed(LOCK, "agent")] == ["prometheus-client", "pyyaml", "structlog"]


def test_what_is_no_lock_file_is_refused() -> None:
    """A file that is no lock file is refused."""
    with pytest.raises(ValueError, match=r"pass requirements\.lock"):
        packages("hello\n")


@pytest.mark.parametrize("program", ROOTS)
def test_the_bill_of_materials_states_what_is_installed(program: str) -> None:
    """Components, versions and hashes are the lock file's, every dependency is a component, and a second run agrees."""
    document = sbom(program, LOCK, project_version())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert {(each["name"], each["version"]) for each in document["components"]} == {
        (package.name, package.version) for package in needed(LOCK, program)
    }
    references = {each["bom-ref"] for each in document["components"]}
    assert {other for each in document["dependencies"] for other in each["dependsOn"]} <= references
    assert json.dumps(document) == json.dumps(sbom(program, LOCK, project_version()))


def test_what_make_runs_is_locked() -> None:
    """Every `pip install` of the Makefile takes hashes or takes no package; uv, which writes the lock, is in it."""
    makefile = (REPOSITORY / "Makefile").read_text().replace("\\\n", "")
    installs = [line for line in makefile.splitlines() if "pip install" in line and not line.startswith(("#", "\t#"))]
    assert installs
    assert [line for line in installs if not {"--require-hashes", "--no-deps"} & set(line.split())] == []
    assert "uv" in packages(LOCK)
