"""Each file of `manifests/` gets from each tool what `expected.toml` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases.case import Case, cases, differences, seen


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.file.stem)
def test_case(case: Case, tmp_path: Path) -> None:
    """Lint, inject, the embedded API server and a modelled demo do what is expected, and say the words."""
    assert differences(case, seen(case.file, tmp_path)) == []
