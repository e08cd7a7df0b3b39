"""The dashboards are their builder's output, query only existing metrics, and have no broken links."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana.build import BOARDS, FOLDER, RULES, files, main, path_of
from grafana.panels import DOCS_URL, Board, Panel
from grafana.promql import concrete
from inplace.agent.report.exposition import render
from inplace.agent.report.metrics import AgentMetrics
from inplace.common.jobset.causes import Failure, Trigger
from inplace.common.jobset.failure_class import FailureClass
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.goodput import Goodput
from inplace.common.jobset.verdict import Verdict
from inplace.common.protocol.decision import PodCounts
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.protocol.members import Sizes
from inplace.common.wire.phases import RestartPhase
from inplace.controller.metrics import LiveCollector, Metrics
from inplace.controller.tracking.counts import GroupCount, JobSetCount
from tests.promtool import verdict

ROOT = Path(__file__).parents[2]
PANELS = [pytest.param(panel, id=f"{board.uid}: {panel.title}") for board in BOARDS for panel in board.panels]
_WORDS = re.compile(r"\b(?:inplace|workqueue|rest_client|leader_election|controller_runtime|process|jobset)_[a-z_]+")

boards = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


def controller_metrics() -> Metrics:
    """Return a controller's metrics with a sample of each."""
    metrics = Metrics()
    failure = Failure("train-w-0-0-abcde", "node-1", "worker", 1, "Error")
    silent = FurthestBehind(("train-w-0-0-abcde",), 1, LastProgress(3, 4.0))
    whole = JobSetCount("ns", "train", 3, 2, 1.0, Verdict(FailureClass.CODE, failure), silent)
    count = GroupCount("ns", "train", "", 8, PodCounts(8, 0, 0, 0), 1, 0, 0.0, whole, Goodput(1, 90.0, 6.0, 4.0))
    count = replace(count, sizes=Sizes(6, 8), spares_max=1)
    metrics.registry.register(LiveCollector(lambda: [count], list, lambda: [("pods", 0.0)]))
    metrics.last_restart_seconds.labels("ns", "train").set(1)
    metrics.restarts.labels("ns", "train", "finished", "worker_exit").inc()
    metrics.restart_seconds.labels("worker_exit").observe(1)
    for counter in (metrics.lost_pod_seconds, metrics.deadlines, metrics.barrier_recreations):
        counter.labels("ns", "train").inc()
    metrics.escalation_steps.labels("ns", "train", "InPlace").inc()
    metrics.notices.labels("ns", "train", "loss").inc()
    metrics.node_verdicts.labels("ns", "train", "NodeAvoided").inc()
    metrics.verdicts.labels("ns", "train", "code").inc()
    metrics.restart_phase_seconds.labels("sync").observe(1)
    metrics.pod_phase_seconds.labels("view").observe(0.1)
    metrics.requests.labels("200", "GET", "server").inc()
    metrics.is_leader.labels("x").set(1)
    metrics.reconciles.labels("jobset", "success").inc()
    metrics.reconcile_errors.labels("jobset").inc()
    metrics.reconcile_seconds.labels("jobset").observe(0.1)
    metrics.active_workers.labels("jobset").set(0)
    metrics.workers_max.labels("jobset").set(4)
    metrics.watch_endings.labels("pods", "closed").inc()
    return metrics


def exposed_names() -> set[str]:
    """Return the names of all samples that controller and agent expose."""
    agent = AgentMetrics()
    agent.requests["watch", "ok"] += 1
    agent.watch_endings["closed"] += 1
    agent.wait("watch", "busy", 1.0, throttled=True)
    agent.observe(RestartPhase.VIEW, 0.1)
    text = (controller_metrics().text() + render(agent)[1]).decode()
    return {re.split(r"[{ ]", line, maxsplit=1)[0] for line in text.splitlines() if not line.startswith("#")}


def test_closed_sets_are_exposed_from_the_start() -> None:
    """Series of closed label sets start at 0, so that Prometheus sees the first restart or phase as an increase."""
    fresh = Metrics().text().decode()
    for trigger in Trigger:
        assert f'inplace_group_restart_duration_seconds_count{{trigger="{trigger.value}"}} 0.0' in fresh
    phases = {phase.value for phase in RestartPhase}
    assert set(re.findall(r'inplace_pod_restart_phase_duration_seconds_count{phase="(\w+)"} 0.0', fresh)) == phases
    found = set(re.findall(r'inplace_group_restart_phase_duration_seconds_count{phase="(\w+)"} 0.0', fresh))
    assert found == {"detect", "deprecate", "announce", "sync", "lift"}


def rules() -> list[dict[str, Any]]:
    """Return every rule."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_the_files_are_what_the_builder_writes() -> None:
    """`python -m grafana.build` (or `make rewrite`) would change nothing, and no board is left over."""
    made = files()
    assert [path.name for path, text in made.items() if path.read_text() != text] == [], "run: make rewrite"
    assert set((FOLDER / "dashboards").iterdir()) == {path_of(board) for board in BOARDS}


def test_links_lead_where_the_documentation_is_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With another documentation address only the links change; an incomplete address is refused."""
    main(["--docs-url", "https://docs.example.com/inplace/", "--to", str(tmp_path)])
    originals = [*files(), RULES]
    written = {path.name: path.read_text() for path in tmp_path.rglob("*.*")}
    assert set(written) == {path.name for path in originals}
    for path in originals:
        assert "https://docs.example.com/inplace/" in written[path.name]
        assert written[path.name].replace("https://docs.example.com/inplace", DOCS_URL) == path.read_text()
    with pytest.raises(SystemExit):
        main(["--docs-url", "https://docs.example.com/inplace"])
    assert "--to FOLDER together" in capsys.readouterr().err


def test_every_metric_in_a_query_exists() -> None:
    """Every metric of a panel or rule is exposed by one of the programs; another test checks the API server's."""
    asked = [query.expr for board in BOARDS for panel in board.panels for query in panel.queries]
    asked += [rule["expr"] for rule in rules()] + [mark["expr"] for board in BOARDS for mark in board.annotations]
    recorded = {re.sub(r"^.*?:|:.*$", "", rule["record"]) for rule in rules() if "record" in rule}
    names = {word for expr in asked for word in _WORDS.findall(re.sub(r"[\w]*:[\w:]*", "", expr))}
    assert len(names) > len(BOARDS)
    assert names - exposed_names() - recorded == set()


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    """Each expression of each panel and annotation is PromQL; promtool checks it in the form of a rule."""
    panels = [query.expr for board in BOARDS for panel in board.panels for query in panel.queries]
    marks = [mark["expr"] for board in BOARDS for mark in board.annotations]
    checked = [{"record": f"query:{i}", "expr": concrete(expr)} for i, expr in enumerate(panels + marks)]
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps({"groups": [{"name": "all", "rules": checked}]}))
    content, said = verdict("check", "rules", path)
    assert content, said
    assert f"{len(checked)} rules found" in said


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_explains_itself(panel: Panel) -> None:
    """A panel has a description, a unit, the meaning of an empty panel, and an existing runbook."""
    drawn = panel.render()
    defaults = drawn["fieldConfig"]["defaults"]
    assert panel.description.endswith(".")
    assert defaults["unit"]
    assert defaults["noValue"]
    page = drawn["links"][0]["url"].removeprefix(f"{DOCS_URL}/").removesuffix(".html")
    assert (ROOT / "docs" / f"{page}.md").is_file()


@pytest.mark.parametrize("panel", PANELS)
def test_one_query_of_a_panel_always_answers(panel: Panel) -> None:
    """A panel whose queries may all be empty would be empty without words for it: then the panel gives the reason."""
    assert not all(query.empty for query in panel.queries)


@boards
def test_places_do_not_overlap(board: Board) -> None:
    """Ids and titles are unique, and no cell of the grid belongs to two panels or lies outside of it."""
    assert len({panel.title for panel in board.panels}) == len(board.panels)
    panels = json.loads(path_of(board).read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@boards
def test_no_data_source_is_fixed_and_every_variable_is_declared(board: Board) -> None:
    """A board works with any data source, and each $name is a variable of it or Grafana's own."""
    text = path_of(board).read_text()
    drawn = json.loads(text)
    assert set(re.findall(r'"uid": "([^"]*)"', text)) == {"${datasource}", board.uid}
    declared = {each["name"] for each in drawn["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", " ".join(re.findall(r'"(?:expr|url|query)": "((?:[^"\\]|\\.)*)"', text))))
    assert used <= declared | {"cluster"}
    assert declared >= {"datasource", "cluster"}


@boards
def test_boards_lead_to_each_other(board: Board) -> None:
    """All have the tag by which the links at the top find them, and links with a path name a board that exists."""
    drawn = json.loads(path_of(board).read_text())
    assert {tag for link in drawn["links"] for tag in link.get("tags", [])} <= set(drawn["tags"])
    named = set(re.findall(r'"/d/([\w-]+)', path_of(board).read_text()))
    assert named <= {each.uid for each in BOARDS}


@boards
def test_a_board_leads_to_the_page_for_the_one_on_call(board: Board) -> None:
    """The links at the top lead to existing pages, On call first, and keep range and variables between boards."""
    links = json.loads(path_of(board).read_text())["links"]
    between = next(link for link in links if link["type"] == "dashboards")
    assert between["includeVars"]
    assert between["keepTime"]
    pages = [link["url"].removeprefix(f"{DOCS_URL}/").removesuffix(".html") for link in links if link["type"] == "link"]
    assert pages[0] == "on-call"
    assert all((ROOT / "docs" / f"{page}.md").is_file() for page in pages)


@boards
def test_what_names_a_jobset_leads_to_its_board(board: Board) -> None:
    """A row or series of a JobSet opens its board, with data source, cluster and range of the board that it is on."""
    (target,) = (each for each in BOARDS if each.uid == "inplace-jobset")
    known = {each["name"] for each in target.variables}
    for panel in board.panels:
        legends = " ".join(query.legend for query in panel.queries)
        per_jobset = "{{namespace}}/{{jobset}}" in legends or (
            panel.kind == "table" and "namespace" in panel.queries[0].expr
        )
        assert panel.names_jobsets == per_jobset, panel.title
        for link in panel.render()["fieldConfig"]["defaults"].get("links", []):
            path, _, parameters = link["url"].partition("?")
            assert path == f"/d/{target.uid}"
            assert set(re.findall(r"var-(\w+)=", parameters)) == {"namespace", "jobset"} <= known
            assert {"${datasource:queryparam}", "${cluster:queryparam}", "${__url_time_range}"} <= set(
                parameters.split("&")
            )


@boards
def test_a_board_opens_with_a_range_that_has_the_alerts_window(board: Board) -> None:
    """A board that an alert leads to shows at first all that the alert has counted; none asks Prometheus too often."""
    drawn = json.loads(path_of(board).read_text())
    assert drawn["time"] == {"from": f"now-{board.since}", "to": "now"}
    assert _seconds(drawn["refresh"]) >= 30
    leading = [rule for rule in rules() if f"/d/{board.uid}" in rule.get("annotations", {}).get("dashboard_url", "")]
    windows = [window for rule in leading for window in re.findall(r"\[(\w+)\]|count(\d+m)|p99_(\d+m)", rule["expr"])]
    assert all(_seconds("".join(window)) <= _seconds(board.since) for window in windows)


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


@pytest.mark.parametrize("kind", ["podmonitor", "servicemonitor"])
def test_a_monitor_keeps_the_labels_that_boards_ask_for(kind: str) -> None:
    """Without honorLabels the Operator's namespace, the controller's, would displace the JobSet's."""
    monitor = yaml.safe_load((ROOT / "deploy" / "overlays" / kind / f"{kind}.yaml").read_text())
    endpoints = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
    assert [endpoint.get("honorLabels") for endpoint in endpoints] == [True]
