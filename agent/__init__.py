"""
The agent: announces its Pod's epoch, holds the barrier, and makes the Pod restart in place.

Start at `agent.main`. Modules on the start path import nothing that the announcement does not need.
"""
