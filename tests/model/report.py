"""Run explorations on all cores and print the results."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

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

_Item = TypeVar("_Item")
ESCALATION_RUNS: Final = tuple(itertools.product(ESCALATIONS, (False, True)))  # and whether a failed Job counts
PROCESSES_MAX = 2  # each holds one configuration in memory, up to about 1.5 GiB


def run_configurations(
    configs: Sequence[Config], members: Sequence[MembersConfig], resume: Sequence[ResumeConfig]
) -> list[Result]:
    """Explore every configuration and print a line for each, as they finish."""
    print(f"{'configuration':74} {'states':>9} {'transitions':>11} {'depth':>5} {'seconds':>7}")
    began, results = time.perf_counter(), []
    pods = [explore_containers_pod(), explore_process_pod(), explore_entrypoint_pod(), explore_promises()]
    pods.append(explore_bad_domains())
    plans = (_in_parallel(_climb, ESCALATION_RUNS), _in_parallel(explore_pacing, PACING_CONFIGS))
    groups = (
        _in_parallel(explore_members, members),
        _in_parallel(explore_resume, resume),
        _in_parallel(explore, configs),
    )
    for result in itertools.chain(pods, *plans, *groups):
        results.append(result)
        print(_line(result), flush=True)
    states, transitions = sum(each.states for each in results), sum(each.transitions for each in results)
    print(f"{'total':74} {states:9,} {transitions:11,} {'':5} {time.perf_counter() - began:7.1f}")
    return results


def run_bugs(bugs: Sequence[Bug]) -> dict[str, Result]:
    """Look for every planted bug and print which rule it broke, and after how many moves."""
    print(f"\n{'planted bug':58} {'moves':>5} {'states':>8}  caught by")
    results = {}
    for bug, result in zip(bugs, _in_parallel(_hunt, [bug.name for bug in bugs]), strict=True):
        results[bug.name] = result
        caught = result.rule or "NOT CAUGHT"
        print(f"{bug.name:58} {len(result.trace):5} {result.states:8,}  {caught}", flush=True)
    return results


def _hunt(name: str) -> Result:
    """Hunt a bug by its name: the code of a mistake does not go from process to process."""
    (bug,) = (bug for bug in CHECKED if bug.name == name)
    return bug.check()


def _climb(run: tuple[str, bool]) -> Result:
    return explore_escalations(run[0], uncounted=run[1])


def _in_parallel(task: Callable[[_Item], Result], items: Iterable[_Item]) -> Iterable[Result]:
    """Yield results in the order of the items."""
    processes = min(PROCESSES_MAX, multiprocessing.cpu_count())
    with multiprocessing.Pool(processes, maxtasksperchild=1) as pool:  # a process ends, and its memory with it
        yield from pool.imap(task, items)


def _line(result: Result) -> str:
    line = f"{result.name:74} {result.states:9,} {result.transitions:11,} {result.depth:5} {result.seconds:7.1f}"
    if not result.rule:
        return line
    moves = [f"  {number:3}  {text}" for number, text in enumerate(result.trace, 1)]
    return "\n".join([line, f"BROKEN: {result.rule}", *moves])
