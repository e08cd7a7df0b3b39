"""
Put the libraries of NAME.unpacked into a virtual environment: pip fetches and checks their archives, and installs none.

An archive is a wheel for a newer Python, of which the Python code runs under this one too, or sources with C++ parts
for which modules of ours stand in. What is replaced stands in docs/with-checkpoint-libraries.md.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from images.build_once import run_nicely

TARGET = ("--python-version", "3.12", "--platform", "manylinux_2_39_x86_64")  # whose wheels pip may fetch
STAND_INS = {
    "ml_flashpoint/checkpoint_object_manager/buffer_object/buffer_object_ext.py": "flashpoint_buffer.py",
    "ml_flashpoint/replication/transfer_service/transfer_service_ext.py": "flashpoint_transfer.py",
}


def unpack(requirements: Path, environment: Path) -> None:
    """Fetch the archives that a file names, with their hashes, and unpack their packages.

    Raises:
        BuildFailed: pip could not fetch them.
    """
    (packages,) = environment.glob("lib/python*/site-packages")
    with TemporaryDirectory() as name:
        folder = Path(name)
        words = ("-m", "pip", "download", "-q", "--disable-pip-version-check", "--require-hashes", "--no-deps")
        run_nicely(
            (str(environment / "bin" / "python"), *words, *TARGET, "-d", name, "-r", str(requirements)),
            directory=folder,
        )
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(packages)
        for archive in folder.glob("*.tar.gz"):
            shutil.unpack_archive(archive, folder / "sources", filter="data")
        for package in folder.glob("sources/*/src/*/"):
            if package.is_dir():
                shutil.copytree(package, packages / package.name)
    for target, module in STAND_INS.items():
        if (packages / target).parent.is_dir():
            shutil.copy(Path(__file__).with_name(module), packages / target)
