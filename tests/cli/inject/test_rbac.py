"""The agents' account and rights stand before the manifest, alone, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from inplace.cli.inject.inject import Rbac, run_inject
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.injection.pod import InjectOptions
from tests.cli.injecting import EXAMPLES, example, saved

KINDS = {
    "both": ["ServiceAccount", "Role", "RoleBinding", "RoleBinding", "JobSet"],
    "none": ["JobSet"],
    "only": ["ServiceAccount", "Role", "RoleBinding", "RoleBinding"],
}


@pytest.mark.parametrize("rbac", get_args(Rbac))
def test_what_is_printed(rbac: Rbac, capsys: pytest.CaptureFixture[str]) -> None:
    """Each choice prints its objects, as YAML and as JSON."""
    for output in ("yaml", "json"):
        assert run_inject(str(EXAMPLES / "minimal.yaml"), InjectOptions(), output=output, diff=False, rbac=rbac) == 0
        text = capsys.readouterr().out
        found = json.loads(text) if output == "json" else None
        objects = list(parse(text)) if found is None else found.get("items", [found])
        assert [obj["kind"] for obj in objects] == KINDS[rbac]


def test_a_generated_name_gets_the_two_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A JobSet with generateName beside the account gets a note with both commands, and none with --rbac none."""
    file = saved(tmp_path, example("minimal.yaml").replace("name: minimal", "generateName: minimal-"))
    assert run_inject(file, InjectOptions(), output="yaml", diff=False, quiet=True) == 0
    assert "`inject --rbac only | kubectl apply -f -`" in capsys.readouterr().err
    assert run_inject(file, InjectOptions(), output="yaml", diff=False, quiet=True, rbac="none") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "generateName: minimal-" in printed.out
