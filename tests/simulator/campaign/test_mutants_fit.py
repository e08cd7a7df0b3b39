"""Each planted bug of the campaign fits the code as it is."""

from __future__ import annotations

import pytest

from tests.mistakes.mistake import planted
from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_still_fits(mutant: Mutant) -> None:
    """Each mistake has its function's parameters, changes its code, and gives it back; another one is an error."""
    functions = [mistake.function for mistake in mutant.mistakes]
    codes = [function.__code__ for function in functions]
    assert functions
    with planted(*mutant.mistakes):
        assert all(function.__code__ not in codes for function in functions)
    assert [function.__code__ for function in functions] == codes
