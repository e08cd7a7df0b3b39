"""A real Prometheus answers every query, also in the seconds in which two controllers say the same."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from grafana.build import BOARDS, RULES
from grafana.herd import PRIORITY, SERVER
from grafana.shared import QUIET
from testbed.grafana.evaluate import marks, panels, rules
from testbed.grafana.prometheus import Prometheus, prometheus
from testbed.grafana.scene import Played
from tests.grafana.two_controllers import exposed
from tests.promtool import require

SCRAPED_S_MAX = 60.0
SAMPLES = 4  # a rate over four scrapes then has two samples

pytestmark = pytest.mark.asyncio


async def until_scraped(running: Prometheus) -> None:
    """Wait until every target was scraped often enough, and every rule was evaluated."""
    async with asyncio.timeout(SCRAPED_S_MAX):
        while True:
            counts = await running.instant("min(count_over_time(up[5m]))", time.time())
            evaluated = [rule["health"] for rule in await running.rules()]
            if counts and float(counts[0]["value"][1]) >= SAMPLES and "unknown" not in evaluated:
                return
            await asyncio.sleep(0.2)


async def asked(folder: Path, *, quiet: bool, holds: frozenset[str]) -> list[str]:
    """Return what is wrong with the answers to all panels and rules about two controllers, and a JobSet of theirs."""
    program = require("prometheus", shutil.which("prometheus"))
    async with exposed(quiet=quiet) as jobs:
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": jobs,
        }
        start_s = time.time()
        async with prometheus(program, folder, config) as running:
            await until_scraped(running)
            played = Played(running, start_s, time.time(), holds)
            answers = [answer async for answer in panels(played)] + [answer async for answer in rules(played)]
            for board in BOARDS:
                await marks(played, board)  # raises if it is refused
    assert len(answers) > len(jobs)
    return [f"{answer.where}, {answer.what}: {answer.fault}" for answer in answers if answer.fault]


@pytest.mark.slow
async def test_every_query_is_answered_while_the_leader_changes(tmp_path: Path) -> None:
    """While the leader changes no expression is refused, no rule is unhealthy, and no required panel is empty."""
    assert await asked(tmp_path, quiet=False, holds=frozenset({SERVER, PRIORITY, QUIET})) == []


@pytest.mark.slow
async def test_where_nothing_restarted_an_empty_panel_says_so(tmp_path: Path) -> None:
    """A panel that is empty because nothing restarted has words for it, and does not blame Prometheus."""
    texts = {panel.empty for board in BOARDS for panel in board.panels if panel.empty}
    wrong = await asked(tmp_path, quiet=True, holds=frozenset(texts))
    assert [each for each in wrong if not each.startswith("rule: ")] == []  # recordings are of restarts
