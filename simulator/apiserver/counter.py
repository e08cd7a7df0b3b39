"""Count the requests that a server received; tests and benchmarks compare them with a budget."""

from __future__ import annotations

from collections import Counter

RequestKey = tuple[str, str, str]
"""Verb (get, list, watch, create, update, patch, delete, ...), resource with subresource, user-agent family."""


class RequestCounter(Counter[RequestKey]):
    """A Counter of requests by (verb, resource, user-agent family).

    Attributes:
        rejected: requests answered 429, also counted by their key.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rejected = 0

    def of(self, *, verb: str | None = None, resource: str | None = None, family: str | None = None) -> int:
        """Return the number of requests that match every given part."""
        return sum(
            count
            for (v, r, f), count in self.items()
            if verb in (None, v) and resource in (None, r) and family in (None, f)
        )


def family_of(user_agent: str) -> str:
    """Return a user agent's family: the part before its version."""
    return user_agent.partition("/")[0] or "unknown"
