"""For all tests: what the machine that runs them is like must not matter."""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("shared", deadline=None)  # no deadline per example: others use the machine too
settings.load_profile("shared")

# A shell that starts the tests in its background lets them ignore SIGINT, and their processes after them.
signal.signal(signal.SIGINT, signal.default_int_handler)
