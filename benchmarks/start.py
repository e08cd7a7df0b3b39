"""The settings that every way of starting an agent needs, and the ways that are compared."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Protocol

from inplace.common.kube.credentials import Credentials


@dataclass(frozen=True, slots=True)
class Start:
    """One start to make.

    Args:
        tls: settings for HTTP/1.1.
        http2: settings that offer HTTP/2 alone.
    """

    credentials: Credentials
    tls: ssl.SSLContext
    http2: ssl.SSLContext
    namespace: str
    jobset: str
    pod: str


class Started(Protocol):
    """A start whose announcement is stored and whose watch is open."""

    def close(self) -> None:
        """End the watch, and every connection."""
