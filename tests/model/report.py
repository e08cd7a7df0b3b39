"""Run explorations on all cores and print the results."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from tests.model.bad_domains import explore_bad_domains
from tests.model.escalations import ESCALATIONS, explore_escalations
from tests.model.explore import Result, explore
from tests.model.guarded_pods import explore_containers_pod, explore_entrypoint_pod, explore_process_pod
from tests.model.member_parts import MembersConfig
from tests.model.members import explore_members
from tests.model.pacing import PACING_CONFIGS, explore_pacing
from tests.model.pods import Config
from tests.model.promises import explore_promises
from tests.model.resume import ResumeConfig, explore_resume
from tests.planted.bug import Bug
from tests.planted.checked import CHECKED

Task = Callable[[], Result]
PROCESSES_MAX: Final = 2  # each holds one configuration in memory, up to about 3 GiB


def explorations(
    groups: Iterable[Config], members: Iterable[MembersConfig], resume: Iterable[ResumeConfig]
) -> list[Task]:
    """Return every exploration; those that take longest come first, so that two processes end together."""
    return [
        *(partial(explore, config) for config in groups),
        *(partial(explore_members, config) for config in members),
        *(partial(explore_resume, config) for config in resume),
        *(explore_process_pod, explore_entrypoint_pod, explore_promises, explore_bad_domains, explore_containers_pod),
        *(partial(explore_pacing, config) for config in PACING_CONFIGS),
        *(
            partial(explore_escalations, annotation=annotation, uncounted=uncounted)
            for annotation, uncounted in itertools.product(ESCALATIONS, (False, True))
        ),
    ]


def run(explored: Sequence[Task], bugs: Sequence[Bug]) -> tuple[list[Result], dict[str, Result]]:
    """Explore, look for every planted bug, and print a line for each, in their order."""
    tasks: list[Task] = [*explored, *(partial(_hunt, bug.name) for bug in bugs)]
    processes = min(PROCESSES_MAX, multiprocessing.cpu_count())
    with multiprocessing.Pool(processes, maxtasksperchild=1) as pool:  # a process ends, and its memory with it
        results = pool.imap(_timed, tasks)
        found = _print_explorations(itertools.islice(results, len(explored))) if explored else []
        return found, _print_bugs(bugs, results)


def _print_explorations(results: Iterable[Result]) -> list[Result]:
    print(f"{'configuration':74} {'states':>9} {'transitions':>11} {'depth':>5} {'seconds':>7}")
    began, found = time.perf_counter(), []
    for result in results:
        found.append(result)
        print(_line(result), flush=True)
    states, transitions = sum(each.states for each in found), sum(each.transitions for each in found)
    seconds = sum(each.seconds for each in found)
    print(f"{'total':74} {states:9,} {transitions:11,} {'':5} {seconds:7.1f}")
    print(f"in {time.perf_counter() - began:.0f} s")
    return found


def _print_bugs(bugs: Sequence[Bug], results: Iterable[Result]) -> dict[str, Result]:
    """Print which rule each planted bug broke, and after how many moves."""
    print(f"\n{'planted bug':58} {'moves':>5} {'states':>8}  caught by")
    found = {}
    for bug, result in zip(bugs, results, strict=True):
        found[bug.name] = result
        caught = result.rule or "NOT CAUGHT"
        print(f"{bug.name:58} {len(result.trace):5} {result.states:8,}  {caught}", flush=True)
    return found


def _hunt(name: str) -> Result:
    """Hunt a bug by its name: the code of a mistake does not go from process to process."""
    (bug,) = (bug for bug in CHECKED if bug.name == name)
    return bug.check()


def _timed(task: Task) -> Result:
    began = time.process_time()
    result = task()
    return replace(result, seconds=time.process_time() - began)


def _line(result: Result) -> str:
    line = f"{result.name:74} {result.states:9,} {result.transitions:11,} {result.depth:5} {result.seconds:7.1f}"
    if not result.rule:
        return line
    moves = [f"  {number:3}  {text}" for number, text in enumerate(result.trace, 1)]
    return "\n".join([line, f"BROKEN: {result.rule}", *moves])
