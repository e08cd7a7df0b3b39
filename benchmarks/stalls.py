"""
Stop ranks of a user's framework at random moments, and judge whom inplace names for each hang.

    python -m benchmarks.stalls [jax] [torch] [--stalls 25] [--json]

Four Pods, one rank in each, on the embedded Kubernetes of one machine; so many stalls of each framework in the default
depth, and as many in supervisor mode. A rank is stopped (SIGSTOP) at a random moment of its step: in its own work, or
in the collective. The watchdog restarts the group. Then its words are read as a person would read them: the status,
which names the Pod that was silent first, and where steps cannot tell, the first group of `inplace stacks --last`:

* steps: the status names the stopped rank's Pod, and no other for the hang;
* stacks: steps cannot tell, and the first group is the stopped rank alone;
* untold: no rank is named alone;
* wrong: a healthy one is named alone. The command fails then.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.figures import flags
from benchmarks.systems import PODS, STEPS_BETWEEN, Group, in_pods
from inplace.common.jobset.furthest_behind import silent_of_entry
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from testbed.frameworks.ranks import REPOSITORY

FRAMEWORKS: Final = ("jax", "torch")
MODES: Final = (Mode.PROCESS, Mode.SUPERVISOR)
STALL_S: Final = 3.0
STEP_S_MAX: Final = 0.4  # with its pause of 0.1 s; a loaded machine needs most of it
STACKS_S_MAX: Final = 60.0
VERDICTS: Final = ("steps", "stacks", "untold", "wrong")


def judged(restart: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], guilty: str) -> str:
    """Return one of VERDICTS.

    Args:
        restart: status.lastGroupRestart.
        groups: of `inplace stacks --last`, the first one first.
        guilty: the Pod of the rank that was stopped.
    """
    silent = silent_of_entry(restart)
    if silent is not None and silent.only:
        return "steps" if silent.only == guilty else "wrong"
    if not groups or len(groups[0]["ranks"]) != 1:
        return "untold"
    return "stacks" if groups[0]["ranks"][0]["pod"] == guilty else "wrong"


def pod_of(pid: int, pods: Sequence[KubeObject]) -> str:
    """Return the name of the Pod to which a rank's process belongs: of its completion index."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    (index,) = (each.partition("=")[2] for each in variables if each.startswith("JOB_COMPLETION_INDEX="))
    (name,) = (
        pod["metadata"]["name"] for pod in pods if pod["metadata"]["annotations"][wire.JOB_COMPLETION_INDEX] == index
    )
    return str(name)


async def stall(group: Group, framework: str, rng: Random) -> str:
    """Stop a rank, wait until the group has restarted, and judge who was named."""
    assert group.cluster is not None, "the group runs on no Kubernetes"
    resumed = group.resumed
    await asyncio.sleep(rng.uniform(0, STEP_S_MAX))
    pid = rng.choice(group.ranks())
    guilty = pod_of(pid, group.cluster.pods())
    os.kill(pid, signal.SIGSTOP)
    await group.reach(resumed + PODS, 0)
    jobset = group.cluster.pods()[0]["metadata"]["labels"][wire.JOBSET_NAME]
    restart = group.cluster.jobset(jobset)["status"][wire.LAST_GROUP_RESTART]
    words = (sys.executable, "-m", "inplace.cli", "stacks", jobset, "--last", "--json")
    asked = await asyncio.create_subprocess_exec(
        *words,
        cwd=REPOSITORY,
        env=os.environ | {"KUBECONFIG": str(group.cluster.kubeconfig())},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(STACKS_S_MAX):
        said, why = await asked.communicate()
    groups = json.loads(said)["groups"] if said.strip() else []
    verdict = judged(restart, groups, guilty)
    told = {"trigger": restart.get("trigger"), "firstFailure": restart.get("firstFailure"), "stopped": guilty}
    told["firstSilent"] = restart.get("firstSilent")
    places = [(one["place"], [each["pod"] for each in one["ranks"]]) for one in groups]
    print(f"{framework} {verdict} {json.dumps(told)} {places} {why.decode().strip()}", file=sys.stderr, flush=True)
    return verdict


async def measure(framework: str, mode: Mode, stalls: int, rng: Random) -> Counter[str]:
    """Return how often each verdict was right for one group."""
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="inplace-stalls-") as folder:
        async with in_pods(
            Path(folder), framework=framework, example=framework, mode=mode, annotations={wire.STALL: f"{STALL_S:g}"}
        ) as group:
            for number in range(1, stalls + 1):
                await group.reach(PODS * number, PODS * STEPS_BETWEEN)
                found[await stall(group, framework, rng)] += 1
    return found


def main() -> int:
    """Measure and print."""
    parser = flags(__doc__, stalls=25)
    parser.add_argument("framework", nargs="*", default=FRAMEWORKS, help=f"of {', '.join(FRAMEWORKS)}; default: all")
    options = parser.parse_args()
    rng, report = Random(1), {}
    for framework in options.framework:
        for mode in MODES:
            found = asyncio.run(measure(framework, mode, options.stalls, rng))
            report[f"{framework}, {mode}"] = {verdict: found[verdict] for verdict in VERDICTS}
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{'of ' + str(options.stalls) + ' each':20}", *(f"{verdict:>7}" for verdict in VERDICTS))
        for row, counts in report.items():
            print(f"{row:20}", *(f"{count:7}" for count in counts.values()))
    return 1 if any(counts["wrong"] for counts in report.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
