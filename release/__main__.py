"""
Make a release: packages, images, chart, manifests, kubectl plugin, SBOMs, provenance and checksums.

    python -m release [--out FOLDER] [--url URL] [--homepage URL] [--registry NAME] [--sign-key KEY]
                      [--without-images | --unpinned]

docs/release.md says what else a release needs. This program publishes nothing. It prints what it made, and what it
could not make or sign on this machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from images.build import TARGETS, Buildah
from images.build_once import BuildFailed, MissingComponent
from images.lock import ROOTS
from images.sbom import sbom
from release import parts
from release.changelog import REPOSITORY, UNRELEASED, VersionError, section, stated_version
from release.manifests import digest_of, image_names, write_manifests
from release.provenance import write_provenance

INPUTS: Final = ("images/base.lock", "requirements.lock")  # what else goes into the files, each by its digest
NO_URL: Final = "https://RELEASE-URL.invalid"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m release", description="make the files of a release")
    parser.add_argument("--out", type=Path, help="folder of the files [default: dist/VERSION]")
    parser.add_argument("--url", default=NO_URL, help="address below which the files will be published")
    parser.add_argument("--homepage", default=NO_URL, help="address of the project, for the kubectl plugin")
    parser.add_argument("--registry", default="", help="where the images will be, with its path; manifests name it")
    parser.add_argument("--sign-key", default="", help="key of gpg that signs the checksums")
    images = parser.add_mutually_exclusive_group()
    images.add_argument("--without-images", action="store_true", help="leave the images out")
    images.add_argument(
        "--unpinned", action="store_true", help="rehearse: build the images from bases without a digest"
    )
    options = parser.parse_args()
    try:
        version = stated_version()
        out: Path = (options.out or REPOSITORY / "dist" / version).absolute()
        _check_folder(out)
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / "made"
            left_out = _make(made, version, options)
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(made, out)
    except (parts.ReleaseError, VersionError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for file in sorted(out.iterdir()):
        print(f"{file.stat().st_size:>12,}  {file.name}")
    for words in left_out:
        print(f"release: {words}", file=sys.stderr)
    return 0


def _make(out: Path, version: str, options: argparse.Namespace) -> list[str]:
    """Make everything that can be made; return in words what was left out.

    Raises:
        ReleaseError, VersionError: a part that every machine can make could not be made.
    """
    left_out = []
    out.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        if copy_sources(tree):
            left_out.append("NOT COMMITTED: some files differ from the last commit; a release is made of a commit")
        made_at = int(parts.run(["git", "log", "-1", "--format=%ct"], REPOSITORY))
        wheel = parts.packages(tree, out, made_at)[-1]
        left_out += _images(out, version, options)
        digests = {image: digest_of(found) for image, found in _archives(out, version).items() if found.exists()}
        images = image_names(options.registry, version, digests)
        parts.chart(tree, out, version, options.homepage, images)
        write_manifests(tree, out, version, images)
        archive = parts.krew_archive(tree, out, wheel, version)
        parts.krew_manifest(tree, out, archive, version=version, url=options.url, homepage=options.homepage)
        lock = (tree / "requirements.lock").read_text()
        for program in sorted(ROOTS.keys() & set(TARGETS)):
            document = json.dumps(sbom(program, lock, version), indent=2)
            (out / f"inplace-{program}.cdx.json").write_text(document + "\n")
        shutil.copy(tree / "docs" / "inplace.1", out)
        changelog = (tree / "CHANGELOG.md").read_text()
        notes = section(changelog, version)
        if notes is None:
            left_out.append(f"NO VERSION: CHANGELOG.md has no section {version}; the notes are those of {UNRELEASED}")
        (out / "NOTES.md").write_text(f"# inplace {version}\n\n{notes or section(changelog, UNRELEASED) or ''}\n")
        write_provenance(
            out,
            out.iterdir(),
            homepage=options.homepage,
            commit=parts.run(["git", "rev-parse", "HEAD"], REPOSITORY).strip(),
            inputs={name: parts.digest(tree / name) for name in INPUTS},
            asked={name: getattr(options, name) for name in ("url", "homepage", "registry")},
        )
    if NO_URL in (options.url, options.homepage):
        left_out.append("NO ADDRESS: inplace.yaml names none of the plugin's archive; use --url and --homepage")
    if not options.registry:
        left_out.append("NO REGISTRY: the manifests name images of the nodes' own; use --registry")
    checked = parts.sums(out, [file for file in out.iterdir() if file.is_file()])
    if options.sign_key:
        parts.signature(checked, options.sign_key)
    else:
        left_out.append("NOT SIGNED: name a key of gpg with --sign-key; nothing signs the images here")
    return left_out


def _images(out: Path, version: str, options: argparse.Namespace) -> list[str]:
    """Build both images, and write them as archives; return in words what was left out."""
    if options.without_images:
        return ["NO IMAGES: left out as asked"]
    buildah = Buildah()
    try:
        parts.run([sys.executable, "-m", "images.build", *([] if options.unpinned else ["--pinned"])], REPOSITORY)
        for name, archive in _archives(out, version).items():
            buildah.archive(f"localhost/{name}", f"{name}:{version}", archive)
    except (parts.ReleaseError, BuildFailed, MissingComponent) as error:
        return [f"NO IMAGES: {' '.join(str(error).split())}"]
    return ["NOT PINNED: a base of the images may have no digest"] if options.unpinned else []


def _archives(out: Path, version: str) -> dict[str, Path]:
    """Return where the archive of each image is."""
    return {f"inplace-{target}": out / f"inplace-{target}-{version}.oci.tar" for target in TARGETS}


def copy_sources(tree: Path) -> bool:
    """Copy the files that git does not ignore, as they are; return whether they differ from the last commit."""
    for name in parts.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], REPOSITORY).split(
        "\0"
    ):
        source, target = REPOSITORY / name, tree / name
        if name and (source.is_symlink() or source.exists()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return bool(parts.run(["git", "status", "--porcelain"], REPOSITORY).strip())


def _check_folder(out: Path) -> None:
    """Check that a folder holds nothing but an older release, which is removed.

    Raises:
        ReleaseError: it holds something that is no release.
    """
    if out.exists() and any(out.iterdir()) and not (out / parts.SUMS).exists():
        raise parts.ReleaseError(f"expected {out} empty, or with an older release's {parts.SUMS}; choose another --out")


if __name__ == "__main__":
    sys.exit(main())
