"""Build our images with buildah: no daemon, no registry where there is none.

BASE and BUILD_BASE name images, as in the Containerfile. Where neither is given, images/base.lock names them; where
that cannot be pulled, both come from a Debian mirror (`images.debian`), and it is said aloud. So is a base whose digest
nobody pinned. Each image carries its base's name and digest as labels.

Usage: python -m images.build [--base IMAGE] [--build-base IMAGE] [--debian] [--pinned] [-- BUILDAH-GLOBAL-FLAG ...]
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from images import debian
from images.build_once import BuildFailed, MissingComponent, run_nicely

REPOSITORY = Path(__file__).parents[1]
TARGETS = ("agent", "controller")
BASE_LOCK = REPOSITORY / "images" / "base.lock"
BASE_LABEL = "org.opencontainers.image.base"
HOW_TO_PIN = "skopeo inspect --format '{{.Digest}}' docker://IMAGE says it, and images/base.lock is its place"
DEBIAN_BASE = "localhost/inplace-base"
CERTIFICATES = Path("/etc/ssl/certs")
"""Mounted into the build: behind a proxy with a CA of its own, pip has to know it."""

PULL_TIMEOUT_S = 300.0
HOW_TO_GET_BUILDAH = "expected buildah on PATH, found none: apt-get install --no-install-recommends buildah"


@dataclass(frozen=True, slots=True)
class Buildah:
    """
    One storage of images.

    Args:
        flags: buildah's global flags that choose the storage; none is the machine's own.
        private_mounts: run it in a mount namespace, so that the storage's mounts go with it.
    """

    flags: tuple[str, ...] = ()
    private_mounts: bool = False

    def build(
        self,
        tag: str,
        *,
        context: Path,
        containerfile: Path,
        target: str = "",
        arguments: Sequence[str] = (),
        labels: Sequence[str] = (),
    ) -> None:
        """
        Build one image.

        Raises:
            MissingComponent: there is no buildah.
            BuildFailed: buildah failed; its output went to stderr.
        """
        volumes = (f"--volume={CERTIFICATES}:{CERTIFICATES}:ro",) if CERTIFICATES.is_dir() else ()
        command = (
            *(
                "build",
                "--quiet",
                "--layers",
                "--isolation=chroot",
                "--timestamp=0",  # the same sources and base give the same image
                *volumes,
                f"--tag={tag}",
                f"--file={containerfile}",
            ),
            *((f"--target={target}",) if target else ()),
            *(f"--build-arg={argument}" for argument in arguments),
            *(f"--label={label}" for label in labels),
            str(context),
        )
        run_nicely(self._words(*command), directory=context)

    def archive(self, tag: str, name: str, file: Path, *, compression: str = "gzip") -> None:
        """Write an image as one file that `ctr images import` takes, under the whole name by which kubelet asks."""
        words = ("push", "--quiet", f"--compression-format={compression}", tag, f"oci-archive:{file}:{name}")
        run_nicely(self._words(*words), directory=file.parent)

    def layers(self, tag: str) -> list[int]:
        """Return the sizes of an image's layers in bytes, compressed as a registry keeps them, the base's first."""
        with tempfile.TemporaryDirectory() as scratch:
            self._run("push", "--quiet", tag, f"oci:{scratch}/image")
            blobs = Path(scratch) / "image"
            index = json.loads((blobs / "index.json").read_text())
            digest = index["manifests"][0]["digest"].replace(":", "/")
            manifest = json.loads((blobs / "blobs" / digest).read_text())
        return [layer["size"] for layer in manifest["layers"]]

    def has(self, tag: str) -> bool:
        """Return whether the image is in the storage or can be pulled."""
        return self._run("pull", "--quiet", "--policy=missing", tag, check=False).returncode == 0

    def digest(self, tag: str) -> str:
        """Return the digest of the stored image of a name.

        Raises:
            BuildFailed: the image is not stored and cannot be pulled.
        """
        self._run("pull", "--quiet", "--policy=missing", tag)
        return self._run("inspect", "--type=image", "--format={{.FromImageDigest}}", tag).stdout.strip()

    def _words(self, *command: str) -> tuple[str, ...]:
        if shutil.which("buildah") is None:
            raise MissingComponent(HOW_TO_GET_BUILDAH)
        private = ("unshare", "--mount", "--") if self.private_mounts else ()
        return (*private, "buildah", *self.flags, *command)

    def _run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self._words(*command), capture_output=True, text=True, timeout=PULL_TIMEOUT_S, check=False
        )
        if check and done.returncode:
            raise BuildFailed(f"expected buildah {command[0]} to succeed, saw {done.stderr.strip()}")
        return done


class Bases(NamedTuple):
    """The base of the images, and an image of the same Python with pip for the build."""

    run: str
    build: str

    def arguments(self) -> list[str]:
        """Return the build arguments that name the bases."""
        return [f"BASE={self.run}", f"BUILD_BASE={self.build}"]

    def unpinned(self) -> list[str]:
        """Return the bases without a digest: their names may mean another image tomorrow."""
        return sorted({name for name in self if not re.search(r"@sha256:[0-9a-f]{64}$", name)})


def locked_base(text: str) -> str:
    """Return the one image that images/base.lock names.

    Raises:
        BuildFailed: there is none, or more than one.
    """
    names = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if len(names) != 1:
        raise BuildFailed(f"expected the name of one image in {BASE_LOCK.name}, saw {names}")
    return names[0]


def build_debian_bases(buildah: Buildah) -> Bases:
    """Make the two local bases and return their names."""
    with tempfile.NamedTemporaryFile("w", suffix=".Containerfile") as file:
        file.write("FROM scratch\nCOPY . /\n")
        file.flush()
        for root, tag in zip(debian.roots(), (f"{DEBIAN_BASE}-build", DEBIAN_BASE), strict=True):
            buildah.build(tag, context=root, containerfile=Path(file.name))
    return Bases(DEBIAN_BASE, f"{DEBIAN_BASE}-build")


def build_image(buildah: Buildah, target: str, bases: Bases) -> str:
    """Build one of our two images and return its tag."""
    tag, base = f"localhost/inplace-{target}", bases.build if target == "agent" else bases.run
    buildah.build(
        tag,
        context=REPOSITORY,
        containerfile=REPOSITORY / "Containerfile",
        target=target,
        arguments=bases.arguments(),
        labels=[f"{BASE_LABEL}.name={base}", f"{BASE_LABEL}.digest={buildah.digest(base)}"],
    )
    return tag


def _bases(buildah: Buildah, base: str, build_base: str, *, from_debian: bool, pinned: bool) -> Bases:
    """Return the requested bases, or else the available ones.

    Raises:
        BuildFailed: a digest was demanded, and a base has none.
    """
    locked = locked_base(BASE_LOCK.read_text())
    bases = Bases(base or build_base or locked, build_base or base or locked)
    if pinned and (from_debian or bases.unpinned()):
        names = "a base made from Debian" if from_debian else ", ".join(bases.unpinned())
        raise BuildFailed(f"expected IMAGE@sha256:DIGEST for every base, saw {names}; {HOW_TO_PIN}")
    is_asked_for = bool(base or build_base)
    if not is_asked_for and (from_debian or not buildah.has(bases.run)):
        if pinned:
            raise BuildFailed(f"expected to pull {bases.run}, could not; a base made from Debian has no digest to pin")
        if not from_debian:
            print(f"images: {bases.run} cannot be pulled; making a Debian base instead", file=sys.stderr, flush=True)
        return build_debian_bases(buildah)
    for name in bases.unpinned():
        print(f"images: NOT PINNED: {name} has no digest; {HOW_TO_PIN}", file=sys.stderr, flush=True)
    return bases


def main() -> int:
    """Build both images and print their sizes, layer by layer."""
    parser = argparse.ArgumentParser(prog="images.build", description="build the agent's and the controller's image")
    parser.add_argument("--base", default="", help="base image: any image with Python")
    parser.add_argument("--build-base", default="", help="image with the same Python, pip and a shell; default: --base")
    parser.add_argument("--debian", action="store_true", help="make the base from a Debian mirror")
    parser.add_argument("--pinned", action="store_true", help="refuse a base without a digest; for releases")
    parser.add_argument("buildah", nargs="*", metavar="-- FLAG", help="buildah's global flags, such as --root=FOLDER")
    options = parser.parse_args()
    buildah = Buildah(tuple(options.buildah))
    try:
        bases = _bases(buildah, options.base, options.build_base, from_debian=options.debian, pinned=options.pinned)
        for target in TARGETS:
            tag = build_image(buildah, target, bases)
            sizes = " + ".join(f"{size / 1e6:.2f}" for size in buildah.layers(tag))
            print(f"{tag}, layers as a registry keeps them: {sizes} MB")
    except (MissingComponent, BuildFailed) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
