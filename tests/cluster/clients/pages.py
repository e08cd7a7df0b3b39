"""The commands and manifests of docs/with-kueue.md and docs/with-trainer.md, and how to run them."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cli.command import REPOSITORY

COMMAND_S_MAX: Final = 120.0  # an apply of Kueue's objects takes three seconds
COMMANDS: Final = ("inplace", "kubectl")


def page(name: str) -> str:
    """Return a page of docs/."""
    return (REPOSITORY / "docs" / name).read_text()


def blocks(name: str) -> list[str]:
    """Return a page's indented blocks."""
    return blocks_of(page(name))


def blocks_of(text: str) -> list[str]:
    """Return the indented blocks of a text."""
    found = re.findall(r"(?:^    .*\n(?:^\n(?=    ))*)+", text, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def page_commands(name: str) -> list[str]:
    """Return a page's commands, with those lines that continue them."""
    lines = "".join(blocks(name)).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.startswith(COMMANDS)]


def saved(name: str) -> dict[str, str]:
    """Return the files that a page lets its reader save: each is the first block after its name."""
    text = page(name)
    found = {}
    for match in re.finditer(r"as\s+([\w-]+\.yaml):\n|as\s+([\w-]+\.yaml)\. .*\n", text):
        block = re.search(r"(?:^    .*\n)+", text[match.end() :], re.MULTILINE)
        assert block is not None, f"no block after {match[0]!r}"
        found[match[1] or match[2]] = re.sub(r"^    ", "", block[0], flags=re.MULTILINE)
    return found


async def run_command(kubeconfig: Path, command: str, *, folder: Path = REPOSITORY, stdin: str = "") -> str:
    """Run a command as a person would type it, and return what it printed; it must succeed."""
    path = os.pathsep.join((str(REPOSITORY / ".venv" / "bin"), os.environ["PATH"]))
    process = await asyncio.create_subprocess_exec(
        *("bash", "-o", "pipefail", "-c", command),
        cwd=folder,
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(COMMAND_S_MAX):
        out, err = await process.communicate(stdin.encode())
    assert process.returncode == 0, f"{command}: {process.returncode}\n{out.decode()}\n{err.decode()}"
    return out.decode()


def changed(command: str, replacements: Sequence[tuple[str, str]]) -> str:
    """Return a command with a test's names in place of the page's; each must be there."""
    for old, new in replacements:
        assert old in command, f"expected {old!r} in {command!r}"
        command = command.replace(old, new)
    return command
