"""Play all stories, or those that are named, and print a table."""

from __future__ import annotations

import asyncio
import sys
import time

from tests.stories_of_failure.story import KINDS, stories
from tests.stories_of_failure.suite import Outcome, played


def _print(outcome: Outcome) -> None:
    story, so = outcome.story, "no " if outcome.wrong else "yes"
    print(f"{story.kind:<8} {story.name:<27} {outcome.seconds:5.1f} s  {so}  {story.claim}", flush=True)


async def main(names: list[str]) -> int:
    """Return 1 if a story is not as it should be."""
    chosen = [story for story in stories() if not names or story.name in names]
    began_s = time.monotonic()
    print(f"{'kind':<8} {'story':<27} {'took':>7}  so   claim")
    outcomes = await played(chosen, _print)
    for outcome in outcomes:
        if outcome.wrong:
            print(f"\n{outcome.story.name}: {outcome.story.claim}\n{outcome.wrong}")
    for kind in KINDS:
        passed = [not one.wrong for one in outcomes if one.story.kind == kind]
        print(f"\n{kind}: {sum(passed)} of {len(passed)}", end="")
    print(f", in {time.monotonic() - began_s:.0f} s")
    return int(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
