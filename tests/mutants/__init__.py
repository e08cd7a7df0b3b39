"""
Planted bugs, which the campaign of faults must find.

Each mutant is production with a mistake in a function or two (`tests.mistakes`), and `simulator.campaign` must see a
property break. A mutant that names an issue is modelled on a real bug of another project. `make mutants` runs them all,
prints the table of docs/planted-bugs.md, and fails when one is not caught.

    python -m tests.mutants                      all of them, on all cores
    python -m tests.mutants --only NAME,NAME     some
    python -m tests.mutants --write              and put the table into docs/planted-bugs.md

Tried and not in the list, because other code prevents the effect: a new Pod that believes a stale cache (its first list
is consistent anyway), an older view that takes back a newer one (a watch goes on from its version), a list from any
server's cache (a status write from the past is a conflict). Not seen in 60 to 94 runs, so no known fault shows it: an
informer that reports a namesake as a change.

They are with the tests, not with the simulator, because an installed simulator must not contain planted bugs. The
model checker has planted bugs of its own (tests/model/catalogue.py), only for the protocol.
"""
