"""
Follow docs/first-cluster.md from an empty folder to an empty cluster, and measure each of its steps.

    python -m benchmarks.first_cluster [--json]

The newest commit is cloned into an empty folder, and the page's first commands run there. The others run in a capsule
(benchmarks/node.py), on a real control plane and a real kubelet that have nothing of ours: first the page's commands
for kind, then those for a registry. What differs from the page: the cluster is there before, containerd imports the
archives that `kind load` gives it, and the registry has no TLS. pip and debootstrap find the machine's caches.

The run fails if a command fails, if the Pods after the kill are not those of before, or if `inplace status` and
`inplace explain` do not show the kill.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.figures import flags
from images.build import REPOSITORY
from images.build_once import BuildFailed, MissingComponent
from testbed.binaries import find_binaries
from testbed.component import Component
from testbed.go_programs import RUNTIME, crane, helm
from testbed.node import archives, capsule, prepare, registry
from testbed.node.cluster import Cluster, running_cluster
from tests.cluster.clients.pages import blocks_of, page, run_command, saved

PAGE: Final = "first-cluster.md"
MANIFEST: Final = "first.yaml"
WAYS: Final = {"kind": ("docker://", "helm "), "registry": ("docker-archive:", "-k deploy/")}
"""Each way to bring images to nodes, and the words that mark the blocks of the other way."""

BUILT: Final = 1  # the step whose commands need a network
BUSYBOX: Final = "docker.io/library/busybox:1.37"
CLUSTER, LOAD, PODS = "kind create cluster", "kind load image-archive ", "kubectl get pods"
TOLD: Final = {".venv/bin/inplace status": "1 of 10", ".venv/bin/inplace explain": "killed by SIGKILL (137)"}
BUILD_S_MAX: Final = 1800.0
Seconds = dict[str, float]


def steps(way: str) -> dict[str, list[str]]:
    """Return the commands of each numbered step of the page."""
    found = {}
    for section in re.split(r"^## (?=\d)", page(PAGE), flags=re.MULTILINE)[1:]:
        step = re.split(r"^## ", section, flags=re.MULTILINE)[0]
        chosen = [block for block in blocks_of(step) if not any(word in block for word in (*WAYS[way], "apiVersion:"))]
        found[step.partition("\n")[0]] = "".join(chosen).replace("\\\n", " ").splitlines()
    return found


def build(folder: Path) -> Seconds:
    """Clone the newest commit into the folder and carry out the page's first step; return its seconds."""
    began_s = time.monotonic()
    subprocess.run(("git", "clone", "--quiet", str(REPOSITORY), str(folder)), check=True)
    step, commands = list(steps("kind").items())[BUILT - 1]
    for command in commands:
        words = ("unshare", "--mount", "--", "bash", "-c", command)  # buildah's mounts go with the namespace
        subprocess.run(words, cwd=folder, check=True, stdout=sys.stderr, timeout=BUILD_S_MAX)
    return {step: time.monotonic() - began_s}


async def follow(cluster: Cluster, folder: Path, way: str) -> Seconds:
    """Carry out the other steps of one way; return the seconds of each."""
    (folder / MANIFEST).write_text(saved(PAGE)[MANIFEST])
    seconds, pods = {}, []
    for step, commands in list(steps(way).items())[BUILT:]:
        began_s = time.monotonic()
        for command in commands:
            command_s = time.monotonic()
            said = await _carry_out(cluster, folder, command)
            print(f"{time.monotonic() - command_s:6.1f} s  {command}", file=sys.stderr)
            for asked, told in TOLD.items():
                assert not command.startswith(asked) or told in said, f"expected {told!r} of {command!r}, saw {said}"
            if command.startswith(PODS):
                pods.append([line.split()[0] for line in said.splitlines()])
        seconds[step] = time.monotonic() - began_s
    before, after = pods
    assert len(before) == len(("NAME", *range(4))), f"expected a header and four Pods, saw {before}"
    assert after == before, f"expected the Pods of before, {before}, saw {after}"
    return seconds


async def _carry_out(cluster: Cluster, folder: Path, command: str) -> str:
    """Run a command of the page; return what it printed. In place of `kind`, containerd imports the archives."""
    if command.startswith(CLUSTER):
        return ""
    if command.startswith(LOAD):
        await cluster.nodes[0].load([folder / command.removeprefix(LOAD)])
        return ""
    return await run_command(
        cluster.plane.kubeconfig, command.replace("registry.example.com", registry.ADDRESS), folder=folder
    )


async def measure(folder: Path) -> dict[str, Seconds]:
    """Return the seconds of each step of both ways, on one cluster that is empty before and between."""
    own = [path for path in archives.build() if path.stem in ("pause", archives.BUSYBOX_IMAGE)]
    scratch = Path(tempfile.mkdtemp(prefix="cluster-"))
    server = Component(
        "registry", (str(crane()), "registry", "serve", f"--address={registry.ADDRESS}", "--disk=."), scratch
    )
    async with running_cluster(
        find_binaries(), programs=RUNTIME.build(), images=own, folder=scratch, installed="nothing"
    ) as cluster:
        await cluster.nodes[0].tag(f"docker.io/library/{archives.BUSYBOX_IMAGE}:latest", BUSYBOX)
        server.start()
        try:
            return {way: await follow(cluster, folder, way) for way in WAYS}
        finally:
            await server.stop()


def environment(folder: Path) -> dict[str, str]:
    """Return variables: buildah's storage is in the folder, the registry has no TLS, Helm is on PATH."""
    storage, registries = folder / "storage.conf", folder / "registries.conf"
    storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n')
    registries.write_text(f'[[registry]]\nlocation = "{registry.ADDRESS}"\ninsecure = true\n')
    path = os.pathsep.join((str(helm().parent), os.environ["PATH"]))
    return {"CONTAINERS_STORAGE_CONF": str(storage), "CONTAINERS_REGISTRIES_CONF": str(registries), "PATH": path}


def table(report: Mapping[str, Mapping[str, float]]) -> str:
    """Return a row for each step, a column for each way."""
    rows = {step: [seconds[step] for seconds in report.values()] for step in next(iter(report.values()))}
    rows["all"] = [sum(seconds.values()) for seconds in report.values()]
    head = (f"| step | {' | '.join(f'{way}, seconds' for way in report)} |", "|---|" + "---|" * len(report))
    lines = (f"| {step} | {' | '.join(f'{each:.1f}' for each in row)} |" for step, row in rows.items())
    return "\n".join((*head, *lines))


def main() -> int:
    """Measure and print; outside a capsule, prepare everything, build, and go on inside one."""
    parser = flags(__doc__)
    parser.add_argument("--built", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.built is None:
        with tempfile.TemporaryDirectory(prefix="first-cluster-") as scratch:
            folder = Path(scratch)
            try:
                crane()
                os.environ |= environment(folder)
            except (MissingComponent, BuildFailed) as error:
                print(f"first_cluster: {error}", file=sys.stderr)
                return 1
            if code := prepare.main():
                return code
            (folder / "built.json").write_text(json.dumps(build(folder / "inplace")))
            return capsule.run((sys.executable, "-m", __spec__.name, *sys.argv[1:], "--built", scratch))
    built: Seconds = json.loads((options.built / "built.json").read_text())
    report = {way: built | seconds for way, seconds in asyncio.run(measure(options.built / "inplace")).items()}
    print(json.dumps(report) if options.json else table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
