"""
How long a worker may be silent, as this Pod's workers showed so far: a limit that nobody has to set.

    between two steps      3 times the longest step so far, 300 s at least; unknown until 20 steps were seen
    before the first ones  3 times the longest start so far, 900 s at least; unknown until one was seen

Each step of a look counts once, however many were made since the look before. Not counted: the first three of a run,
which compile, those beside a busy phase, and the time for which a busy rank was waited for. Who is silent for longer is
told of, and nothing restarts because of it unless somebody asks for that (docs/adr/0109). Pure.
"""

from __future__ import annotations

from inplace.common.bare.record import record, replace
from inplace.common.bare.typed import Final

FACTOR: Final = 3.0  # of the longest so far: data gets heavier, and a checkpoint later is larger
STEP_S_MIN: Final = 300.0  # an evaluation or a checkpoint takes minutes, and the first one is not known yet
START_S_MIN: Final = 900.0  # as for a step; a start also loads and compiles
STEPS_MIN: Final = 20
ENDED_FACTOR: Final = 2.0  # a silence that a restart ended may have been a pause: the next one may be so much longer
LIMIT_S_MAX: Final = 3_600.0  # which ended silences may bring about


@record
class LearnedLimits:
    """What a Pod's workers took so far; the Pod's agent remembers it across restarts in place.

    Args:
        step_s: the longest step, seconds; 0 before one was seen.
        steps: so many were seen, up to STEPS_MIN.
        start_s: the longest time from a start to the first step; 0 before one was seen.
        ended_s: the limit since a restart ended a longer silence than the one before allowed; 0 for none.
    """

    step_s: float = 0.0
    steps: int = 0
    start_s: float = 0.0
    ended_s: float = 0.0

    @property
    def limit_s(self) -> float | None:
        """Return for how long a rank may make no step; None while that is unknown."""
        if self.steps < STEPS_MIN:
            return None
        return max(FACTOR * self.step_s, STEP_S_MIN, self.ended_s)

    @property
    def start_limit_s(self) -> float | None:
        """Return for how long the first steps of a run may take; None while that is unknown."""
        return max(FACTOR * self.start_s, START_S_MIN, self.ended_s) if self.start_s else None

    def with_step(self, step_s: float) -> LearnedLimits:
        """Take in what a step took, seconds."""
        if self.steps == STEPS_MIN and step_s <= self.step_s:
            return self
        return replace(self, step_s=max(self.step_s, step_s), steps=min(self.steps + 1, STEPS_MIN))

    def with_start(self, start_s: float) -> LearnedLimits:
        """Take in how long a run took to its first step, seconds."""
        return self if start_s <= self.start_s else replace(self, start_s=start_s)

    def with_end(self, limit_s: float) -> LearnedLimits:
        """Take in that a worker ended while it was silent for longer than a limit."""
        return replace(self, ended_s=max(self.ended_s, min(ENDED_FACTOR * limit_s, LIMIT_S_MAX)))
