"""
Planted bugs: production with a mistake in a function or two, and who must find each (`bug.py`, `catalogue.py`).

    python -m tests.planted                          hunt all of them, on all cores, by all who find them
    python -m tests.planted --by campaign,stories    by these
    python -m tests.planted --only NAME,NAME         some
    python -m tests.planted --list                   say who finds which
    python -m tests.planted --by campaign --write    and put the results into docs/planted-bugs.md; with --only, too

The campaign of faults (`simulator.campaign`) must see a property break; a bug that names an issue is modelled on a real
bug of another project. The model checker (`tests.model`) must see a rule break; `make model` hunts its bugs as well. Of
a family of stories (`tests.stories`) one must turn red.

Tried and not in the list, because other code prevents the effect: a new Pod that believes a stale cache (its first list
is consistent anyway), an older view that takes back a newer one (a watch goes on from its version), a list from any
server's cache (a status write from the past is a conflict). Not seen in 60 to 94 runs, so no known fault shows it: an
informer that reports a namesake as a change.

They are with the tests, not with the simulator, because an installed simulator must not contain planted bugs.
"""
