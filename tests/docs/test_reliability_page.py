"""docs/faults.md lists every fault, and docs/reliability.md every property of the campaigns."""

import re

from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.sieve import SITUATIONS
from tests.cli.command import REPOSITORY
from tests.simulator.campaign.properties import properties

PAGE = (REPOSITORY / "docs" / "reliability.md").read_text()
FAULTS_PAGE = (REPOSITORY / "docs" / "faults.md").read_text()


def test_every_fault_is_on_the_page() -> None:
    """The page has exactly the catalogue's faults, in its order, with place and effect."""
    places = {f"| {fault.place.value} |" for fault in CATALOGUE.values()}
    rows = [
        line for line in FAULTS_PAGE.splitlines() if line.startswith("| `") and any(place in line for place in places)
    ]
    assert rows == [f"| `{name}` | {fault.place.value} | {fault.what} |" for name, fault in CATALOGUE.items()]


def test_every_property_is_on_the_page() -> None:
    """The page has exactly the campaign's properties, by the names that a violation prints."""
    rows = re.findall(r"^\| ([SLM]\d+) \|", PAGE.partition("\n## What must hold\n")[2], re.MULTILINE)
    assert sorted(rows) == sorted({rule.split()[0] for rule in properties()})


def test_the_page_counts_the_situations() -> None:
    """The page's number of the sieve's situations is right."""
    assert len(SITUATIONS) == 12
    assert "twelve situations" in PAGE
