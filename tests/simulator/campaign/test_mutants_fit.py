"""Each planted bug of the campaign fits the code as it is."""

from __future__ import annotations

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_still_fits(mutant: Mutant) -> None:
    """Each replaced text occurs once, and the result compiles."""
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        text = texts.setdefault(edit.path, (ROOT / edit.path).read_text())
        assert text.count(edit.old) == 1, f"{edit.path}: {edit.old!r} occurs {text.count(edit.old)} times"
        texts[edit.path] = text.replace(edit.old, edit.new)
    for path, text in texts.items():
        compile(text, path, "exec")
