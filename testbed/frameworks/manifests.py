"""Give a framework's example, which is in supervisor mode, also below a guard, and without an agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from inplace import examples
from inplace.cli.inject.inject import inject
from inplace.common.agent_command import AGENT_COMMAND
from inplace.common.injection.agent_pieces import CONTAINER_RESTART, variables
from inplace.common.injection.pod import InjectOptions
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import OUR_PORT
from inplace.common.wire.mode import Mode

MODES = (Mode.SUPERVISOR, Mode.CONTAINERS, Mode.PROCESS)
ADDED = "added"
"""One more mode: the manifest has no agent, and the controller adds it to the Pods."""

EXAMPLES = Path(examples.__file__).parent
GUARDED = EXAMPLES / "train.yaml"
AGENTS = {entry["name"] for entry in variables(port=OUR_PORT)} | {CONTAINER_RESTART}
"""The variables that an agent reads, which a worker's container beside it does not need."""


def documents_of(file: Path, mode: str, options: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the documents of a supervisor's manifest for a mode; the worker's own command stays the same.

    Args:
        file: the manifest; one without an agent gets it.
        mode: one of MODES, or ADDED.
        options: of `inplace-agent run`, or of `inplace-agent guard`; ADDED has none.
    """
    supervised = list(yaml.safe_load_all(file.read_text()))
    if _job(supervised[-1])["template"]["spec"]["containers"][0]["command"][0] != AGENT_COMMAND:
        supervised, _ = inject(supervised, InjectOptions(mode="supervisor"))
    if mode == ADDED:
        return [_without_agent(supervised[-1])]
    _job(supervised[-1])["template"]["spec"]["containers"][0]["command"][2:2] = options  # behind: inplace-agent run
    if mode == Mode.SUPERVISOR:
        return supervised
    guarded = list(yaml.safe_load_all(GUARDED.read_text()))
    job, example = _job(guarded[-1]), _job(supervised[-1])
    job["parallelism"], job["completions"] = example["parallelism"], example["completions"]
    pod, its_pod = job["template"]["spec"], example["template"]["spec"]
    worker, its_worker = pod["containers"][0], its_pod["containers"][0]
    words = [*its_worker["command"], *its_worker.get("args", ())]
    worker["image"] = its_worker["image"]
    worker["command"] = ["/inplace/bin/guard", *words[2:]]  # instead of: inplace-agent run
    worker["env"] = _by_name(worker["env"], [entry for entry in its_worker["env"] if entry["name"] not in AGENTS])
    worker["volumeMounts"] = _by_name(worker["volumeMounts"], its_worker["volumeMounts"])
    # The example has its checkpoints on a claim.
    pod["volumes"] = _by_name([each for each in pod["volumes"] if each["name"] != "checkpoints"], its_pod["volumes"])
    guarded[-1]["spec"]["volumeClaimPolicies"] = supervised[-1]["spec"]["volumeClaimPolicies"]
    if mode == Mode.CONTAINERS:
        guarded[-1]["metadata"]["annotations"] = {wire.RESTART: wire.DEPTH_CONTAINERS}
    return guarded


def _without_agent(jobset: dict[str, Any]) -> dict[str, Any]:
    """Take from a supervisor's JobSet all that is the agent's: what is left is what a user has to say."""
    job = _job(jobset)
    pod = job["template"]["spec"]
    (worker,) = pod["containers"]
    _drop(job, "backoffLimit", "backoffLimitPerIndex", "podReplacementPolicy")
    _drop(pod, "restartPolicy", "serviceAccountName")
    _drop(worker, "restartPolicy", "restartPolicyRules")
    worker["command"] = worker["command"][worker["command"].index("--") + 1 :]
    worker["env"] = [entry for entry in worker["env"] if entry["name"] not in AGENTS]
    for entries in (pod["volumes"], worker["volumeMounts"]):
        entries[:] = [entry for entry in entries if entry["name"] != "agent"]
    return jobset


def _drop(fields: dict[str, Any], *names: str) -> None:
    for name in names:
        del fields[name]


def _job(jobset: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    return spec


def _by_name(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return both lists as one; of two entries with one name the later one stays."""
    return list({entry["name"]: entry for entry in [*first, *second]}.values())
