"""`inplace demo` ends with a summary and leaves no process behind."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from inplace.simulator.cluster.manifests import held_by_probe
from tests.cli.command import RUN_S_MAX, demo_json, kept_demo, processes, run, run_here
from tests.cli.injecting import as_yaml, documents_of, example, saved

MOMENTS = ("detection", "deprecate", "exit", "restart", "announce", "sync", "lift", "first_step")


def processes_with(marker: str) -> list[int]:
    """Return the processes whose environment contains `marker`."""
    return [pid for pid, environ in processes("environ") if marker.encode() in environ]


@pytest.mark.parametrize(
    ("mode", "starts", "told"), [("process", 1, 0), pytest.param("containers", 3, 2, marks=pytest.mark.slow)]
)
def test_real_processes_restart_in_place(mode: str, starts: int, told: int) -> None:
    """Two SIGKILLs give two restarts with every moment and no new Pod; an agent's start costs two requests and a PATCH.

    In depth process agents stay, and each restart is one PATCH of each; else each death is told by one more.
    """
    alone = ("--mode", mode) if mode != "process" else ("--no-compare",)
    last = demo_json("--pods", "3", "--failures", "2", *alone)
    assert (last["mode"], last["pods"], last["failures"]) == (mode, 3, 2)
    assert (last["pods_recreated"], last["rejected"]) == (0, 0)
    assert [restart["epoch"] for restart in last["restarts"]] == [2, 3]
    assert [line.split()[2] for line in last["first_lines"]] == ["epoch=1", "epoch=2", "epoch=3"]
    moments = [moment for moment in MOMENTS if mode == "containers" or moment not in ("exit", "restart")]
    assert all(restart[moment] is not None for restart in last["restarts"] for moment in moments)
    assert last["requests"]["inplace-agent list jobsets"] == 3 * starts
    assert last["requests"]["inplace-agent watch jobsets"] == 3 * starts
    assert last["requests"]["inplace-agent patch pods"] == 3 * 3 + told


def test_a_spare_takes_the_place_of_a_pod_that_is_lost() -> None:
    """One restart in place, in which nobody waits for a new Pod; its rank goes on at the slot of the spare."""
    output = run("demo", "--json", "--pods", "3", "--spares", "1", "--lose-pod")
    last = json.loads(output.stdout.splitlines()[-1])
    assert "is slot 3 now, which was a spare" in output.stderr
    assert (last["pods"], last["failures"]) == (4, 1)
    ((restart,), requests) = (last["restarts"], last["requests"])
    assert (restart["trigger"], restart["epoch"], last["pods_recreated"]) == ("pod_lost", 2, 0)
    assert requests["inplace-agent list jobsets"] == requests["inplace-agent watch jobsets"] == 4


@pytest.mark.slow
def test_a_lost_pod_costs_what_a_killed_worker_costs() -> None:
    """500 members with 5 spares, modelled: all run again within 1.2 times a restart in which no Pod is lost."""
    options = ("--runtime", "model", "--pods", "500", "--spares", "5", "--failures", "1", "--lose-pod")
    killed, lost = demo_json(*options)["restarts"]
    assert (killed["trigger"], lost["trigger"]) == ("worker_exit", "pod_lost")
    assert lost["lift"] <= 1.2 * killed["lift"], (lost["lift"], killed["lift"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["containers", "process", "supervisor"])
def test_stopped_workers_are_found_and_started_again(mode: str) -> None:
    """A worker that is stopped twice gives two restarts by trigger `stalled`, which name a Pod and its silence.

    A worker that is stopped while it waits for the others has said the same step as they: then all are named.
    """
    last = demo_json("--mode", mode, "--pods", "3", "--stall", "2")
    assert (last["mode"], last["failures"], last["pods_recreated"]) == (mode, 2, 0)
    for restart in last["restarts"]:
        failure = restart["first_failure"]
        assert (restart["trigger"], failure["reason"]) == ("stalled", "Stalled")
        assert failure["message"].startswith("silent for ")
        assert restart["victim"] in restart["first_silent"]
        assert 3_000 < restart["detection"] < restart["first_step"]  # its last step was up to one step before the stop


def test_a_worker_that_nobody_watches_is_not_stopped(tmp_path: Path) -> None:
    """It would hang for ever, so the demo says what is missing."""
    text = as_yaml([held_by_probe(documents_of("train.yaml")[-1])])
    for options, words in (
        (("--file", saved(tmp_path, text)), "--stall: expected --mode process, containers or supervisor"),
        (("--runtime", "model"), "--stall: expected --runtime process"),
    ):
        result = run_here("demo", "--yes", "--stall", "1", *options)
        assert result.returncode == 1
        assert words in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["process", "model"])
@pytest.mark.parametrize("mode", ["process", "supervisor"])
def test_workers_restart_without_kubelet(mode: str, runtime: str) -> None:
    """By a guard or a supervisor: two killed workers give two restarts, no restarted container, one watch per Pod."""
    last = demo_json("--mode", mode, "--runtime", runtime, "--pods", "3", "--failures", "2")
    assert (last["mode"], last["containers_restarted"], last["pods_recreated"]) == (mode, 0, 0)
    assert [restart["epoch"] for restart in last["restarts"]] == [2, 3]
    seen = ("detection", "deprecate", "announce", "sync", "lift", "first_step")
    assert all(restart[moment] is not None for restart in last["restarts"] for moment in seen)
    assert last["requests"]["inplace-agent watch jobsets"] == 3
    assert last["requests"]["inplace-agent patch pods"] == 3 * 3


@pytest.mark.slow
def test_a_model_run_repeats_itself_from_its_seed() -> None:
    """The same seed prints the same JSON, and another seed another."""
    first, again, other = (
        run("demo", "--runtime", "model", "--pods", "20", "--json", "--seed", seed) for seed in ("5", "5", "6")
    )

    assert (first.returncode, again.returncode, other.returncode) == (0, 0, 0), first.stderr
    assert first.stdout == again.stdout
    assert first.stdout != other.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    """After Ctrl-C or SIGTERM in mid-training, no agent, worker or controller is left."""
    marker = f"INPLACE_TEST_MARKER={tmp_path}"
    with kept_demo(tmp_path, "--failures", "0", INPLACE_TEST_MARKER=str(tmp_path)) as (demo, _):
        demo.send_signal(number)
        _, stderr = demo.communicate(timeout=RUN_S_MAX)

    assert demo.returncode == 128 + number, stderr
    assert processes_with(marker) == []
    assert processes_with(str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_user_s_manifest_is_run(tmp_path: Path) -> None:
    """--file takes the number of Pods from the manifest."""
    assert demo_json("--runtime", "model", "--file", saved(tmp_path, example("train.yaml")))["pods"] == 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train-supervisor.yaml", "train.yaml"])
def test_a_worker_that_fails_again_and_again_has_the_last_word(name: str, tmp_path: Path) -> None:
    """The demo ends with an error that says why the JobSet ended, and what the worker that failed first printed."""
    documents = documents_of(name)
    spec = documents[-1]["spec"]
    spec["failurePolicy"]["maxRestarts"] = 1
    job = spec["replicatedJobs"][0]["template"]["spec"]
    job["parallelism"] = job["completions"] = 2
    (worker,) = job["template"]["spec"]["containers"]
    worker["command"] = worker["command"][: worker["command"].index("--") + 1]
    worker["args"] = ["python3", "-c", "print('this is my model'); raise RuntimeError('and it is broken')"]

    result = run("demo", "--yes", "--file", saved(tmp_path, as_yaml(documents)))

    assert result.returncode == 1
    said = result.stderr[result.stderr.index("inplace demo: expected the JobSet to train on") :]
    assert "ReachedMaxRestarts" in said
    assert "The last lines of the worker of Pod " in said
    assert "  this is my model\n" in said
    assert "  RuntimeError: and it is broken\n" in said
    assert '{"' not in said


def breaking(**changes: object) -> str:
    """Return the example with fields of its Job template's spec changed."""
    documents = documents_of("train.yaml")
    documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"] |= changes
    return as_yaml(documents)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "saw nothing but blanks and comments"),
        ("{", "expected YAML"),
        (breaking(parallelism=2**31 - 1, completions=2**31 - 1), "expected 1 to 10,000 Pods"),
        ("- 1\n", "expected objects with apiVersion and kind"),
        ("kind: Pod\napiVersion: v1\nmetadata: {name: x}\n", "expected a JobSet (jobset.x-k8s.io/v1alpha2), saw Pod"),
        ("kind: JobSet\napiVersion: jobset.x-k8s.io/v1alpha2\n", "expected objects with apiVersion, kind and metadata"),
        (as_yaml([*(train := documents_of("train.yaml")), train[-1]]), "expected exactly one JobSet, saw 2"),
        ("kind: JobSet\napiVersion: jobset.x-k8s.io/v1alpha2\nmetadata: {name: x}\n", "expected spec.replicatedJobs"),
        (breaking(backoffLimit=3), "backoffLimit"),
        (breaking(podReplacementPolicy="TerminatingOrFailed"), "podReplacementPolicy"),
        (breaking(completions=4), "completions"),
    ],
)
def test_a_bad_manifest_is_refused_in_words(tmp_path: Path, text: str, expected: str) -> None:
    """For each kind of bad manifest the demo says what it expected, without a traceback."""
    result = run_here("demo", "--runtime", "model", "--file", saved(tmp_path, text))

    assert result.returncode == 1
    assert expected in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_model_takes_as_long_as_its_profile_says(tmp_path: Path) -> None:
    """The profile's delays are used: with containers that take 9 s to start every restart takes at least 9 s."""
    profile = tmp_path / "mine.toml"
    profile.write_text('[kubelet.container_start]\nuniform_s = [9, 9]\nsource = "ours"\n')
    last = demo_json("--mode", "containers", "--runtime", "model", "--pods", "2", "--profile", str(profile))
    assert last["restarts"][0]["first_step"] > 9_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--file", "/nowhere.yaml"], "expected a readable file"),
        (["--venv", "/nowhere"], "expected a virtual environment"),
        (["--pods", "0"], "--pods"),
        (["--pods", "eight"], "valid int"),
        (["--runtime", "docker"], "'process', 'model'"),
        (["--mode", "daemon"], "'process', 'containers', 'supervisor'"),
        (["--mode", "supervisor", "--file", "examples/train.yaml"], "saw one for process mode"),
        (["--failure", "1"], "--failures"),
        (["--profile", "zones"], "--profile: expected --runtime model, saw process"),
        (["--runtime", "model", "--profile", "bigg"], "expected a profile (far, lab"),
        (["--spares", "1", "--file", "examples/train.yaml"], "--spares: expected the demo's own example, saw --file"),
        (["--compare", "--runtime", "model"], "--compare: expected the demo's own example with a worker to kill"),
        (["--compare", "--failures", "0"], "--compare: expected the demo's own example with a worker to kill"),
    ],
)
def test_a_bad_option_is_refused_in_words(arguments: list[str], expected: str) -> None:
    """The refusal of an unknown or impossible option names the allowed values."""
    result = run_here("demo", *arguments)

    assert result.returncode in (1, 2)
    assert expected in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
