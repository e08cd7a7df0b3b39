"""The agent finds the exception that ended a rank of torchrun, and its first one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from inplace.common.wire.last_line import told_line_of
from inplace.common.wire.names import LAST_LINE
from testbed.frameworks.venv import environment
from testbed.ports import free_ports
from tests.agent.supervisor_rig import supervised
from tests.frameworks.training import REPOSITORY

pytestmark = pytest.mark.asyncio

RESTART_S_MAX = 120.0  # torchrun imports torch three times
FAILS = "if os.environ['RANK'] == '1': raise RuntimeError('CUDA error: uncorrectable ECC error\\nmore')\ntime.sleep(60)"
HOOKED = f"import os, time, inplace\ninplace.progress(30)\n{FAILS}\n"
RECORDED = (
    "import os, time\nfrom torch.distributed.elastic.multiprocessing.errors import record\n@record\ndef main():\n    "
    + FAILS.replace("\n", "\n    ").replace("\\n    ", "\\n")
    + "\nmain()\n"
)


@pytest.mark.parametrize("script", [HOOKED, RECORDED], ids=["imports inplace", "is recorded by torchelastic"])
async def test_torchrun_s_rank_that_failed_is_quoted(tmp_path: Path, script: str) -> None:
    """Either way the supervisor announces the line with the next epoch."""
    (tmp_path / "train.py").write_text(script)
    python, (port,) = str(environment("torch") / "bin" / "python3"), free_ports(1)
    launcher = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    epoch_file, command = str(tmp_path / "epoch"), [*launcher, str(tmp_path / "train.py")]
    async with supervised(tmp_path, command, EPOCH_FILE=epoch_file, PYTHONPATH=str(REPOSITORY)) as group:
        assert await group.announced() == 1
        group.show(1, 0)
        async with asyncio.timeout(RESTART_S_MAX):
            while len(group.server.requests("PATCH")) < 2:  # noqa: ASYNC110 - the rig waits for 10 s at most
                await asyncio.sleep(0.1)
        told = json.loads(group.server.requests("PATCH")[1].body)["metadata"]["annotations"]
        words = told_line_of(told[LAST_LINE], 1)
        assert words is not None
        assert words.line == "RuntimeError: CUDA error: uncorrectable ECC error"
