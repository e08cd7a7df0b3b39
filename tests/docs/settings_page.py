"""
Write docs/settings.md: the table of common/jobset/settings.py, printed.

python -m tests.docs.settings_page   rewrites the page; test_site.py checks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from inplace.common.jobset.settings import OF_GROUPS, Setting

PAGE: Final = Path(__file__).parents[2] / "docs" / "settings.md"

_HEAD: Final = """# Which settings are there?

Generated from the code by `make rewrite`; do not edit.

A setting is an annotation of the JobSet. Its value is a number or a word, or parts `name=value` with commas between, in
any order:

    metadata:
      annotations:
        inplace.dev/restart-in-place: "10"
        inplace.dev/stall: "120"
        inplace.dev/failures: no-progress=3,backoff=5

A value alone is that of the first part. `+` stands between several names. One part that cannot be read makes its
annotation mean nothing. The condition `SpecProblem` of the JobSet then says what was expected, what was seen, and what
holds; `inplace lint` says it before. All but `restart-scope` may change at any time, and
[manifests.md](manifests.md#settings) says how they reach the Pods.

Three keys have a value of their own kind:

| annotation | value |
|---|---|
| `inplace.dev/restart-in-place` | how many restarts in place there may be ([more](manifests.md#one-annotation)) |
| `inplace.dev/restart-scope` | `JobSet`, `Group` or `ReplicatedJob`: what restarts together; it cannot change |
| `inplace.dev/restart-requested` | a new id restarts the group once; `inplace restart` writes it |
"""


def page() -> str:
    """Return the page."""
    return f"{_HEAD}{''.join(map(_section, OF_GROUPS))}"


def _section(setting: Setting) -> str:
    rows = "".join(f"{row}\n" for row in _rows(setting))
    return (
        f"\n## {setting.key}\n\n{setting.says[0].upper()}{setting.says[1:]}. Where it cannot be read: "
        f"{setting.effect}.\n\n| part | value | meaning | without it |\n|---|---|---|---|\n{rows}"
    )


def _rows(setting: Setting) -> Iterator[str]:
    alone = len(setting.parts) == 1
    for number, part in enumerate(setting.parts):
        name = "(alone)" if alone else f"`{part.name}`{', or alone' if number == 0 else ''}"
        yield f"| {name} | {part.expected} | {part.says} | {part.default} |"


if __name__ == "__main__":
    PAGE.write_text(page())
