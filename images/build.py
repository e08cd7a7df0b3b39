"""Build our images with buildah: no daemon, no registry where there is none.

BASE and BUILD_BASE name images, as in the Containerfile. Where neither is given and the default cannot be pulled, both
come from a Debian mirror (`images.debian`), and it is said aloud.

Usage: python -m images.build [--base IMAGE] [--build-base IMAGE] [--debian] [-- BUILDAH-GLOBAL-FLAG ...]
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from images import debian
from images.build_once import BuildFailed, MissingComponent, run_nicely

REPOSITORY = Path(__file__).parents[1]
TARGETS = ("agent", "controller")
DEFAULT_BASE = "python:3.11-slim"
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
        self, tag: str, *, context: Path, containerfile: Path, target: str = "", arguments: Sequence[str] = ()
    ) -> None:
        """
        Build one image.

        Raises:
            MissingComponent: there is no buildah.
            BuildFailed: what it said went to stderr.
        """
        volumes = (f"--volume={CERTIFICATES}:{CERTIFICATES}:ro",) if CERTIFICATES.is_dir() else ()
        command = (
            *(
                "build",
                "--quiet",
                "--layers",
                "--isolation=chroot",
                *volumes,
                f"--tag={tag}",
                f"--file={containerfile}",
            ),
            *((f"--target={target}",) if target else ()),
            *(f"--build-arg={argument}" for argument in arguments),
            str(context),
        )
        run_nicely(self._words(*command), directory=context)

    def archive(self, tag: str, name: str, file: Path) -> None:
        """Write an image as one file that `ctr images import` takes, under the whole name by which kubelet asks."""
        run_nicely(self._words("push", "--quiet", tag, f"oci-archive:{file}:{name}"), directory=file.parent)

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
        """Say whether the image is here or can be pulled."""
        return self._run("pull", "--quiet", "--policy=missing", tag, check=False) == 0

    def _words(self, *command: str) -> tuple[str, ...]:
        if shutil.which("buildah") is None:
            raise MissingComponent(HOW_TO_GET_BUILDAH)
        private = ("unshare", "--mount", "--") if self.private_mounts else ()
        return (*private, "buildah", *self.flags, *command)

    def _run(self, *command: str, check: bool = True) -> int:
        done = subprocess.run(
            self._words(*command), capture_output=True, text=True, timeout=PULL_TIMEOUT_S, check=False
        )
        if check and done.returncode:
            raise BuildFailed(f"expected buildah {command[0]} to succeed, saw {done.stderr.strip()}")
        return done.returncode


def build_debian_bases(buildah: Buildah) -> list[str]:
    """Make the two local bases and return the build arguments that name them."""
    with tempfile.NamedTemporaryFile("w", suffix=".Containerfile") as file:
        file.write("FROM scratch\nCOPY . /\n")
        file.flush()
        for root, tag in zip(debian.roots(), (f"{DEBIAN_BASE}-build", DEBIAN_BASE), strict=True):
            buildah.build(tag, context=root, containerfile=Path(file.name))
    return [f"BASE={DEBIAN_BASE}", f"BUILD_BASE={DEBIAN_BASE}-build"]


def build_image(buildah: Buildah, target: str, arguments: Sequence[str]) -> str:
    """Build one of our two images and return its tag."""
    tag = f"localhost/inplace-{target}"
    buildah.build(
        tag, context=REPOSITORY, containerfile=REPOSITORY / "Containerfile", target=target, arguments=arguments
    )
    return tag


def _bases(buildah: Buildah, base: str, build_base: str, *, from_debian: bool) -> list[str]:
    """Return the build arguments for the bases that were asked for, or for those that can be had."""
    if base or build_base:
        return [f"BASE={base or build_base}", f"BUILD_BASE={build_base or base}"]
    if not from_debian and buildah.has(DEFAULT_BASE):
        return []
    if not from_debian:
        print(f"images: {DEFAULT_BASE} cannot be pulled; making a Debian base instead", file=sys.stderr, flush=True)
    return build_debian_bases(buildah)


def main() -> int:
    """Build both images and print their sizes, layer by layer."""
    parser = argparse.ArgumentParser(prog="images.build", description="build the agent's and the controller's image")
    parser.add_argument("--base", default="", help="what the images are based on: any image with Python")
    parser.add_argument("--build-base", default="", help="the same Python with pip and a shell; --base when not given")
    parser.add_argument("--debian", action="store_true", help="make the base from a Debian mirror")
    parser.add_argument("buildah", nargs="*", metavar="-- FLAG", help="buildah's global flags, such as --root=FOLDER")
    options = parser.parse_args()
    buildah = Buildah(tuple(options.buildah))
    try:
        arguments = _bases(buildah, options.base, options.build_base, from_debian=options.debian)
        for target in TARGETS:
            tag = build_image(buildah, target, arguments)
            base, *ours = buildah.layers(tag)
            sizes = " + ".join(f"{size / 1e6:.2f}" for size in ours)
            print(f"{tag}, layers as a registry keeps them: base {base / 1e6:.1f} MB, ours {sizes} MB")
    except (MissingComponent, BuildFailed) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
