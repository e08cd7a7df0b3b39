"""
Write docs/states.md: each cell of the table of common/jobset/headline.py, printed.

python -m tests.docs.states_page   rewrites the page; test_site.py checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from inplace.common.jobset.headline import (
    NO_ANSWER,
    OWN,
    PHASES,
    GroupPhase,
    Headline,
    Pulse,
    Slots,
    SlotState,
    headline,
)
from inplace.common.protocol.members import Sizes

PAGE: Final = Path(__file__).parents[2] / "docs" / "states.md"
SIZE: Final = 3  # Pods of the group in the examples
EPOCH: Final = 2

_HEAD: Final = """# What does the first line of status say?

Generated from the code by `make rewrite`; do not edit.

`inplace status JOBSET` and `inplace explain JOBSET` print one line first. One function makes it
(`common/jobset/headline.py`), from what is known of every slot, of the JobSet itself, and of the controller. The
condition `BarrierWaiting`, the metric `inplace_restart_in_progress` and the alert InplaceBarrierStuck follow the same
function. The examples have 3 Pods, and epoch 2 runs.

"It trains" needs a rank that reports steps ([hangs.md](hangs.md)). Its agent then logs `steps_begun`. `status` and
`explain` look for it in the log of one Pod.

## What is known of a slot

| state | meaning |
|---|---|
"""
_PULSE: Final = """
## What is known of the controller

The controller renews the Lease `inplace-system/inplace-controller` every 2 s. `explain` always reads it. `status` reads
it if something does not run. Both need the right to `get` it. Without the right they print `not read`, and the line is
that of a controller that answers. A controller without an election has no Lease.

| Lease | the line |
|---|---|
"""
_ONE: Final = """
## One slot, while the other two run

`restart` is `inplace_restart_in_progress`. `told` says whether `BarrierWaiting` and an Event name the Pods after 15 s.
`stopped` is the place of `the controller does not answer` in the line, if the controller has stopped.

| the slot | phase | restart | told | stopped | the line |
|---|---|---|---|---|---|
"""
_ALL: Final = """
## All slots

| all slots | phase | restart | told | stopped | the line |
|---|---|---|---|---|---|
"""
_STARTS: Final = """
## Before epoch 1

| all slots | phase | restart | told | stopped | the line |
|---|---|---|---|---|---|
"""
_MEMBERS: Final = """
## Members and spares

A group with spares is counted in members: the Pods that play a rank. These groups have 10 Pods,
`inplace.dev/members: "max=8,min=6,step=2,wait=60"`. A spare has announced the next epoch, and waits; the loss of
a spare restarts no worker. A group with fewer members than max trains, and is `Running`.

| 10 Pods | phase | restart | told | stopped | the line |
|---|---|---|---|---|---|
"""
_OWN: Final = """
## The JobSet's own state

It comes before what the slots do. A JobSet that is suspended or being deleted has no restart in progress.

| phase | stopped | the line |
|---|---|---|
"""
_LIST: Final = """
## The list

`inplace status -A` reads no Pods. Its phase is that of the same function, from what the status says: epochs,
`BarrierWaiting`, and the Jobs that completed. A Pod that was lost less than 15 s ago is not in it. `WAITS FOR` has the
words of `BarrierWaiting`.
"""
_PULSES: Final = {Pulse.BEATS: "as printed below", Pulse.UNKNOWN: "as printed below", Pulse.STOPPED: "column `stopped`"}


def slots_of(state: SlotState, *, all_of_them: bool, synced: int = EPOCH) -> Slots:
    """Return a group with one slot, or all, in a state; the others run."""
    count = SIZE if all_of_them else 1
    counts = {state: count}
    if count < SIZE:
        counts[SlotState.RUNS] = counts.get(SlotState.RUNS, 0) + SIZE - count
    return Slots(counts, synced, synced - 1 if synced else 0, first={state: "train-w-0-2"})


def members_of(
    counts: Mapping[SlotState, int],
    *,
    deprecated: int = EPOCH - 1,
    vacant: str = "",
    first: Mapping[SlotState, str] = MappingProxyType({}),
) -> Slots:
    """Return a group of 10 Pods of which 8 train, or 6."""
    return Slots(counts, EPOCH, deprecated, first=first, sizes=Sizes(6, 8, 2), spares_max=2, vacant=vacant)


_VACANT: Final = "slot 3 is vacant: no Pod"
MEMBERS: Final[Mapping[str, Slots]] = {
    "8 train, 2 are spares": members_of({SlotState.STEPS: 8, SlotState.SPARE: 2}),
    "slot 3 was lost, and a spare has its rank": members_of({SlotState.STEPS: 8, SlotState.SPARE: 1}, vacant=_VACANT),
    "no spare is left": members_of({SlotState.STEPS: 8}, vacant="2 slots are vacant, the first is slot 3: no Pod"),
    "6 train": members_of(
        {SlotState.STEPS: 6, SlotState.SPARE: 1}, vacant="3 slots are vacant, the first is slot 3: no Pod"
    ),
    "a member is lost, 2 are spares": members_of(
        {SlotState.STEPS: 7, SlotState.SPARE: 2, SlotState.VACANT: 1}, first={SlotState.VACANT: "train-w-0-2"}
    ),
    "5 are back, 2 were spares": members_of(
        {SlotState.WAITING: 7, SlotState.PENDING: 2, SlotState.VACANT: 1}, deprecated=EPOCH
    ),
    "9 are back": members_of({SlotState.WAITING: 9, SlotState.VACANT: 1}, deprecated=EPOCH),
    "9 are back, and slot 2 may still run": members_of(
        {SlotState.WAITING: 9, SlotState.PENDING: 1}, deprecated=EPOCH, first={SlotState.PENDING: "train-w-0-2"}
    ),
}

UNEQUIPPED_SLOTS: Final = Slots({SlotState.PENDING: SIZE}, 0, 0, is_unequipped=True)  # annotated while it ran


def page() -> str:
    """Return the page."""
    states = "".join(f"| {state.name.lower()} | {state.value} |\n" for state in SlotState)
    pulses = "".join(f"| {pulse.value} | {words} |\n" for pulse, words in _PULSES.items())
    ones = "".join(_rows(all_of_them=False))
    everything = "".join(_rows(all_of_them=True))
    starts = "".join(
        _row(state.name.lower(), slots_of(state, all_of_them=True, synced=0))
        for state in (SlotState.VACANT, SlotState.PENDING, SlotState.WAITING)
    ) + _row("pending, and no Pod has an agent", UNEQUIPPED_SLOTS)
    own = "".join(
        f"| {name} | {_place(_line(phase, Pulse.STOPPED, is_queued=queued))} "
        f"| {_line(phase, Pulse.BEATS, is_queued=queued).text} |\n"
        for phase in OWN
        for name, queued in _names(phase)
    )
    members = "".join(_row(name, slots) for name, slots in MEMBERS.items())
    parts = (_HEAD, states, _PULSE, pulses, _ONE, ones, _ALL, everything, _STARTS, starts, _MEMBERS, members, _OWN, own)
    return "".join(parts) + _LIST


def _names(phase: GroupPhase) -> Iterator[tuple[str, bool]]:
    yield phase.value, False
    if phase is GroupPhase.SUSPENDED:
        yield f"{phase.value}, with a queue", True


def _line(phase: GroupPhase, pulse: Pulse, *, is_queued: bool) -> Headline:
    return headline((), own=phase, pulse=pulse, is_queued=is_queued)


def _rows(*, all_of_them: bool) -> Iterator[str]:
    for state in PHASES:
        yield _row(state.name.lower(), slots_of(state, all_of_them=all_of_them))


def _row(name: str, slots: Slots) -> str:
    line, stopped = (headline([slots], pulse=pulse) for pulse in (Pulse.BEATS, Pulse.STOPPED))
    waits = slots.is_restarting or slots.phase is GroupPhase.STARTING
    marks = f"{_mark(slots.is_restarting)} | {_mark(waits)}"
    return f"| {name} | {line.phase.value} | {marks} | {_place(stopped)} | {line.text} |\n"


def _place(stopped: Headline) -> str:
    """Return where the line says that the controller does not answer."""
    if NO_ANSWER not in stopped.text:
        return "not said"
    return "first" if stopped.text.startswith(NO_ANSWER) else "last"


def _mark(holds: bool) -> str:
    return "yes" if holds else "no"


if __name__ == "__main__":
    PAGE.write_text(page())
