"""A new user follows "With JAX": what its commands change is there to be changed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import yaml

from tests.cli.command import REPOSITORY

PAGE = (REPOSITORY / "docs" / "with-jax.md").read_text()
EXAMPLES = REPOSITORY / "examples"


def test_the_copied_manifest_runs_the_copied_script(tmp_path: Path) -> None:
    """The page's sed puts the user's own script into the command; without it the demo would run the package's."""
    for file in EXAMPLES.glob("jax*"):
        shutil.copy(file, tmp_path)
    (command,) = re.findall(r"^    (sed -i .* jax\.yaml)$", PAGE, re.MULTILINE)
    subprocess.run(["sh", "-c", command], check=True, cwd=tmp_path)
    words = [_command(folder / "jax.yaml") for folder in (EXAMPLES, tmp_path)]
    assert words[0][-2:] == ["-m", "inplace.examples.jax_train"]
    assert words[1] == [*words[0][:-2], str(tmp_path / "jax_train.py")]


def test_the_script_s_variables_are_told() -> None:
    """Each variable that a user must add to a manifest of his own is one that the script reads."""
    told = set(re.findall(r"^ +- \{name: ([A-Z_]+), ", PAGE, re.MULTILINE))
    read = set(re.findall(r"[\"']([A-Z_]+)[\"']", (EXAMPLES / "jax_train.py").read_text()))
    assert {"COORDINATOR", "WORLD_SIZE", "CHECKPOINT_DIR"} <= told <= read


def _command(file: Path) -> list[str]:
    (jobset,) = [each for each in yaml.safe_load_all(file.read_text()) if each["kind"] == "JobSet"]
    (worker,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    words: list[str] = worker["command"]
    return words
