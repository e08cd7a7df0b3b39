"""
The protocol, pure: no asyncio, no clock, no randomness, no logging, no I/O.

`agent` is the machine every worker Pod runs, `ledger` is what the controller decides with. Both are driven by tests,
by the model checker (tests/model) and by the two programs, unchanged. Nothing is re-exported: the agent's start path
must not load the ledger.
"""
