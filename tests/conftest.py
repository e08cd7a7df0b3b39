"""Property tests: no deadline per example, because the machine that runs them is shared."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
