"""
Ask a controller who was to blame for real failures whose culprit is known, and whether it gives up where it should.

    python -m benchmarks.verdict [--orders 5] [--stories 500] [--json]

The failures are those of `tests/corpus/faults.txt`: groups of real ranks. A half is held out: no rule was made for
their words. Each is told to the real membership in several orders, as agents would tell it. Then:

* culprit: the status names a rank that had the fault; where nobody told a failure or a step, nobody can be named
  (`untold`), and that counts for neither;
* class: it is that of the fault;
* first failure alone: what is to blame if the first failure that is told stays, on the same orders;
* told_s: from the fault until the culprit's own end was told, where it ended. The restart begins with the first
  failure and waits for no other;
* stops: a story is one to eight failures of these groups in a row, with or without progress. A STOP is false if its
  last failures were not of one class, from one rank or one step, without progress in between;
* pass: the controller's CPU seconds to take in that 5,000 Pods failed at once, with the verdict and with the first
  failure kept. That is all that a verdict costs a restart: it adds no wait and no request.

The command fails where an aim is missed: culprit 95 %, class 90 %, no false STOP, told within 5 s.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any, Final
from unittest.mock import patch

from benchmarks.figures import flags
from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.crash_loop import Backoff, CrashLoop, after_epoch
from inplace.common.jobset.failure_class import FailureClass
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.in_vain import in_vain
from inplace.common.jobset.last_restart import EpochEnd
from inplace.common.jobset.restart_history import PastRestart, past_restart, with_restart
from inplace.common.jobset.settings import SAME
from inplace.common.jobset.verdict import explains
from inplace.common.protocol.last_progress import LastProgress
from inplace.controller.tracking import signs
from tests.corpus.faults import Fault, faults
from tests.corpus.replay import Replay, crowd, failed, replay

CULPRIT_MIN: Final = 0.95
CLASS_MIN: Final = 0.90
TOLD_S_MAX: Final = 5.0
STORY_MAX: Final = 8
PODS: Final = 5000
ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Told:
    """One order in which one group's failure was told, and what came of it; None where nobody told."""

    fault: Fault
    replay: Replay | None

    @property
    def is_right(self) -> bool:
        """Say whether a rank is named that had the fault."""
        return self.replay is not None and self.replay.rank in self.fault.culprits

    @property
    def has_class(self) -> bool:
        """Say whether the class is that of the fault."""
        return self.replay is not None and self.replay.verdict.found.value == self.fault.truth


def tell(corpus: Sequence[Fault], orders: int) -> list[Told]:
    """Tell each failure in so many orders."""
    return [Told(fault, replay(fault, Random(f"{order}:{fault.name}"))) for fault in corpus for order in range(orders)]


def rates(told: Sequence[Told]) -> dict[str, float]:
    """Return how often culprit and class are right, of the failures that somebody told."""
    known = [one for one in told if one.replay is not None]
    count = max(1, len(known))
    culprit, found = sum(one.is_right for one in known), sum(one.has_class for one in known)
    return {
        "groups": len({one.fault.name for one in told}),
        "untold": round((len(told) - len(known)) / max(1, len(told)), 4),
        "culprit": round(culprit / count, 4),
        "class": round(found / count, 4),
    }


def stops(corpus: Sequence[Fault], stories: int, rng: Random) -> dict[str, float]:
    """Tell stories of failures in a row; return how often STOP was said, and how often it was false or missed."""
    counts = Counter[str]()
    for _ in range(stories):
        some = rng.sample(corpus, rng.randint(1, 3))
        history, loop, truths = (
            tuple[PastRestart, ...](),
            CrashLoop(epoch=1, synced_at=_at(0)),
            list[tuple[str, frozenset[int], int]](),
        )
        for epoch in range(2, 2 + rng.randint(1, STORY_MAX)):
            fault = rng.choice(some)
            found = replay(fault, rng)
            if found is None:
                break
            progressed = rng.random() < 0.2
            step = (loop.best or 8) + 1 if progressed or not truths else max(0, (loop.best or 8) - rng.randint(0, 1))
            entry = found.entry | {"epoch": epoch, "startedAt": _at(epoch)}
            silent = FurthestBehind(("a", "b"), 2, LastProgress(step, 1.0))  # all ranks were at one step
            end = EpochEnd(Trigger(entry["trigger"]), _at(epoch), silent.progress)
            loop = after_epoch(loop, Backoff(), end, epoch)
            history = with_restart(history, past_restart(entry, silent))
            if progressed:
                truths.clear()
            truths.append((fault.truth, fault.culprits, step))
            is_true = _is_one(truths[-SAME:])
            is_told = in_vain(history, loop, "", SAME) is not None
            counts["told"] += is_told
            counts["false"] += is_told and not is_true
            counts["missed"] += is_true and not is_told
            counts["failures"] += 1
    return dict(counts)


def _is_one(last: Sequence[tuple[str, frozenset[int], int]]) -> bool:
    """Say whether failures are of one class and one place, by what is true of them: class, ranks and step."""
    classes, ranks, steps = ({one[part] for one in last} for part in range(3))
    is_placed = len(ranks) == 1 or len(steps) == 1 or classes == {FailureClass.LAUNCH.value}
    return len(last) == SAME and len(classes) == 1 and is_placed and classes != {FailureClass.OUTSIDE.value}


def _at(epoch: int) -> str:
    return f"2026-09-21T13:{epoch:02}:00Z"


def passes() -> dict[str, float]:
    """Return the controller's seconds for Pods that all fail, with the verdict and without it."""
    seconds: dict[str, list[float]] = {"verdict": [], "first": []}
    for number in range(ROUNDS):
        for name in sorted(seconds, reverse=number % 2 == 1):
            membership, pods = crowd(PODS)
            ended = failed(PODS)
            with patch.object(signs, "explains", (lambda *_: False) if name == "first" else explains):
                began_s = time.process_time()
                for before, after in zip(pods, ended, strict=True):
                    membership.pod_changed(before, after)
                seconds[name].append(time.process_time() - began_s)
    ratio = median(ours / theirs for ours, theirs in zip(seconds["verdict"], seconds["first"], strict=True))
    return {name: round(median(took), 3) for name, took in seconds.items()} | {"ratio": round(ratio, 3)}


async def measure(orders: int, stories: int) -> dict[str, Any]:
    """Return everything that is measured."""
    corpus = faults()
    held_out = [fault for fault in corpus if fault.is_held_out]
    told = tell(held_out, orders)
    with patch.object(signs, "explains", lambda *_: False):
        first = tell(held_out, orders)
    by_end = {
        end: rates([one for one in told if one.fault.end == end]) for end in sorted({fault.end for fault in held_out})
    }
    after_s = sorted(one.replay.after_s for one in told if one.replay is not None and one.replay.after_s is not None)
    return {
        "held_out": rates(told),
        "by_end": by_end,
        "other_half": rates(tell([fault for fault in corpus if not fault.is_held_out], orders)),
        "first_failure_alone": rates(first),
        "told_s": {"median": round(median(after_s), 3), "most": round(after_s[-1], 3)},
        "stops": stops(held_out, stories, Random(54)),
        f"pass_of_{PODS}": passes(),
    }


def main() -> int:
    """Measure and print."""
    options = flags(__doc__, orders=5, stories=500).parse_args()
    report = asyncio.run(measure(options.orders, options.stories))
    if options.json:
        print(json.dumps(report))
    else:
        for name, figures in report.items():
            print(f"{name:20} {figures}")
    held_out = report["held_out"]
    is_met = held_out["culprit"] >= CULPRIT_MIN and held_out["class"] >= CLASS_MIN
    return 0 if is_met and not report["stops"].get("false") and report["told_s"]["most"] <= TOLD_S_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
