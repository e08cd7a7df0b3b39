"""
Regenerate the answers of every protocol script and of every story.

    python -m tests.rewrite [NAME...]

Commit only differences you can explain.
"""

from __future__ import annotations

import logging
import sys

import structlog

from tests.common.protocol.script_runner import run, scripts
from tests.stories.story import files, rewritten


def main() -> None:
    """Rewrite the texts whose answers changed, of these names or all, and name them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    wanted = sys.argv[1:]
    for path in (*scripts(), *files()):
        if wanted and path.stem not in wanted:
            continue
        text = path.read_text()
        if (new := run(text) if path in scripts() else rewritten(path)) != text:
            path.write_text(new)
            print(f"rewrote {path.name}")


if __name__ == "__main__":
    main()
