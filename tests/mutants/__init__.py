"""
Planted bugs: what the campaign of faults is worth.

Each mutant is production code with one mistake in it, and `simulator.campaign` must see a property break. Those that
are named after a bug are modelled on what really happened to others. `make mutants` runs them all, prints the table of
docs/reliability.md, and fails when fewer than CAUGHT_SHARE_MIN are caught.

    python -m tests.mutants                      all of them, on all cores
    python -m tests.mutants --only NAME,NAME     some
    python -m tests.mutants --write              and put the table into docs/reliability.md

They live with the tests, not with the simulator: nobody who installs the simulator should get planted bugs. The model
checker has planted bugs of its own (tests/model/planted.py), for the protocol alone.
"""
