"""
Make the cluster agree with each JobSet, and decide when a group restarts in place.

    informers -> ledger + caches -> workqueue(key) -> observe() -> plan() -> execute() -> status

`plan` and everything it calls is pure; `runtime.Controller` is the shell around it and runs unchanged on a
cluster, on the embedded API server and under virtual time.
"""
