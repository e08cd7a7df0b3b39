"""The command line of inplace-agent, and the variables with the same meaning."""

from __future__ import annotations

import subprocess
import sys

import pytest

from inplace.agent.settings.arguments import ArgumentsError, WorkerOptions, exit_codes, parse


def test_run_leaves_the_worker_s_words_alone() -> None:
    """The agent's options end at -- or at the first other word; the rest is the worker's command with its options."""
    assert parse(["run", "--", "python", "--grace", "1"], {}) == WorkerOptions(("python", "--grace", "1"))
    assert parse(["run", "--grace", "1", "torchrun", "--help"], {}) == WorkerOptions(
        ("torchrun", "--help"), grace_s=1.0
    )


def test_an_option_wins_over_its_variable() -> None:
    """An option on the command line overrides the variable of the same meaning."""
    env = {"WORKER_GRACE_S": "9", "WORKER_FAIL_ON": "7"}
    found = parse(["run", "--grace=1.5", "--fail-on", "3,10-12", "--", "a"], env)
    assert found == WorkerOptions(("a",), 1.5, frozenset({3, 10, 11, 12}))


def test_standby_is_on_always_or_off() -> None:
    """--standby without a value means on."""
    assert parse(["run", "--standby", "--", "a"], {}) == WorkerOptions(("a",), standby="on")
    assert parse(["run", "--", "a"], {"WORKER_STANDBY": "on"}) == WorkerOptions(("a",), standby="on")
    assert parse(["guard", "--standby=always", "a"], {"WORKER_STANDBY": "on"}) == WorkerOptions(
        ("a",), standby="always"
    )
    assert parse(["run", "--standby=off", "--", "a"], {"WORKER_STANDBY": "on"}) == WorkerOptions(("a",))
    with pytest.raises(ArgumentsError, match="expected on, always or off"):
        parse(["run", "--", "a"], {"WORKER_STANDBY": "1"})


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["run", "--help"], ["guard", "-h"]])
def test_help_is_no_error(arguments: list[str]) -> None:
    """--help prints to standard output and exits with 0."""
    assert parse(arguments, {}) is None


def test_worker_command_is_upstream_s_contract() -> None:
    """A shell runs WORKER_COMMAND; no port is opened unless a variable names one."""
    env = {"WORKER_COMMAND": "train && done", "SHELL": "/bin/zsh", "WORKER_FAIL_ON": "3"}
    assert parse([], env) == WorkerOptions(
        ("/bin/zsh", "-c", "train && done"), final_codes=frozenset({3}), listens=False, once=True
    )
    found = parse([], env | {"BARRIER_PORT": "8080"})
    assert found is not None
    assert found.listens


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (["rum"], {}, "expected run, guard or no argument, saw 'rum'"),
        (["run"], {}, "expected a worker's command"),
        (["run", "--"], {}, "expected a worker's command"),
        (["run", "--gracious", "--", "a"], {}, "expected --grace, "),
        (["run", "--grace"], {}, "saw the end of the command line"),
        (["run", "--grace=", "--", "a"], {}, "--grace: expected a value"),
        (["run", "--grace", "-1", "--", "a"], {}, "expected seconds from 0 to 86400, saw '-1'"),
        (["run", "--grace", "nan", "--", "a"], {}, "expected seconds"),
        (["run", "--", "a"], {"WORKER_GRACE_S": "soon"}, "WORKER_GRACE_S: expected seconds"),
        (["run", "--", "a"], {"WORKER_COMMAND": "b"}, "saw both"),
        (["run", "--before-announce-timeout", "0", "--", "a"], {}, "expected seconds from 0.001 to 3600, saw '0'"),
        (["run", "--", "a"], {"BEFORE_ANNOUNCE_TIMEOUT_S": "1e9"}, "BEFORE_ANNOUNCE_TIMEOUT_S: expected seconds"),
        (["run", "--before-announce-unanswered", "wait", "--", "a"], {}, "expected join or leave, saw 'wait'"),
        (["wait", "--", "a"], {}, "expected run, guard or no argument, saw 'wait'"),
        ([], {"WORKER_COMMAND": "b", "STARTUP_PROBE_PORT": "1"}, "STARTUP_PROBE_PORT"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(arguments: list[str], env: dict[str, str], words: str) -> None:
    """The message says what was expected and what was seen."""
    with pytest.raises(ArgumentsError) as raised:
        parse(arguments, env)
    assert words in str(raised.value)


@pytest.mark.parametrize("text", ["", "0", "256", "3-1", "a", "1,,2", "-3", "1-", "1e2", "٣"])
def test_exit_codes_are_1_to_255(text: str) -> None:
    """--fail-on takes codes from 1 to 255; 0 always completes the Pod."""
    with pytest.raises(ArgumentsError, match="--fail-on"):
        exit_codes("--fail-on", text)


def test_a_subcommand_that_is_none_is_refused_at_start() -> None:
    """`inplace-agent wait -- CMD` ends with 2, and says what there is."""
    command = (sys.executable, "-m", "inplace.agent", "wait", "--", "true")
    done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected run, guard or no argument, saw 'wait'" in done.stderr


def test_a_sidecar_never_loads_the_command_line() -> None:
    """Without arguments and WORKER_COMMAND the agent does not import the module; an announcement does not need it."""
    code = (
        "import sys; sys.argv = ['inplace-agent']; from inplace.agent.main import main; main(); "
        "print('inplace.agent.settings.arguments' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, timeout=20, check=False)
    assert done.stdout == "False\n"
