"""The root of the agent's image: reproducible, complete, and nothing of the machine that made it is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from images import agent_root, own_python
from images.build_once import BuildFailed, MissingComponent
from images.lock import ROOTS
from images.sbom import Part, sbom

LISTED = """\
\tlinux-vdso.so.1 (0x00007ffe7d9f2000)
\tlibpython3.11.so.1.0 => /opt/python/lib/libpython3.11.so.1.0 (0x00007f56e3000000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f56e2e1e000)
\t{loader} (0x00007f56e37a1000)
"""


@pytest.mark.parametrize("loader", ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"])
def test_libraries_are_read_as_the_loader_lists_them(loader: str) -> None:
    """Each has the name that others ask for; the kernel's own has no file and is left out."""
    assert own_python.libraries_of(LISTED.format(loader=loader)) == {
        "libpython3.11.so.1.0": Path("/opt/python/lib/libpython3.11.so.1.0"),
        "libc.so.6": Path("/lib/x86_64-linux-gnu/libc.so.6"),
        Path(loader).name: Path(loader),
    }


def test_a_library_that_is_not_there_stops_the_build() -> None:
    """The error names it: an image without it would fail when a module is first imported."""
    with pytest.raises(BuildFailed, match=r"saw none of libssl\.so\.3$"):
        own_python.libraries_of(LISTED + "\tlibssl.so.3 => not found\n")


@pytest.mark.parametrize("name", ["glibc 2.33", "", "musl 1.2.3"])
def test_another_c_library_is_refused(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An older glibc would look for its name service outside of the folder."""
    monkeypatch.setattr(os, "confstr", lambda _: name)
    with pytest.raises(MissingComponent, match=r"expected a Python of glibc 2\.34 or newer, saw "):
        own_python.copy_python(tmp_path, lambda _: {})
    assert not any(tmp_path.iterdir())


def test_a_folder_with_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written into a folder that is in use."""
    (tmp_path / "file").touch()
    assert agent_root.main([str(tmp_path)]) == 1
    assert f"agent-root: expected {tmp_path} to be empty" in capsys.readouterr().err


def test_the_bill_of_materials_names_what_no_lock_names() -> None:
    """Python and Debian packages are components on which the image depends, and change the serial number."""
    lock = agent_root.LOCK.read_text()
    parts = [Part.python("3.11.9"), Part.debian("zlib1g", "1:1.2", "amd64")]
    plain, document = sbom("agent", lock, "1"), sbom("agent", lock, "1", parts)
    added = [each for each in document["components"] if each not in plain["components"]]
    assert [each["purl"] for each in added] == ["pkg:generic/python@3.11.9", "pkg:deb/debian/zlib1g@1%3A1.2?arch=amd64"]
    assert {each["bom-ref"] for each in added} < set(document["dependencies"][0]["dependsOn"])
    assert plain["serialNumber"] != document["serialNumber"]


def described(folder: Path) -> dict[str, tuple[int, float, bytes]]:
    """Return mode, time and content of everything in a folder, by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = str(path.readlink()).encode() if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime, content)
    return found


@pytest.mark.slow
def test_the_same_machine_gives_the_same_bytes(root: Path, tmp_path: Path) -> None:
    """A second build, in another folder, later and by a user with another umask has the same files, modes and times."""
    before = os.umask(0o077)
    try:
        build_id = agent_root.make(tmp_path)
    finally:
        os.umask(before)
    assert build_id == (root / agent_root.BUILD_ID).read_text().strip()
    assert described(tmp_path) == described(root)


@pytest.mark.slow
def test_the_root_has_programs_byte_code_and_papers(root: Path) -> None:
    """Three programs start with its own Python; each module is byte code; no source, test or other program is there."""
    files = {
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "/inplace/" not in f"/{path}"
    }
    assert {path.name for path in (root / "bin").iterdir()} == {"python3", *agent_root.PROGRAMS}
    for name in agent_root.PROGRAMS:
        assert (root / "bin" / name).read_text().startswith("#!/inplace/bin/python3 -IS\n")
        assert os.access(root / "bin" / name, os.X_OK)
    library = root / own_python.LIBRARY
    assert not [name for name in files if name.endswith(".py")]
    for module in (
        "os",
        "ssl",
        "inplace/agent/guard",
        "inplace/common/protocol/guard",
        "structlog/_base",
        "yaml/reader",
    ):
        assert (library / f"{module}.pyc").is_file(), module
    assert not [
        name for name in ("test", "tkinter", "ensurepip", "inplace/controller", "pip") if (library / name).exists()
    ]
    assert {"licenses/LICENSE", "licenses/python/LICENSE.txt", "sbom.cdx.json"} <= files


@pytest.mark.slow
def test_a_training_script_says_its_steps(root: Path, tmp_path: Path) -> None:
    """With /inplace/train in its PYTHONPATH, and nothing installed; the sources are for any Python."""
    env = {"PYTHONPATH": str(root / agent_root.TRAIN), "INPLACE_PROGRESS_DIR": str(tmp_path), "RANK": "5"}
    script = (
        "import inplace, inplace.integrations.checkpoints; inplace.progress(3); inplace.ready; inplace.save_requested"
    )
    done = subprocess.run([sys.executable, "-S", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "rank-5").read_text().startswith("v1 - 3 ")


@pytest.mark.slow
def test_its_bill_of_materials_names_its_python(root: Path) -> None:
    """It names the locked packages, and the version of the Python that made it."""
    components = {
        each["name"]: each["version"] for each in json.loads((root / "sbom.cdx.json").read_text())["components"]
    }
    assert set(ROOTS["agent"]) <= set(components)
    assert components["python"] == sys.version.split()[0]
