"""
Slow one rank of real PyTorch down, and see whether the notices name this rank and no other.

    python -m benchmarks.slow_ranks [--rounds 5] [--json]

Four Pods of examples/torch.yaml, one rank in each, on the embedded Kubernetes of one machine. Each round kills a rank,
so that a new run begins, and lets the group train until there is something to compare with. Then a rank is stopped
(SIGSTOP) for most of each period, so that its steps take some three times as long, and all others wait for it. A round
ends once status.notices names a rank as slow, or after NAMED_S_MAX. Printed: how many rounds named the rank, how many
named another one as well, how many notices there were before any rank was slow, and the median of the seconds from the
first stop on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from benchmarks.figures import flags
from benchmarks.stalls import pod_of
from benchmarks.systems import PODS, Group, in_pods
from inplace.common.jobset.notices import GroupNotice, notices_of
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from inplace.common.wire.notice import SLOW
from inplace.rank_numbers import BEFORE_MIN, BLOCK, NEWEST

STOPPED_S: Final = 0.27  # of each period; a step of the example takes 0.1 s with its pause
RUNS_S: Final = 0.03
NAMED_S_MAX: Final = 120.0
STEPS: Final = 1 + BLOCK * (1 + BEFORE_MIN + NEWEST) + 2 * BLOCK  # of each rank, after which a comparison is possible
WORDS: Final = (
    "of {rounds} slow ranks {named} were named, the median {named_after_s} s after it got slow; "
    "another rank was named {others} times, and {early} times before any was slow"
)
WATCHED: Final = {wire.STALL: "600"}


def listed(group: Group) -> tuple[GroupNotice, ...]:
    """Return what the status lists of ranks that are slow."""
    assert group.cluster is not None, "the group runs on no Kubernetes"
    jobset = group.cluster.pods()[0]["metadata"]["labels"][wire.JOBSET_NAME]
    notices = notices_of(group.cluster.jobset(jobset)["status"])
    return tuple(notice for notice in notices if notice.kind == SLOW)


async def slowed(group: Group, pid: int) -> tuple[float, tuple[GroupNotice, ...]]:
    """Slow a rank's process down until somebody is named; return after how many seconds that was, and whom."""
    began_s = time.monotonic()
    try:
        while time.monotonic() - began_s < NAMED_S_MAX and not listed(group):
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(STOPPED_S)
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(RUNS_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    took_s = time.monotonic() - began_s
    await asyncio.sleep(5.0)  # another Pod may tell a moment later
    return took_s, listed(group)


async def measure(rounds: int, rng: Random) -> dict[str, Any]:
    """Slow one rank in each of `rounds` rounds; return how often it was named, and how often another one."""
    named_s, others, early = list[float](), 0, 0
    with tempfile.TemporaryDirectory(prefix="inplace-slow-") as folder:
        async with in_pods(
            Path(folder), framework="torch", example="torch", mode=Mode.PROCESS, annotations=WATCHED
        ) as group:
            for number in range(1, rounds + 1):
                await group.reach(PODS * number, PODS * STEPS)
                early += len(listed(group))
                pid = rng.choice(group.ranks())
                assert group.cluster is not None
                guilty = pod_of(pid, group.cluster.pods())
                took_s, notices = await slowed(group, pid)
                pods = {notice.pod for notice in notices}
                print(f"slowed {guilty}, after {took_s:.1f} s: {[str(one) for one in notices]}", file=sys.stderr)
                if guilty in pods:
                    named_s.append(took_s)
                others += bool(pods - {guilty})
                if number < rounds:
                    os.kill(rng.choice(group.ranks()), signal.SIGKILL)
    middle_s = round(median(named_s), 1) if named_s else None
    return {"rounds": rounds, "named": len(named_s), "others": others, "early": early, "named_after_s": middle_s}


def main() -> int:
    """Measure and print."""
    options = flags(__doc__, rounds=5).parse_args()
    report = asyncio.run(measure(options.rounds, Random(1)))
    print(json.dumps(report) if options.json else WORDS.format(**report))
    return 1 if report["others"] or report["early"] else 0


if __name__ == "__main__":
    sys.exit(main())
