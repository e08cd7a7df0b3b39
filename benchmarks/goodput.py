"""
Compare the goodput that the controller computes with the truth of simulated trainings, and measure what it costs.

Each training has a random step time, checkpoints, a loading time, and deaths and hangs at random moments; after each
the group goes on from its last checkpoint. Time is simulated. What is under test is the real code, from the looks at
progress files to the status: the watchdog's machine, the annotation's text, the fold over Pods, the status's field.
Printed are the errors against what the simulation itself counted, step by step:

    error              of the effective training time ratio, relative to the true one
    lost_steps_wrong   1 for a training whose lost steps are not exactly the true ones
    lost_error         of the lost seconds, as a share of the training's whole time
    annotation_bytes   of the longest annotation that was written
    us                 one call of inplace.progress, measured in this run on this machine's file system

    python -m benchmarks.goodput --json
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.figures import Figures, flags
from benchmarks.progress import measure
from inplace.common.jobset.goodput import FIELD, Goodput, after_run, goodput_of
from inplace.common.protocol.last_progress import LastProgress, last_progress
from inplace.common.protocol.rank import RankLook, StallSettings
from inplace.common.protocol.stall import Look, Looked, StallState, WorkerEnded, WorkerStarted, step
from inplace.common.wire.last_progress import last_progress_text, parse_last_progress
from inplace.common.wire.phases import TEXT_BYTES_MAX, RestartPhase, phases_text
from inplace.controller.tracking.memories import LastSteps

RUNS: Final = 200
PODS: Final = 2
FAILURE_S_MIN: Final = 600.0  # mean time to a failure: a group that fails each minute has other troubles
BEGAN_S: Final = 1_790_000_000.0  # wall time of each training's beginning
PHASES: Final = {  # of a guarded sidecar, so that the text is as long as a real one
    RestartPhase.KUBELET: 1.203,
    RestartPhase.VIEW: 0.041,
    RestartPhase.ANNOUNCE: 0.012,
    RestartPhase.BARRIER: 3.021,
    RestartPhase.LIFT: 3.074,
}


@dataclass(frozen=True, slots=True)
class Job:
    """What a training is like; seconds, and steps."""

    step_s: float
    noise: float  # of one step, relative
    checkpoint_every: int
    checkpoint_s: float
    load_s: float
    failure_s: float  # mean time from a first step to a failure
    limit_s: float  # of the watchdog
    restarts: int

    @classmethod
    def drawn(cls, rng: Random) -> Job:
        """Return a random one: from steps of 0.2 s to steps of 20 s, some hundred to some thousand steps a run."""
        step_s = 0.2 * 100 ** rng.random()
        every = rng.randint(10, 100)
        return cls(
            step_s,
            rng.uniform(0.01, 0.1),
            every,
            step_s * rng.uniform(0.0, 0.05) * every,
            rng.uniform(5.0, 120.0),
            max(FAILURE_S_MIN, step_s * every * rng.uniform(3.0, 10.0)),
            max(60.0, 10 * step_s),
            rng.randint(2, 6),
        )


@dataclass(slots=True)
class Run:
    """One run as it was: when each step was told, and how long it took.

    Args:
        told: (step, when) of each call of `inplace.progress`.
        took: seconds of the work of each step, with the checkpoint after it, if there was one.
        checkpoint: the newest step that was saved.
        failed_s: when a worker died, or stopped.
    """

    told: list[tuple[int, float]] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    checkpoint: int = 0
    failed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One training: what the controller says, and the truth."""

    goodput: Goodput
    useful_s: float
    lost_s: float
    lost_steps: int
    wall_s: float
    bytes_max: int

    @property
    def error(self) -> float:
        """Return the error of the ratio, relative."""
        true = self.useful_s / self.wall_s
        return abs((self.goodput.ratio or 0.0) - true) / true


def run_of(job: Job, rng: Random, began_s: float, checkpoint: int) -> Run:
    """Make one run: load the checkpoint, then step until the failure."""
    run = Run(checkpoint=checkpoint)
    now_s = began_s + job.load_s * rng.uniform(0.8, 1.2)
    fails_s = now_s + job.step_s + rng.expovariate(1 / job.failure_s)
    number = checkpoint
    while True:
        number += 1
        work_s = job.step_s * max(0.1, rng.gauss(1.0, job.noise))
        if now_s + work_s > fails_s and run.told:
            break
        now_s += work_s
        run.told.append((number, now_s))
        run.took.append(work_s)
        if number % job.checkpoint_every == 0:
            if now_s + job.checkpoint_s > fails_s:  # half a checkpoint is none
                break
            now_s += job.checkpoint_s
            run.took[-1] += job.checkpoint_s
            run.checkpoint = number
    run.failed_s = max(fails_s, run.told[-1][1])
    return run


def pod_tells(run: Run, job: Job, rng: Random, ended_s: float, epoch: int) -> tuple[str, LastProgress]:
    """Return the annotation of one Pod, and what the controller reads of it; its looks began at a random moment."""
    told = run.told
    period_s = StallSettings(job.limit_s).period_s
    first, first_s = told[0]
    now_s = first_s - period_s * (1 + rng.random())
    state, _ = step(StallState(StallSettings(job.limit_s, 1e6)), WorkerStarted(epoch, now_s))
    seen, index = -1, -1
    while now_s < ended_s:
        now_s = min(now_s + period_s, ended_s)
        while index + 1 < len(told) and told[index + 1][1] <= now_s:
            index += 1
        ranks: tuple[RankLook, ...] = ()
        if index >= 0:
            number, at_s = told[index]
            times = {"modified_s": BEGAN_S + at_s, "first": first, "first_s": BEGAN_S + first_s}
            ranks = (RankLook("rank-0", index != seen, number, **times),)  # type: ignore[arg-type]
        seen = index
        state, _ = step(state, Looked(now_s, Look(epoch, ranks)))
    progress = last_progress(state, BEGAN_S + ended_s)
    step(state, WorkerEnded(ended_s))
    assert progress is not None, "every Pod made a step"
    text = phases_text(PHASES, BEGAN_S + ended_s + 1.2, last_progress_text(progress))
    read = parse_last_progress(text)
    assert read is not None
    return text, read


def train(seed: int) -> Outcome:
    """Run one training to its last restart; return what the controller says of it and what it was."""
    rng = Random(seed)
    job = Job.drawn(rng)
    goodput: Goodput | None = None
    runs: list[Run] = []
    now_s, checkpoint, bytes_max = 0.0, 0, 0
    for epoch in range(1, job.restarts + 2):
        run = run_of(job, rng, now_s, checkpoint)
        runs.append(run)
        checkpoint = run.checkpoint
        hangs = rng.random() < 0.5
        seen_s = run.failed_s + (job.limit_s * rng.uniform(1.0, 1.1) if hangs else rng.uniform(0.005, 1.0))
        silence = LastSteps()
        for pod in range(PODS):  # the first is the culprit, whose worker ends at its death
            ended_s = run.failed_s if pod == 0 and not hangs else seen_s + rng.uniform(0.01, 0.3)
            text, progress = pod_tells(run, job, rng, ended_s, epoch)
            bytes_max = max(bytes_max, len(text))
            silence.note(f"pod-{pod}", "", progress)
        silent = silence.result(PODS)
        goodput = after_run(goodput, silent.progress if silent else None, BEGAN_S + seen_s)
        assert goodput is not None
        goodput = goodput_of(json.loads(json.dumps({FIELD: goodput.fields()})))  # as the status keeps it
        now_s = seen_s + rng.uniform(1.0, 10.0)
    assert goodput is not None
    useful_s, lost_s, lost_steps = truth(runs)
    return Outcome(goodput, useful_s, lost_s, lost_steps, runs[-1].told[0][1] - runs[0].told[0][1], bytes_max)


def truth(runs: list[Run]) -> tuple[float, float, int]:
    """Return useful seconds, lost seconds and lost steps from the first step of all to that of the last run."""
    useful_s, lost_s = runs[-1].took[0] - runs[0].took[0], 0.0
    lost_steps = 0
    for run, after in pairwise(runs):
        again = after.told[0][0]
        for (number, _), took_s in zip(run.told, run.took, strict=True):
            if number >= again:
                lost_s += took_s
                lost_steps += 1
            else:
                useful_s += took_s
    return useful_s, lost_s, lost_steps


def outcomes(seeds: int) -> Iterator[Outcome]:
    """Yield one outcome for each seed."""
    return (train(seed) for seed in range(seeds))


def main() -> None:
    """Measure and print."""
    parser = flags(__doc__, runs=RUNS)
    parser.add_argument("--folder", help="where progress files lie; a temporary folder's file system if not said")
    options = parser.parse_args()
    figures = Figures(f"goodput of {options.runs} simulated trainings, against what the simulation counted")
    for one in outcomes(options.runs):
        truth = {"ratio": one.goodput.ratio or 0.0, "error": one.error, "lost_steps": one.lost_steps}
        wrong = {
            "lost_steps_wrong": one.goodput.lost_steps != one.lost_steps,
            "lost_error": abs(one.goodput.lost_s - one.lost_s) / one.wall_s,
        }
        figures.add("training", truth | wrong | {"annotation_bytes": one.bytes_max})
    figures.add("all trainings", {"lost_steps": sum(figures.rows["training"]["lost_steps"])})
    figures.add("bound", {"annotation_bytes": TEXT_BYTES_MAX})
    with TemporaryDirectory(dir=options.folder) as folder:
        figures.rows["inplace.progress"] = {"us": measure(Path(folder))["progress"]}
    figures.show(options)


if __name__ == "__main__":
    main()
