"""Whatever types a manifest, a kubeconfig or an answer has, a command ends in words; see tests/cli/fuzz_types.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from inplace.cli.logs.container_log import ranks_of
from inplace.cli.refusal import CliExit
from inplace.common.kube.http.request import Response
from tests.cli.command import run_here
from tests.cli.facts import jobset, pod
from tests.cli.fuzz_types import LOCAL_CODES, OF_KUBECONFIGS, OF_MANIFESTS, End, fuzz, problem_of, read_as
from tests.cli.injecting import PLAIN, saved
from tests.cli.recorded import COMMANDS, JSON

CASES = 150  # a second; `make soak-types` runs 20,000


@pytest.mark.attack
def test_a_wrong_type_ends_in_words() -> None:
    """Some hundred wrong manifests, kubeconfigs and answers: no traceback, and documented exit codes."""
    ran, wrong = fuzz(0, CASES)
    assert not wrong, "\n".join(wrong)
    assert set(ran) == {*OF_MANIFESTS, *OF_KUBECONFIGS, *COMMANDS}


def test_what_the_fuzzer_calls_wrong() -> None:
    """A traceback, a code that no page lists, a failure without a word, and Python's own words."""

    def fails() -> End:
        try:
            raise KeyError("metadata")
        except KeyError as error:
            raise ExceptionGroup("a task", [error]) from error

    assert "KeyError: 'metadata'" in problem_of(fails, LOCAL_CODES)
    assert "exit code 7" in problem_of(lambda: End(7, "no"), tuple(CliExit))
    assert "without a word" in problem_of(lambda: End(1, "\n"), LOCAL_CODES)
    assert "words of Python" in problem_of(lambda: End(1, "saw 'NoneType' object"), LOCAL_CODES)
    assert problem_of(lambda: End(1, "expected a list, saw a text"), LOCAL_CODES) == ""


def test_a_list_that_holds_null_is_no_answer_of_an_api_server() -> None:
    """The sentence has the place, what was expected there and what was seen, and what to do."""
    body = b'{"kind": "JobSetList", "apiVersion": "v1", "metadata": {}, "items": [null]}'
    end = read_as("status of all", lambda _number, _request, _answer: Response(200, JSON, body))
    assert end.code == CliExit.NO_CLUSTER
    assert (
        "expected a JobSet in the list of jobsets, saw another form: the object: expected a mapping, saw nothing"
        in (end.said)
    )
    assert "choose another cluster (--context)" in end.said


@pytest.mark.parametrize("command", ["lint", "inject", "demo"])
def test_a_manifest_of_another_form_is_refused_in_one_sentence(tmp_path: Path, command: str) -> None:
    """With the file, the kind and the place of the first wrong part."""
    file = saved(tmp_path, PLAIN.replace("              env:", "              env: {A: b}\n              x:"))
    end = run_here(command, "-f", file)
    place = "spec.replicatedJobs[0].template.spec.template.spec.containers[0].env"
    assert end.returncode == (1 if command == "demo" else 2)
    assert end.stderr == f"inplace {command}: {file}: JobSet: {place}: expected a list, saw a mapping\n"


def test_a_status_of_another_form_gives_no_pod_a_rank() -> None:
    """`logs` reads a JobSet whose epochs are no numbers, as one whose spec cannot be read."""
    raw = jobset(2, status={"currentInPlaceRestartAttempt": {"x": None}})
    rank, count = ranks_of(raw)
    assert (rank(pod(0, 1)), count) == (None, 0)
