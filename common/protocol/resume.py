"""
From which step an epoch goes on: the newest that every member can load. The barrier lifts with it.

Each Pod announces what it could load, as its ranks said with `inplace.saved`:

    local    in the Pod's own memory or disk, where no other Pod can read it; gone with the Pod
    shared   on storage that every Pod can read: one Pod that knows of it is enough
    unfit    could not be loaded, although a rank had said that it was there

A local step is one rank's part of the whole. It belongs to the run that made it, and to the rank and the number of
ranks of that run. So a Pod keeps its local steps only where its next run goes on from one of them (`local_after`): a
step that is made again must not be put together with an older one of the same number.

Pure, and on the agent's start path. docs/adr/0108
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

LOCAL_STEPS_MAX: Final = 4  # that one Pod tells of: its ranks may be some steps apart


@record
class Resume:
    """From which step the members of an epoch go on; `local`: each from its own copy."""

    step: int
    local: bool

    @property
    def kind(self) -> str:
        """Return its name on the wire."""
        return "local" if self.local else "shared"


@record
class Saved:
    """What one Pod could load.

    Args:
        local: at most LOCAL_STEPS_MAX steps, the newest first.
        shared: the newest one; None for none.
        unfit: the last one that this Pod could not load; None for none.
    """

    local: tuple[int, ...] = ()
    shared: int | None = None
    unfit: int | None = None


NOTHING: Final = Saved()


def choose_resume(pods: Iterable[Saved | None], *, same: bool, tellers: Iterable[Saved | None]) -> Resume | None:
    """Return from which step an epoch goes on; None where nobody can say.

    Args:
        pods: of every member; None for one that told nothing.
        same: every member plays the rank that it played before, of so many ranks: else local steps are of no use.
        tellers: whose word about shared steps counts.
    """
    members = list(pods)
    unfit = {saved.unfit for saved in members if saved is not None}
    lists = [frozenset(saved.local if saved is not None else ()) for saved in members]
    local = frozenset.intersection(*lists) - unfit if same and lists else frozenset[int]()
    shared = {saved.shared for saved in tellers if saved is not None and saved.shared is not None} - unfit
    found = [Resume(step, local=False) for step in shared] + [Resume(step, local=True) for step in local]
    return max(found, key=lambda resume: (resume.step, resume.local), default=None)


def local_after(local: tuple[int, ...], resume: Resume | None) -> tuple[int, ...]:
    """Return which local steps of earlier runs a member still has once an epoch goes on from `resume`."""
    if resume is None or not resume.local:
        return ()
    return tuple(step for step in local if step <= resume.step)
