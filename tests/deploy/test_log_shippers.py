"""The recipes for log shippers: Lua code runs under a real Lua, and Promtail's rules pass Prometheus' own parser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from inplace.agent.report.log_line import log_line
from inplace.agent.worker.host import STARTING
from inplace.common.wire import names as wire
from tests.promtool import verdict

FOLDER = Path(__file__).parents[2] / "deploy" / "logs"
LUA = shutil.which("lua5.1")
FLUENT_BIT = """
for line in io.lines() do
    local log, text = line:match("^(%S+) (.*)$")
    local code, _, record = fluent_bit(log, 0, {log = text})
    print(code, record.inplace_epoch)
end
"""
VECTOR = """
for line in io.lines() do
    local log, text = line:match("^(%S+) (.*)$")
    vector({log = {file = log, message = text}}, function(event) print(2, event.log.inplace_epoch) end)
end
"""


def lua(program: str, lines: list[str]) -> list[str]:
    """Run a program after epoch.lua; return what it prints.

    Without Lua the test is skipped; in CI it fails, because a green run must mean that the test ran.
    """
    if LUA is None:
        missing = "lua5.1 is not on PATH; it is in Debian's package lua5.1"
        if os.environ.get("CI") == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    words = [LUA, "-e", f"package.path = '{FOLDER}/?.lua'; require('epoch')\n{program}"]
    done = subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def starting(epoch: int | None) -> str:
    """Return the line that a guard writes before a worker's start."""
    return log_line(0.0, "info", STARTING, {"epoch": epoch})


@pytest.mark.parametrize("program", [FLUENT_BIT, VECTOR], ids=["fluent-bit", "vector"])
def test_each_line_has_the_epoch_of_the_start_before_it(program: str) -> None:
    """Each container's log for itself; nothing before the first mark, and a mark without a number changes nothing."""
    lines = ["a loss 1", f"a {starting(3)}", "a loss 2", "b loss 3", f"b {starting(12)}", "b loss 4"]
    lines += [f"a {starting(None)}", "a worker_starting epoch 9", f"a {starting(4)}"]
    epochs = [None, 3, 3, None, 12, 12, 3, 3, 4]
    assert lua(program, lines) == [f"2\t{epoch if epoch is not None else 'nil'}" for epoch in epochs]


def test_what_is_remembered_is_bounded() -> None:
    """A node that ran 5,000 containers forgets; a log's next start is known again."""
    lines = [f"log-{number} {starting(7)}" for number in range(4_097)] + ["log-0 x", "log-4096 x"]
    assert lua(FLUENT_BIT, lines)[-2:] == ["2\tnil", "2\t7"]


def test_the_configurations_name_what_there_is() -> None:
    """The functions of epoch.lua, and the annotation and labels of a JobSet's Pods."""
    fluent_bit, vector, promtail = (load(name) for name in ("fluent-bit", "vector", "promtail"))
    script = (FOLDER / "epoch.lua").read_text()
    step = fluent_bit["pipeline"]["filters"][0]
    assert (step["script"], f"function {step['call']}(" in script) == ("epoch.lua", True)
    assert f"function {vector['transforms']['epoch']['hooks']['process']}(" in script
    sources = {one for rule in rules(promtail) for one in rule["source_labels"]}
    for kind, name in (("annotation", wire.EXECUTION_ATTEMPT), ("label", wire.JOBSET_NAME)):
        assert f"__meta_kubernetes_pod_{kind}_{name.replace('.', '_').replace('/', '_').replace('-', '_')}" in sources


def test_promtail_s_rules_are_relabel_rules(tmp_path: Path) -> None:
    """Promtail takes relabelling from Prometheus, whose own program checks them (Debian's knows no Kubernetes)."""
    written, found = tmp_path / "prometheus.yaml", load("promtail")
    del found["scrape_configs"][0]["kubernetes_sd_configs"]
    for action, is_right in (("keep", True), ("kept", False)):
        rules(found)[0]["action"] = action
        written.write_text(json.dumps(found))
        assert verdict("check", "config", "--syntax-only", written)[0] is is_right


def load(name: str) -> dict[str, Any]:
    """Return a configuration."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return found


def rules(promtail: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the relabel rules."""
    found: list[dict[str, Any]] = promtail["scrape_configs"][0]["relabel_configs"]
    return found
