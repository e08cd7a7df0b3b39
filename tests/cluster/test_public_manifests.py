"""The manifests that upstream and Trainer publish go through lint, inject, an API server and the demo."""

from testbed.binaries import Binaries
from tests.cases.public import report


def test_each_restarts_or_says_why_not(binaries: Binaries) -> None:
    """Each is taken and restarts in place, or the demo says in one sentence why not; pytest -s prints the table."""
    printed, wrong = report()
    print(printed)
    assert (wrong, printed.count(" restarts") >= 30) == ([], True)
