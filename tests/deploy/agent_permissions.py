"""
Print every attempt against an agent's permissions with the answer of a real kube-apiserver.

    python -m tests.deploy.agent_permissions            each attempt, its answer, and what the policy alone answers
    python -m tests.deploy.agent_permissions --write    the table of docs/stolen-token.md, from the same answers
"""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path
from typing import Final

from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from tests.cluster.agent_scene import Answer, agent_scene
from tests.deploy.agent_attempts import ATTEMPTS, OTHERWISE, POLICY, Attempt

PAGE: Final = Path(__file__).parents[2] / "docs" / "stolen-token.md"
HEAD: Final = "| attempt | as shipped | were RBAC to allow everything |\n|---|---|---|\n"
_TABLE: Final = re.compile(re.escape(HEAD) + r"(\|[^\n]*\n)*")


def refuser(answer: Answer) -> str:
    """Return in one word which part of the server refused."""
    if any(f"ValidatingAdmissionPolicy '{name}'" in answer.message for name in (POLICY, OTHERWISE)):
        return "policy"
    return {401: "authentication", 403: "RBAC", 422: "validation"}.get(answer.code, "nobody")


def row(attempt: Attempt, answer: Answer) -> str:
    """Return the page's line for an attempt with the permissions that we ship."""
    return f"| {attempt.claim} | {answer.code}, {refuser(answer)} | {'403, policy' if attempt.words else '-'} |"


async def answers(*, is_mighty: bool) -> dict[str, Answer]:
    """Return the server's answer to each attempt, by its claim."""
    async with ControlPlane(find_binaries()) as plane, agent_scene(plane, is_mighty=is_mighty) as scene:
        wanted = [attempt for attempt in ATTEMPTS if attempt.words or not is_mighty]
        return {attempt.claim: await scene.answer(attempt) for attempt in wanted}


def show(shipped: dict[str, Answer], alone: dict[str, Answer]) -> None:
    """Print all answers."""
    for number, attempt in enumerate(ATTEMPTS, 1):
        answer = shipped[attempt.claim]
        print(f"{number:2}. {attempt.claim}\n    {answer.code}, {refuser(answer)}: {answer.message}")
        if refuser(answer) != "policy" and attempt.claim in alone:
            other = alone[attempt.claim]
            print(f"    were RBAC to allow it: {other.code}, {refuser(other)}: {other.message}")
    refused = sum(answer.code >= 400 for answer in shipped.values())
    refused_alone = sum(refuser(answer) == "policy" for answer in alone.values())
    print(f"{refused} of {len(shipped)} attempts refused; {refused_alone} of {len(alone)} by the policy alone")


def main() -> None:
    """Run every attempt twice, on two servers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table of docs/stolen-token.md")
    options = parser.parse_args()
    shipped = asyncio.run(answers(is_mighty=False))
    show(shipped, asyncio.run(answers(is_mighty=True)))
    if options.write:
        rows = "".join(row(attempt, shipped[attempt.claim]) + "\n" for attempt in ATTEMPTS)
        text, count = _TABLE.subn(lambda _: HEAD + rows, PAGE.read_text())
        assert count == 1, f"{PAGE}: expected one table of attempts, saw {count}"
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
