"""
Kubernetes plumbing: errors, clock, backoff, client, watch, informer, workqueue, fair queue; `http` below them.

Import the module you need: this package re-exports nothing, because the agent's start path pays for every import.
"""
