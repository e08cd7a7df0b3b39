"""What inject prints goes through kustomize with a prefix: with the page's configuration all names agree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from inplace.cli.inject.inject import inject
from inplace.cli.lint.lint import _judged, lint
from inplace.cli.manifests.documents import read_stream
from inplace.cli.manifests.text import dump
from inplace.common.injection.pod import InjectOptions
from testbed.kubectl import need_kubectl
from tests.cli.command import REPOSITORY
from tests.cli.injecting import EXAMPLES

PAGE = (REPOSITORY / "docs" / "manifests.md").read_text()


@pytest.mark.parametrize(("with_names", "rules"), [(True, []), (False, ["account-missing"])])
def test_kustomize_renames_all_or_lint_says_so(tmp_path: Path, with_names: bool, rules: list[str]) -> None:
    """Account, Role and bindings keep together; without the configuration lint names the account."""
    need_kubectl()
    documents, objects = inject(read_stream(str(EXAMPLES / "minimal.yaml")).documents, InjectOptions())
    (tmp_path / "injected.yaml").write_text(dump([*objects, *documents]))
    (names,) = re.findall("```yaml\n(nameReference:.*?)```", PAGE, re.DOTALL)
    (tmp_path / "names.yaml").write_text(names)
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [injected.yaml]\nnamePrefix: team-a-\n" + ("configurations: [names.yaml]\n" if with_names else "")
    )
    done = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    (tmp_path / "built.yaml").write_text(done.stdout)
    (report,) = _judged(lint(read_stream(str(tmp_path / "built.yaml"))))
    assert [finding.rule for finding in report.findings] == rules
    assert ("serviceAccountName: team-a-inplace-agent" in done.stdout) is with_names
    assert ("- team-a-minimal" in done.stdout) is with_names
