"""docs/lint.md lists every rule, and docs/manifests.md every option of inject."""

from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.pieces import Reason
from tests.cli.command import REPOSITORY, subcommands

PAGE = (REPOSITORY / "docs" / "manifests.md").read_text()
RULES_PAGE = (REPOSITORY / "docs" / "lint.md").read_text()


def test_every_rule_is_on_the_page() -> None:
    """The page has exactly the catalogue's rules, and what a template's differences cost, in their order."""
    rows = [line for line in RULES_PAGE.splitlines() if line.startswith("| `") and line.count("|") == 4]
    assert [row for row in rows if "| error |" in row or "| warning |" in row] == [
        f"| `{name}` | {rule.severity} | {rule.why} |" for name, rule in RULES.items()
    ]
    costs = [line for line in RULES_PAGE.splitlines() if line.startswith(("| error |", "| warning |"))]
    assert costs == [f"| {reason.severity} | {reason.why} |" for reason in Reason]


def test_every_option_of_inject_is_on_the_page() -> None:
    """The page has exactly the options of inject."""
    options = {word for option in subcommands()["inject"].params for word in option.opts if word.startswith("--")}
    assert options - {"--file", "--output", "--namespace"} <= {word.strip("`,;().") for word in PAGE.split()} | {
        "--quiet"
    }
