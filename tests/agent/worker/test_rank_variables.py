"""What a member's worker learns of its rank, in the variables and options that its manifest has."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from inplace.agent.worker.rank_variables import rank_command, rank_variables
from inplace.common.protocol.link import PlayedRank
from tests.agent.process import ROOT, modules_loaded_by

MEMBER = PlayedRank(1, 6, "train-w-0-7.train")
OWN = {
    "INPLACE_RANK": "1",
    "INPLACE_SIZE": "6",
    "INPLACE_COORDINATOR": "train-w-0-7.train",
    "JOB_COMPLETION_INDEX": "1",
}


@pytest.mark.parametrize(
    ("env", "learned"),
    [
        ({}, {}),
        ({"NODE_RANK": "9", "NNODES": "8"}, {"NODE_RANK": "1", "NNODES": "6"}),
        ({"RANK": "9", "WORLD_SIZE": "8"}, {"RANK": "1", "WORLD_SIZE": "6"}),
        ({"WORLD_SIZE": "64", "NNODES": "8"}, {"WORLD_SIZE": "48", "NNODES": "6"}),  # eight ranks in each Pod
        ({"RANK": "72", "WORLD_SIZE": "64", "GROUP_SIZE": "8"}, {"RANK": "8", "WORLD_SIZE": "48"}),
        ({"RANK": "9", "WORLD_SIZE": "64", "NNODES": "7"}, {"RANK": "1", "WORLD_SIZE": "6", "NNODES": "6"}),
        ({"WORLD_SIZE": "8", "NNODES": "0"}, {"WORLD_SIZE": "6", "NNODES": "6"}),
        ({"JAX_PROCESS_ID": "9", "JAX_NUM_PROCESSES": "8"}, {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "6"}),
        ({"PROCESS_ID": "9", "NUM_PROCESSES": "8"}, {"PROCESS_ID": "1", "NUM_PROCESSES": "6"}),
        ({"OMPI_COMM_WORLD_RANK": "9", "PMI_SIZE": "8"}, {"OMPI_COMM_WORLD_RANK": "1", "PMI_SIZE": "6"}),
        (
            {"DMLC_TASK_ID": "9", "DMLC_NUM_WORKER": "8", "DMLC_TRACKER_URI": "train-node-0-0.train"},
            {"DMLC_TASK_ID": "1", "DMLC_NUM_WORKER": "6", "DMLC_TRACKER_URI": "train-w-0-7.train"},
        ),
        ({"PET_NNODES": "8", "PET_NODE_RANK": "9"}, {"PET_NNODES": "6", "PET_NODE_RANK": "1"}),
        ({"PET_NNODES": "2:8", "WORLD_SIZE": "", "RANK": "a"}, {}),  # a range, and what is no number, stay
        ({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, {"MASTER_ADDR": "train-w-0-7.train"}),
        ({"JAX_COORDINATOR_ADDRESS": "a.b:29400"}, {"JAX_COORDINATOR_ADDRESS": "train-w-0-7.train:29400"}),
        ({"PET_RDZV_ENDPOINT": "[::1]:1"}, {"PET_RDZV_ENDPOINT": "train-w-0-7.train:1"}),
        ({"COORDINATOR": "::1", "PET_MASTER_ADDR": ""}, {"COORDINATOR": "train-w-0-7.train"}),
    ],
)
def test_only_variables_of_the_manifest_are_replaced(env: dict[str, str], learned: dict[str, str]) -> None:
    """By a number where a number was, and with the port that was there."""
    assert rank_variables(MEMBER, env) == OWN | learned


OF_A_JOB = PlayedRank(13, 24, "train-w-7-0.train", 3, 6)  # the second of four Pods


@pytest.mark.parametrize(
    ("env", "learned"),
    [
        ({"JOB_COMPLETION_INDEX": "1", "PODS_PER_JOB": "4"}, {}),  # they are right within the Job
        ({"JOB_INDEX": "7", "JOB_GLOBAL_INDEX": "9"}, {"JOB_INDEX": "3", "JOB_GLOBAL_INDEX": "3"}),
        (
            {
                "MEGASCALE_SLICE_ID": "7",
                "MEGASCALE_NUM_SLICES": "8",
                "MEGASCALE_COORDINATOR_ADDRESS": "train-w-0-0.train:8080",
                "TPU_WORKER_ID": "1",
            },
            {
                "MEGASCALE_SLICE_ID": "3",
                "MEGASCALE_NUM_SLICES": "6",
                "MEGASCALE_COORDINATOR_ADDRESS": "train-w-7-0.train:8080",
            },
        ),
        ({"NODE_RANK": "29", "NNODES": "32"}, {"NODE_RANK": "13", "NNODES": "24"}),
        ({"RANK": "29", "WORLD_SIZE": "32", "PODS_PER_JOB": "4"}, {"RANK": "13", "WORLD_SIZE": "24"}),
        ({"WORLD_SIZE": "256", "NNODES": "32"}, {"WORLD_SIZE": "192", "NNODES": "24"}),
    ],
)
def test_where_jobs_play_ranks_the_job_s_is_replaced(env: dict[str, str], learned: dict[str, str]) -> None:
    """A Pod keeps its number in its Job; its rank among all Pods, and its Job's among the Jobs, are those played."""
    own = {
        "INPLACE_RANK": "13",
        "INPLACE_SIZE": "24",
        "INPLACE_COORDINATOR": "train-w-7-0.train",
        "INPLACE_JOB_RANK": "3",
        "INPLACE_JOBS": "6",
    }
    assert rank_variables(OF_A_JOB, env) == own | learned


def test_a_slice_is_one_only_where_jobs_play_ranks() -> None:
    """A Job whose Pods stand in for each other is one slice, whoever plays which rank."""
    env = {"MEGASCALE_SLICE_ID": "0", "MEGASCALE_NUM_SLICES": "1", "JOB_INDEX": "0"}
    assert rank_variables(MEMBER, env) == OWN


def test_without_host_names_no_host_is_replaced() -> None:
    """The manifest has another way to find rank 0."""
    env = {"MASTER_ADDR": "10.0.0.1", "RANK": "9"}
    assert rank_variables(PlayedRank(0, 2), env) == {
        "INPLACE_RANK": "0",
        "INPLACE_SIZE": "2",
        "JOB_COMPLETION_INDEX": "0",
        "RANK": "0",
    }
    command = ("torchrun", "--nnodes=9", "--master-addr=a", "train.py")
    assert rank_command(PlayedRank(0, 2), command) == ("torchrun", "--nnodes=2", "--master-addr=a", "train.py")


@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("torchrun --nnodes=8 --node_rank 9 t.py", "torchrun --nnodes=6 --node_rank 1 t.py"),
        ("python3 -m torch.distributed.run --rdzv-endpoint=a:29400 t.py", None),
        ("torchrun --nnodes=1:8 --master_addr a --node-rank", "torchrun --nnodes=1:8 --master_addr HOST --node-rank"),
        ("python3 train.py --nnodes=8 --node-rank=9", "python3 train.py --nnodes=8 --node-rank=9"),
    ],
)
def test_torchrun_s_options_say_the_rank(command: str, made: str | None) -> None:
    """In both spellings; another program's options stay."""
    made = made or command.replace("=a:", "=HOST:")
    assert rank_command(MEMBER, command.split()) == tuple(made.replace("HOST", MEMBER.host).split())


@pytest.mark.parametrize("name", ["train-supervisor", "jax", "torch", "torchrun"])
def test_the_examples_run_unchanged(name: str) -> None:
    """Every number of Pods, every rank and every address of the coordinator in them is replaced."""
    text = Path(ROOT, "examples", f"{name}.yaml").read_text()
    (jobset,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "JobSet"]
    (job,) = jobset["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    slots = str(job["template"]["spec"]["parallelism"])
    filled = {"NODE_RANK": "3", "RANK": "3", "COORDINATOR": "old", "MASTER_ADDR": "old", "JOB_INDEX": "0"}
    env = {each["name"]: each.get("value", filled.get(each["name"], "")) for each in container["env"]}
    args = [word.replace("$(", "").replace(")", "") for word in container.get("args", ())]
    args = ["=".join(env.get(part, part) for part in word.split("=")) for word in args]
    after = env | {"JOB_COMPLETION_INDEX": "3"} | rank_variables(MEMBER, env)
    words = rank_command(MEMBER, args)
    assert "old" not in {*after.values(), *(word.partition("=")[2] for word in words)}
    per_pod = int(after.get("PODS_PER_JOB", after.get("WORLD_SIZE", "0")))
    assert per_pod == 6 != int(slots)
    rank = int(after.get("RANK") or after.get("NODE_RANK") or after["JOB_COMPLETION_INDEX"])
    assert rank == 1
    if words:
        assert {"--nnodes=6", "--node-rank=1", f"--master-addr={MEMBER.host}"} <= set(words)


def test_a_guard_without_spares_loads_none_of_it() -> None:
    """It starts beside each worker."""
    assert "inplace.agent.worker.rank_variables" not in modules_loaded_by("import inplace.agent.guard")
