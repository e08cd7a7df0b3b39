"""
Make `faults.txt`: groups of real ranks that fail on this machine, and what each rank left.

    sudo .venv/bin/python -m tests.corpus.generate [--groups 360] [--seed 54]

Each kind of `tests.corpus.kinds` has its turn, with a random world, rank, step and way to end, all of one seed. It
mounts two small file systems below a temporary folder and makes a memory group, so it needs root; it takes 20 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from inplace.agent.progress.last_words import last_words
from inplace.common.wire.last_line import is_bare_exit, last_line_of
from testbed.frameworks.venv import environment
from tests.corpus.faults import FILE, HEAD, Fault, RankEnd, text_of
from tests.corpus.kinds import BOTH, KINDS

ROOT: Final = Path(__file__).parents[2]
GROUPS: Final = 360
SEED: Final = 54
JAX_SHARE: Final = 0.35  # of kinds that both have: one of its groups takes some seconds
ALL_SHARE: Final = 0.1  # of groups all of whose ranks have the fault
TELLS_SHARE: Final = 0.6  # of scripts that call inplace.progress
ENDS: Final = {"plain": 0.6, "finally": 0.2, "late": 0.15, "finally-late": 0.05}  # of scripts, and how often
STEPS_MAX: Final = 6


def cases(groups: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the groups, in turns through the kinds."""
    rng, names, seen = Random(seed), list(KINDS), set()
    for number in range(groups):
        kind = KINDS[name := names[number % len(names)]]
        framework = kind.of[0] if kind.of != BOTH else ("jax" if rng.random() < JAX_SHARE else "torch")
        world = rng.randint(2, 4 if framework == "torch" else 3)
        rank = kind.rank if kind.rank is not None else rng.randrange(world)
        ranks = list(range(world)) if not kind.alone and rng.random() < ALL_SHARE else [rank]
        step, tells = rng.randint(0, STEPS_MAX), rng.random() < TELLS_SHARE
        cleans_up = framework == "torch" and kind.at == "step" and not kind.hangs
        end = rng.choices(list(ENDS), list(ENDS.values()))[0] if cleans_up else "plain"
        who = "all" if len(ranks) > 1 else f"rank{rank}"
        where = "start" if kind.at == "start" else f"step{step}"
        case = (
            f"{framework}/{name}/{who}of{world}/{where}"
            + ("/tells" if tells else "")
            + ("" if end == "plain" else f"/{end}")
        )
        if case in seen:
            continue
        seen.add(case)
        yield {
            "name": case,
            "framework": framework,
            "kind": name,
            "world": world,
            "ranks": ranks,
            "step": step,
            "tells": tells,
            "end": end,
            "pause_s": round(rng.uniform(0.2, 1.5), 2),
            "seed": rng.randrange(1 << 30),
        }


def record(found: dict[str, Any], place: Path) -> Fault | None:
    """Return what a group left; None where its fault did not come."""
    case, ends, faults_s = found["case"], [], []
    for one in found["ranks"]:
        folder = place / str(one["rank"])
        if one["fault_s"] is not None:
            faults_s.append(one["fault_s"])
        words = last_words(str(folder / "progress"), 1)
        said = last_line_of((folder / "out").read_text(errors="replace"))
        line = said if words is None or (is_bare_exit(words.line) and said) else last_line_of(words.line)
        step = None
        for file in (folder / "progress").glob("rank-*"):
            with suppress(ValueError, IndexError):
                step = int(file.read_text().split()[2])
        ends.append((one, words, line, step))
    if not faults_s:
        return None
    began_s = min(faults_s)
    return Fault(
        case["name"],
        KINDS[case["kind"]].truth,
        frozenset(case["ranks"]),
        tuple(
            RankEnd(
                one["rank"],
                one["code"],
                None if one["code"] is None else round(one["at_s"] - began_s, 3),
                round(words.at_s - began_s, 3) if words is not None and words.code is not None else None,
                step,
                line,
            )
            for one, words, line, step in ends
        ),
    )


def generate(framework: str, wanted: list[dict[str, Any]], folder: Path) -> Iterator[Fault]:
    """Run the groups of a framework and yield what they left."""
    file, python = folder / f"{framework}-cases", environment(framework) / "bin" / "python3"
    file.write_text("".join(json.dumps(case) + "\n" for case in wanted))
    command = [str(python), "-m", "tests.corpus.ranks", framework, str(file), str(folder)]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=env, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = json.loads(line)
            fault = record(found, place := Path(found["place"]))
            for group in place.glob("*/oom"):
                Path(group.read_text()).rmdir()
            shutil.rmtree(place)
            if fault is None:
                print(f"no fault: {found['case']['name']}", file=sys.stderr, flush=True)
            else:
                yield fault


def main() -> int:
    """Make the corpus; return 1 if it could not be made."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="kinds that have this in their name")
    parser.add_argument("--to", type=Path, default=FILE)
    given = parser.parse_args()
    if os.geteuid() != 0:
        print("expected to run as root, for file systems of 1 MB and a memory group", file=sys.stderr)
        return 1
    wanted = [case for case in cases(given.groups, given.seed) if given.only in case["kind"]]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        for name, options in (("full", "size=1m"), ("ro", "ro,size=4k")):
            (folder / name).mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder / name)], check=True)
        found = list[Fault]()

        def lane(framework: str) -> None:
            for fault in generate(framework, [case for case in wanted if case["framework"] == framework], folder):
                found.append(fault)
                print(f"{len(found)} of {len(wanted)}: {fault.name}", file=sys.stderr, flush=True)

        try:
            with ThreadPoolExecutor(len(BOTH)) as lanes:
                list(lanes.map(lane, BOTH))
        finally:
            for name in ("full", "ro"):
                subprocess.run(["umount", "-l", str(folder / name)], check=True)
    given.to.write_text(HEAD + "".join(map(text_of, sorted(found, key=lambda fault: fault.name))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
