"""promtool accepts the rules, each alert is tested both ways, and its links and commands exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from grafana.build import BOARDS, FOLDER, PROMETHEUS_RULE, RULES
from grafana.panels import runbook_url
from inplace.cli.main import app
from tests.promtool import verdict

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
TESTS = FOLDER / "rules" / "tests.yaml"
GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS: dict[str, Any] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}

NAMESPACE = "{{ $labels.namespace }}"
JOBSET = "{{ $labels.jobset }}"

alerts = pytest.mark.parametrize("name", ALERTS)


def test_promtool_is_content_with_the_rules() -> None:
    """`promtool check rules` finds every rule and nothing wrong."""
    content, said = verdict("check", "rules", RULES)
    assert content, said
    assert f"{sum(len(group['rules']) for group in GROUPS)} rules found" in said


@pytest.mark.slow
def test_the_rules_do_what_their_tests_say() -> None:
    """`promtool test rules` passes."""
    content, said = verdict("test", "rules", TESTS)
    assert content, said


@pytest.mark.slow
def test_a_rule_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    """The tests of the rules can fail: with another threshold an alert stays silent."""
    (tmp_path / "tests.yaml").write_text(TESTS.read_text())
    text = RULES.read_text()
    assert text.count("count15m) > 3") == 1
    (tmp_path / "inplace.yaml").write_text(text.replace("count15m) > 3", "count15m) > 9"))
    content, said = verdict("test", "rules", tmp_path / "tests.yaml")
    assert not content
    assert "InplaceRestartStorm" in said


@alerts
def test_an_alert_is_tested_firing_and_silent(name: str) -> None:
    """Each alert has a test in which it fires and one in which it does not."""
    cases = [
        case
        for test in yaml.safe_load(TESTS.read_text())["tests"]
        for case in test.get("alert_rule_test", ())
        if case["alertname"] == name
    ]
    assert {bool(case.get("exp_alerts")) for case in cases} == {True, False}


@alerts
def test_an_alert_says_what_to_do(name: str) -> None:
    """Severity, summary, description, a command, and links to a runbook and a board that exist."""
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("warning", "critical")
    said = rule["annotations"]
    assert set(said) == {"summary", "description", "runbook_url", "command", "dashboard_url"}
    assert said["runbook_url"] == runbook_url(name)
    board = re.match(r"/d/([\w-]+)", said["dashboard_url"])
    assert board is not None
    assert board[1] in {each.uid for each in BOARDS}


@alerts
def test_a_runbook_is_written_for_three_in_the_morning(name: str) -> None:
    """A runbook has commands of kubectl or ours, the alert's own first; then the alert's meaning, and the actions."""
    text = (RUNBOOKS / f"{name}.md").read_text()
    assert re.findall(r"^#+ .*", text, re.MULTILINE) == [
        f"# {name}",
        "## What to run",
        "## What it means",
        "## What to do",
    ]
    block = re.search(r"## What to run\n(.*?)\n## ", text, re.DOTALL)
    assert block is not None
    commands = re.findall(r"^    (.+)", block[1], re.MULTILINE)
    assert commands[0] == re.sub(
        r"{{ \$labels\.(\w+) }}", lambda label: label[1].upper(), ALERTS[name]["annotations"]["command"]
    )
    assert {command.split()[0] for command in commands} <= {"kubectl", "inplace"}


@alerts
def test_an_alert_of_a_jobset_names_it_everywhere(name: str) -> None:
    """An alert whose labels name a JobSet has it in its command, and leads to its board with cluster and namespace."""
    rule = ALERTS[name]
    said = rule["annotations"]
    named = re.search(r"by \(cluster, namespace, jobset\b", rule["expr"]) is not None
    assert said["command"].endswith(f"-n {NAMESPACE} {JOBSET}") == named
    assert said["dashboard_url"].startswith(f"/d/inplace-jobset?var-namespace={NAMESPACE}&var-jobset={JOBSET}") == named
    assert ("{{ with $labels.cluster }}" in said["dashboard_url"]) == (name != "InplaceControllerDown")  # has no labels


@pytest.mark.parametrize("page", [*(f"runbooks/{name}.md" for name in ALERTS), "observability.md"])
def test_our_commands_exist(page: str) -> None:
    """Each `inplace VERB` of a page exists and takes the written options."""
    commands: dict[str, Any] = vars(get_command(app))["commands"]
    for verb, options in re.findall(
        r"\binplace ([a-z]+)((?: -{1,2}\w[\w-]*(?: [A-Z]+)?)*)", (RUNBOOKS.parent / page).read_text()
    ):
        assert verb in commands, f"{page}: inplace {verb}"
        known = {flag for parameter in commands[verb].params for flag in parameter.opts}
        assert set(re.findall(r" (--?\w[\w-]*)", options)) <= known, f"{page}: inplace {verb}{options}"


def test_no_runbook_is_left_over() -> None:
    """Every runbook belongs to an alert."""
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(ALERTS)


def test_the_operators_object_holds_the_same_rules() -> None:
    """The PrometheusRule of deploy/overlays is the file of the rules, indented."""
    assert yaml.safe_load(PROMETHEUS_RULE.read_text())["spec"]["groups"] == GROUPS
