"""What the end of a check says, what is kept of its output, and where its reason goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inplace.agent.settings.exit_code import ExitCode
from inplace.agent.worker.check import OUTPUT_BYTES_MAX, CheckResult, Output, leave_reason, reason_of, result_of
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE


@pytest.mark.parametrize(
    ("code", "joins_unanswered", "result"),
    [
        (0, False, CheckResult(joins=True)),
        (1, True, CheckResult(joins=False, problem="it ended with exit code 1")),
        (137, True, CheckResult(joins=False, problem="it ended with exit code 137")),
        (None, True, CheckResult(joins=True, problem="it did not end within 1.5 s, and was killed")),
        (None, False, CheckResult(joins=False, problem="it did not end within 1.5 s, and was killed")),
        (126, True, CheckResult(joins=True, problem="it cannot be run: exit code 126")),
        (127, False, CheckResult(joins=False, problem="it cannot be run: exit code 127")),
    ],
)
def test_a_check_that_answers_decides(code: int | None, joins_unanswered: bool, result: CheckResult) -> None:
    """Only what hangs or cannot be run leaves it to the setting."""
    assert result_of(code, 1.5, joins_unanswered=joins_unanswered) == result


def test_the_last_of_the_output_is_kept(tmp_path: Path) -> None:
    """However much there is; what is no UTF-8 becomes a sign."""
    (tmp_path / "output").write_bytes(b"x" * 1_000_000 + b"\xff GPU 3: ECC error\n")
    output = Output()
    descriptor = os.open(tmp_path / "output", os.O_RDONLY)
    while output.read(descriptor):
        pass
    os.close(descriptor)
    assert output.text.endswith("x\ufffd GPU 3: ECC error")
    assert len(output.text) == OUTPUT_BYTES_MAX - 1  # the line's end is cut


def test_an_empty_pipe_holds_nothing_up() -> None:
    """A process that is left keeps the pipe open: there is nothing more to wait for."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.write(write_end, b"one\n")
    output = Output()
    output.drain(read_end)
    output.drain(read_end)
    assert output.text == "one"
    os.close(write_end)
    output.drain(read_end)
    os.close(read_end)


def test_the_reason_goes_where_kubelet_looks(tmp_path: Path) -> None:
    """In at most the 4096 bytes that it takes, and only into a file that is there."""
    path = tmp_path / "termination-log"
    leave_reason("lost", str(path))
    assert not path.exists()
    path.write_text("older and longer than what comes")
    leave_reason(reason_of(CheckResult(joins=False, problem="it ended with exit code 1"), "GPU 3"), str(path))
    assert path.read_text() == "the check before the announcement failed: it ended with exit code 1: GPU 3"
    leave_reason("é" * 10_000, str(path))
    assert path.stat().st_size == 4096


def test_the_exit_code_has_one_number() -> None:
    """The agent's is the one that the controller looks for."""
    assert ExitCode.UNFIT.value == int(CHECK_FAILED_EXIT_CODE)
