"""Bugs of the watchdog: it restarts healthy groups, or leaves groups that hang."""

from tests.mutants.mutant import Area, Edit, Mutant

_FOLDER = "agent/progress_folder.py"
_RANK = "common/epoch/rank.py"

WATCHDOG = (
    Mutant(
        "stale progress: files of the last epoch count in the next one",
        Area.WATCHDOG,
        (
            Edit(_FOLDER, "                if _OURS.fullmatch(name):\n", "                if not name:\n"),
            Edit(
                _FOLDER,
                "self._epoch, self._before, self._counted, self._firsts = epoch, dict(found.marks), {}, {}",
                "self._epoch, self._before, self._counted, self._firsts = epoch, {}, {}, {}",
            ),
            Edit(_FOLDER, "            if line.epoch in (None, self._epoch):\n", "            if line is not None:\n"),
        ),
        "DLRover: steps of the run before are taken for a hang of the new one",
    ),
    Mutant(
        "a step number that grows by more than one is several steps",
        Area.WATCHDOG,
        (
            Edit(
                _RANK,
                "min(old.steps + is_step, FIRST_STEPS)",
                "min(old.steps + max(is_step, (seen.step or 0) - (old.seen.step or 0)), FIRST_STEPS)",
            ),
        ),
    ),
    Mutant(
        "a hang is found and nobody is told",
        Area.WATCHDOG,
        (
            Edit(
                "agent/watchdog.py",
                "on_stall(WorkerStalled(look.epoch or 0, max(1, round(stalled.silent_s)), stalled.step))",
                "pass",
            ),
        ),
    ),
)
