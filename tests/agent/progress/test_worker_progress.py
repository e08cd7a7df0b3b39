"""Whether a worker that ends got further than those before it."""

from inplace.agent.progress.worker_progress import WorkerProgress
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire.last_progress import LONG_S, last_progress_text


def test_a_higher_step_is_progress_and_the_same_step_is_none() -> None:
    """A worker that fails where the last one did was restarted in vain, however long it ran."""
    progress = WorkerProgress()
    told = [last_progress_text(LastProgress(step, 1.0)) for step in (5, 5, 4, 6, None)]
    assert [progress.after_run(text, 10 * LONG_S) for text in told] == [True, False, False, True, False]


def test_without_steps_a_long_run_is_progress() -> None:
    """Nobody tells steps: only a run of a minute or more was not in vain."""
    progress = WorkerProgress()
    assert [progress.after_run("", ran_s) for ran_s in (1.0, LONG_S, LONG_S - 1.0)] == [False, True, False]


def test_the_best_step_of_earlier_containers_counts() -> None:
    """A step that a worker of an earlier container reached is none further."""
    assert not WorkerProgress(70).after_run(last_progress_text(LastProgress(70, 1.0)), 1.0)
    assert WorkerProgress(70).after_run(last_progress_text(LastProgress(71, 1.0)), 1.0)
