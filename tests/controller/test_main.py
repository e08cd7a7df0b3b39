"""The program: flags, exit codes, probes and metrics."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from inplace.common.protocol.decision import PodCounts
from inplace.common.protocol.members import Sizes
from inplace.controller.main import ExitCode, _config, _parser, main
from inplace.controller.metrics import LiveCollector, Metrics
from inplace.controller.tracking.counts import GroupCount, summed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--leader"], "unrecognized arguments: --leader"),
        (["--workers", "0"], "at least 1"),
        (["--log-level", "loud"], "loud"),
        *(
            (["--metrics-bind-address", address], f"expected HOST:PORT with a port of at most 65535, saw '{address}'")
            for address in ("8080", "host:", "host:65536", "host:x", "[::1]")
        ),
    ],
)
def test_a_bad_argument_is_refused(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown flag is named, a bad value with what was expected; the controller does not start."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == ExitCode.USAGE
    assert words in capsys.readouterr().err


@pytest.mark.asyncio
async def test_without_a_cluster_it_ends_with_a_clear_line(tmp_path: Path) -> None:
    """Without a kubeconfig the program logs one JSON line with the cure and exits with its own code."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "inplace.controller.main",
        "--kubeconfig",
        str(tmp_path / "none"),
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    _, errors = await process.communicate()
    assert process.returncode == ExitCode.CONFIGURATION
    line = json.loads(errors)
    assert line["event"] == "setting_refused"
    assert "expected a kubeconfig at" in line["message"]


@pytest.mark.asyncio
async def test_a_signal_ends_it_while_the_server_is_unreachable(tmp_path: Path) -> None:
    """While the server is unreachable the log repeats it; SIGTERM ends the program with 143."""
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "inplace.controller.main", "--kubeconfig", str(path)),
        *("--probe-bind-address", "127.0.0.1:0", "--metrics-bind-address", "127.0.0.1:0"),
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"POD_NAMESPACE": "default"},
    )
    assert process.stderr is not None
    async with asyncio.timeout(30):
        while b"leadership_not_acquired" not in (line := await process.stderr.readline()):
            assert line, "the controller ended early"
    assert "cannot connect to 127.0.0.1:1" in json.loads(line)["message"]
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        assert await process.wait() == 128 + signal.SIGTERM


def test_the_program_measures_its_pauses_and_looks_at_its_installation() -> None:
    """Without the one the alert on pauses is silent for ever, without the other nobody is told what is missing."""
    config = _config(_parser().parse_args([]))
    assert config.on_cluster


def test_metrics_of_a_group_count_its_pods() -> None:
    """Running, waiting, restarting and missing Pods add up to the expected ones; a restart in progress is shown."""
    metrics = Metrics()
    count = GroupCount("ns", "js", "", expected=10, standing=PodCounts(0, 6, 1, 3), synced=2, deprecated=2)
    spared = GroupCount("ns", "k", "w", 8, PodCounts(8, 0, 0, 0, 1), 2, 1, sizes=Sizes(6, 8), spares_max=2)
    alone = replace(count, jobset="k", scope="v")
    groups = [count, spared, replace(summed([spared, alone]), scope="all")]
    metrics.registry.register(LiveCollector(lambda: groups, lambda: [1.0, 2.0], lambda: [("Pod", 3.0)]))
    text = metrics.text().decode()
    assert 'inplace_pods{namespace="ns",jobset="js",scope="",state="missing"} 3.0' in text
    assert 'inplace_restart_in_progress{namespace="ns",jobset="js",scope=""} 1.0' in text
    assert 'inplace_pods{namespace="ns",jobset="js",scope="",state="spare"}' not in text
    assert 'inplace_restart_in_progress{namespace="ns",jobset="k",scope="w"} 0.0' in text
    for scope, least, most in (("w", 6, 8), ("all", 16, 18)):
        labels = f'namespace="ns",jobset="k",scope="{scope}"'
        assert f'inplace_pods{{{labels},state="spare"}} 1.0' in text
        assert f'inplace_members{{{labels},which="max"}} {most}.0' in text
        assert f'inplace_members{{{labels},which="min"}} {least}.0' in text
        assert f"inplace_spares_expected{{{labels}}} 2.0" in text
    assert 'workqueue_unfinished_work_seconds{name="jobset"} 3.0' in text
    assert 'inplace_watch_staleness_seconds{kind="Pod"} 3.0' in text


def test_a_forgotten_jobset_leaves_no_series() -> None:
    """Every series with a forgotten JobSet's name is deleted, whether it was set or not."""
    metrics = Metrics()
    metrics.restarts.labels("ns", "js", "finished", "manual").inc()
    metrics.failed.labels("js", "ns").inc()
    metrics.forget("ns", "js")
    metrics.forget("ns", "never-seen")
    assert b"js" not in b"".join(line for line in metrics.text().splitlines() if line.startswith(b"inplace_group"))
    assert b'jobset_name="js"' not in metrics.text()
