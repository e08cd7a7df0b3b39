"""
Regenerate the output of every protocol script.

    python -m tests.common.protocol.rewrite

Commit only differences you can explain.
"""

from __future__ import annotations

from tests.common.protocol.script_runner import run, scripts


def main() -> None:
    """Rewrite the scripts whose output changed and name them."""
    for path in scripts():
        text = path.read_text()
        if (new := run(text)) != text:
            path.write_text(new)
            print(f"rewrote {path.name}")


if __name__ == "__main__":
    main()
