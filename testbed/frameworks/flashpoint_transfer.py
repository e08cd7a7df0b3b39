"""Stand in for the C++ transfer service of ML Flashpoint 0.0.10: there is none, so nothing is copied to a peer."""

from __future__ import annotations


class TransferService:
    """No service; who asks it for anything gets an AttributeError."""
