"""Exit codes in words, wherever they come from."""

from __future__ import annotations

import pytest

from inplace.agent.settings.exit_code import ExitCode
from inplace.common.wire.exit_words import RESTART_CODE, ended_with, exit_words


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (1, "Error", "exit code 1"),
        (139, "", "killed by SIGSEGV (139)"),
        (139, "Error", "killed by SIGSEGV (139)"),
        (137, "OOMKilled", "killed by SIGKILL (137, OOMKilled)"),
        (-11, "", "killed by SIGSEGV (-11)"),
        (134, "", "killed by SIGABRT (134)"),
        (147, "", "killed by SIGSTOP (147)"),
        (0, "Completed", "completed (exit code 0)"),
        (88, "Error", "exit code 88 (its agent asked kubelet for new containers)"),
        (128, "StartError", "exit code 128 (StartError)"),
        (255, "", "exit code 255"),
        (2**31, "", "exit code 2147483648"),
        (-(2**31), "", "exit code -2147483648"),
    ],
)
def test_a_code_in_words(code: int, reason: str, words: str) -> None:
    """Signals have their names, and what only repeats the code is left out."""
    assert exit_words(code, reason) == words


def test_in_a_sentence_about_a_container() -> None:
    """With its verb."""
    assert (ended_with(3), ended_with(139), ended_with(0)) == (
        "with exit code 3",
        "killed by SIGSEGV (139)",
        "completed (exit code 0)",
    )


def test_our_own_code_is_one() -> None:
    """The agent leaves with it, and no worker is blamed for it."""
    assert int(ExitCode.RESTART_IN_PLACE) == RESTART_CODE
