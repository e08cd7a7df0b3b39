"""`make test` and `make test-sim` draw the same examples each time."""

from __future__ import annotations

import pytest
from hypothesis import settings


@pytest.mark.parametrize("name", ["quick", "thorough"])
def test_a_profile_of_the_tests_draws_the_same_examples_each_time(name: str) -> None:
    """They follow from the test alone, and no earlier run's failures come first."""
    profile = settings.get_profile(name)
    assert profile.derandomize
    assert profile.database is None


def test_the_quick_profile_is_the_default() -> None:
    """Whoever runs pytest by hand gets what `make test` runs."""
    assert settings().max_examples == settings.get_profile("quick").max_examples
    assert settings().derandomize
