"""The benchmark of a failure's price reads the ranks' lines, and shares its kills among its rounds."""

from __future__ import annotations

import pytest

from benchmarks.resume import ROUNDS, gone_on_from, made, newest_shared, rows

BEGUN = b"rank=%d world=2 epoch=2 goes on from step %d\n"
STEP = b"step=%d loss=0.1 epoch=2 rank=%d\nwrote local step=%d in 3.5 ms, 2.5 ms of CPU\n"
SHARED = b"wrote shared step=50 in 80.0 ms, 70.0 ms of CPU\n"


def rank(number: int, *steps: int, begun: int = 48) -> bytes:
    """Return what a rank printed that made these steps; rank 0 writes the shared one."""
    lines = [STEP % (step, number, step) + (SHARED if step == 50 and not number else b"") for step in steps]
    return BEGUN % (number, begun) + b"".join(lines)


def test_a_step_is_made_when_all_ranks_made_it() -> None:
    """The slowest counts; a shared step counts once all made another one, because then all have told of it."""
    assert made([rank(0, 49, 50, 51), rank(1, 49)]) == 49
    assert newest_shared([rank(0, 49, 50), rank(1, 49, 50)]) == 0
    assert newest_shared([rank(0, 49, 50, 51), rank(1, 49, 50, 51)]) == 50


def test_ranks_that_go_on_from_two_steps_end_the_benchmark() -> None:
    """It has found a mistake, and no figure hides it."""
    assert gone_on_from([rank(0, begun=48), rank(1, begun=48)]) == 48
    with pytest.raises(AssertionError, match=r"expected all ranks to go on from one step, saw \[47, 48\]"):
        gone_on_from([rank(0, begun=48), rank(1, begun=47)])


def test_a_rank_that_gave_its_place_to_a_spare_does_not_count() -> None:
    """It went on in an older epoch, and waits since then; a Pod that is new and said nothing yet is left out, too."""
    waits = rank(1, 20, begun=10).replace(b"epoch=2 goes", b"epoch=1 goes")
    assert gone_on_from([rank(0, 49, begun=48), waits, b""]) == 48
    assert made([rank(0, 49, begun=48), waits, b""]) == 49


@pytest.mark.parametrize(("kills", "losses"), [(100, 30), (3, 1), (1, 1)])
def test_the_rounds_together_have_what_was_asked_for(kills: int, losses: int) -> None:
    """All kills and losses are in the row with memory; the others have a fifth, rounded up."""
    every = [row for number in range(ROUNDS) for row in rows(kills, losses, number)]
    assert sum(row.kills for row in every if row.key == "memory") == kills
    assert sum(row.losses for row in every) == losses
    for key in ("shared", "standby"):
        assert sum(row.kills for row in every if row.key == key) == -(-kills // ROUNDS)
