"""
The protocol, pure: no asyncio, no clock, no randomness, no logging, no I/O.

`agent` is the machine that every worker Pod runs; the controller decides with `ledger`. The two programs, the tests and
the model checker (tests/model) all run this code. The package re-exports nothing, because the agent's start path must
not load the ledger.
"""
