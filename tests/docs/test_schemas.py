"""docs/schemas has the schema of each document that a command prints, as the code has it."""

from __future__ import annotations

from inplace.cli.documents import DOCUMENTS
from tests.cli.command import subcommands
from tests.docs.schemas import FOLDER, schemas

# What these print is a manifest, or figures of one run that nobody else reads.
WITHOUT_A_SCHEMA = {"inject", "demo"}


def test_the_files_are_the_types() -> None:
    """Each file is what `make rewrite` writes, and there is no other."""
    assert {file.name: file.read_text() for file in FOLDER.glob("*.json")} == schemas()


def test_every_command_that_prints_json_has_a_schema() -> None:
    """A command with --json, or with -o json, has a document; with -o json it takes --json as well."""
    options = {name: {word for one in command.params for word in one.opts} for name, command in subcommands().items()}
    printing = {name for name, words in options.items() if words & {"--json", "--output"}} - WITHOUT_A_SCHEMA
    assert printing <= DOCUMENTS.keys()
    assert [name for name in printing if "--json" not in options[name]] == []
