"""The node of the tests on other people's machines: their containerd, their firewall. None of this needs a node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from images import debian
from images.build_once import MissingComponent
from testbed.node import archives, host, settings, traces

SHIM = "containerd-shim-runc-v2"


def program(path: Path, text: str) -> None:
    """Write a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_shim_that_was_built_goes_before_the_machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PATH finds the shim that was built with containerd BEFORE the machine's own."""
    built, installed = tmp_path / "built", tmp_path / "installed"
    for folder in (built, installed):
        program(folder / SHIM, "echo no")
    monkeypatch.setenv("PATH", f"{installed}:/usr/bin:/bin")
    words = (*settings.environment(built), "sh", "-c", f"command -v {SHIM}; command -v cat; echo $GOGC")
    shim, cat, garbage = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert shim == str(built / SHIM)
    assert Path(cat).parent in (Path("/usr/bin"), Path("/bin"))
    assert garbage == "400"


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        (
            "nft",
            'case "$*" in *--stateless*) echo "counter drop";; *) echo "counter packets $seen bytes $seen drop";; esac',
        ),
        ("iptables-save", 'echo "# at $seen"; echo ":INPUT ACCEPT [$seen:$seen]"; echo "-A INPUT -j ACCEPT"'),
    ],
)
def test_a_firewall_that_counts_is_no_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, counts: str
) -> None:
    """Changed packet counters of the firewall are not a run's trace; an added rule is."""
    count, more = tmp_path / "count", tmp_path / "more"
    count.write_text("1")
    program(
        tmp_path / "bin" / name,
        f'read seen < {count}; echo $((seen + 1)) > {count}; {counts}; [ ! -e {more} ] || echo "one more"',
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    looks = [{line for line in traces.rules() if line.startswith(name)} for _ in range(2)]
    assert looks[0] == looks[1] != set()
    more.touch()
    assert set(traces.rules()) - looks[0] >= {f"{name}: one more"}


def test_a_library_is_missed_where_its_builder_is_not() -> None:
    """A missing library is found also when pkg-config is installed: the check asks for the library itself."""
    assert host.missing_packages({}, {"no-such-library": "libnone-dev"}) == ["libnone-dev"]


def test_another_python_than_the_image_has_leaves_pytorch_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compiled packages of one Python do not run in another: the two versions are named, and nothing is mounted."""
    (tmp_path / "image" / "usr/lib/python3.11").mkdir(parents=True)
    (tmp_path / "torch" / "lib/python3.13/site-packages").mkdir(parents=True)
    monkeypatch.setattr(debian, "roots", lambda: (tmp_path, tmp_path / "image"))
    monkeypatch.setattr(archives, "environment", tmp_path.joinpath)
    with pytest.raises(MissingComponent, match=r"expected python3\.11 as in our images, saw python3\.13"):
        archives.torch_packages()
