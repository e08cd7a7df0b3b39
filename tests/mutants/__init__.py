"""
Planted bugs: what the campaign of faults is worth.

Each mutant is production code with one mistake in it, and `simulator.campaign` must see a property break. Those that
are named after a bug are modelled on what really happened to others. `make mutants` runs them all, prints the table of
docs/reliability.md, and fails when fewer than CAUGHT_SHARE_MIN are caught.

    python -m tests.mutants                      all of them, on all cores
    python -m tests.mutants --only NAME,NAME     some
    python -m tests.mutants --write              and put the table into docs/reliability.md

Tried and not in the list, because something else guards the same: a new Pod that believes a stale cache (its first list
is consistent anyway), an older view that takes back a newer one (a watch goes on from its version), a list from any
server's cache (a status write from the past is a conflict). Not seen in 60 to 94 runs, so a hole until somebody finds
the fault that shows them: an agent that takes a namesake for its JobSet, an informer that tells a namesake as changed.

They live with the tests, not with the simulator: nobody who installs the simulator should get planted bugs. The model
checker has planted bugs of its own (tests/model/planted.py), for the protocol alone.
"""
