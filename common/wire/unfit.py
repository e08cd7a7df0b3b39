"""How a Pod says that its check before the announcement failed: its container's exit code and termination message."""

from __future__ import annotations

from inplace.common.bare.typed import Final

CHECK_FAILED_EXIT_CODE: Final = 6
WORDS: Final = "the check before the announcement failed"  # the message begins with them; any program may exit with 6
