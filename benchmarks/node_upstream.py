"""
Restart a group on a real node under upstream's agent and controller, and under ours, in turn on one machine.

Two controllers do not share a cluster, so each part is a cluster of its own, in a capsule of its own: upstream's, ours,
upstream's, ours. What disturbs the machine for minutes disturbs both.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from testbed.go_programs import upstream_sources
from testbed.node import archives, capsule, prepare

Measured = dict[str, list[dict[str, float]]]

TURNS: Final = 2  # of each cluster; each costs half a minute


def prepare_upstream() -> None:
    """Download and build what is upstream's: inside of a capsule there is no network."""
    upstream_sources()
    archives.build_upstream_agent()


class PartFailedError(Exception):
    """A part of the comparison ended with this exit code; it said why itself."""


def compare(pods: int, rounds: int, seed: int, ours: Sequence[str], *, restricted: bool) -> Measured:
    """Return the moments of each restart for mode `upstream` and for our modes.

    Raises:
        PartFailedError: a cluster could not run, or a restart broke a rule.
    """
    if code := prepare.main():
        raise PartFailedError(f"expected everything that a node needs, saw exit code {code}")
    prepare_upstream()
    measured: Measured = {}
    for turn in range(TURNS):
        share = rounds // TURNS + (turn < rounds % TURNS)
        for modes in (("upstream",), ours):
            if share:
                found = _part(modes, pods, share, seed + turn, restricted=restricted)
                measured = {mode: [*measured.get(mode, []), *found.get(mode, [])] for mode in {**measured, **found}}
    return measured


def _part(
    modes: Sequence[str], pods: int, rounds: int, seed: int, *, restricted: bool
) -> Mapping[str, list[dict[str, float]]]:
    """Measure some modes in a cluster in a capsule."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        flags = {"--pods": pods, "--rounds": rounds, "--seed": seed, "--raw": file.name}
        words = [str(word) for pair in flags.items() for word in pair] + [f"--mode={mode}" for mode in modes]
        command = (sys.executable, "-m", "benchmarks.node", *words, *(["--restricted"] if restricted else []))
        if code := capsule.run(command):
            raise PartFailedError(f"expected {' '.join(command)} to succeed, saw exit code {code}")
        found: Mapping[str, list[dict[str, float]]] = json.loads(Path(file.name).read_text())
        return found
