"""The man page has every command and option, and groff reads it without a warning."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import typer.main
from typer.core import TyperGroup

from inplace.cli.main import app
from release.man_page import PAGE, man_page


def test_the_page_is_the_programs() -> None:
    """docs/inplace.1 is what `make rewrite` writes."""
    assert PAGE.read_text() == man_page()


def test_every_option_is_there() -> None:
    """Each command has its heading and each of its options."""
    group, page = typer.main.get_command(app), man_page().replace(r"\-", "-")
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        part = page.partition(f'.SS "inplace {name}')[2].partition("\n.SS")[0]
        assert part
        for option in command.params:
            if option.param_type_name == "option":
                assert all(word in part for word in option.opts), (name, option.opts)


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_groff_reads_it() -> None:
    """No warning comes."""
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", PAGE], capture_output=True, text=True, check=True, timeout=60.0
    )
    assert done.stderr == ""
