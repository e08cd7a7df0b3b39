"""The agent reads what a worker that failed wrote last, whatever else lies in the folder."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from inplace.agent.progress.last_words import ELASTIC_BYTES_MAX, LastWords, last_words
from inplace.agent.progress.rank_files import forget_steps
from inplace.agent.settings.command import ELASTIC_FILE

FIRST = "RuntimeError: CUDA error"


def leave(folder: Path, name: str, text: str, at_s: float) -> None:
    """Write a file with a modification time."""
    path = folder / name
    path.write_text(text)
    os.utime(path, (at_s, at_s))


def elastic(text: object) -> str:
    """Return torchelastic's error file."""
    return json.dumps({"message": {"message": text, "extraInfo": {"py_callstack": "x" * 5000, "timestamp": "1"}}})


def test_the_rank_that_wrote_first_is_told(tmp_path: Path) -> None:
    """Of this epoch alone; what its peers raised a moment later is a consequence."""
    leave(tmp_path, ".rank-2.error", "v1 3 1 RuntimeError: what followed\n", 100.2)
    leave(tmp_path, ".rank-10.error", f"v1 3 1 {FIRST}\n", 100.1)
    leave(tmp_path, ".rank-1.error", "v1 2 1 ValueError: the epoch before\n", 90.0)
    leave(tmp_path, ".rank-0", "v1 3 1 7\n", 80.0)
    leave(tmp_path, ".rank-4.error", "v1 3 - ValueError: of a helper, whose rank went on\n", 75.0)
    leave(tmp_path, ".rank-5.error", "v1 3 1 RuntimeError: Connection closed by peer\n", 74.0)
    leave(tmp_path, ELASTIC_FILE, elastic("ValueError: other"), 70.0)
    assert last_words(f"{tmp_path}/", 3) == LastWords(FIRST, (tmp_path / ".rank-10.error").stat().st_mtime, 1)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (elastic("RuntimeError: CUDA error\nmore"), FIRST),
        (json.dumps({"message": FIRST}), FIRST),
        ("{", ""),
        ("[" * 100_000, ""),
        ('{"message": 7}', ""),
        ('{"message": {"message": null}}', ""),
        ("7", ""),
        (elastic("x" * ELASTIC_BYTES_MAX), ""),
    ],
)
def test_torchelastic_s_file_is_read(tmp_path: Path, content: str, line: str) -> None:
    """Its message; garbage says nothing."""
    (tmp_path / ELASTIC_FILE).write_text(content)
    words = last_words(str(tmp_path), 3)
    assert (words.line if words is not None else "") == line
    assert words is None or words.code is None


def test_what_strangers_put_there_is_passed_over(tmp_path: Path) -> None:
    """Links, pipes, folders, garbage, and a folder that is not there: nothing waits, and nothing is told."""
    secret = tmp_path / "secret"
    secret.write_text("v1 3 1 hunter2\n")
    folder = tmp_path / "progress"
    folder.mkdir()
    (folder / ".rank-0.error").symlink_to(secret)
    os.mkfifo(folder / ".rank-1.error")
    (folder / ".rank-2.error").mkdir()
    (folder / ".rank-3.error").write_bytes(b"\xff\xfe\x00" * 1000)
    (folder / ".rank-5.error").write_text("v1 3\n")
    (folder / ".rank-4.error").write_text("v2 3 1 from the future\n")
    (folder / ELASTIC_FILE).symlink_to(secret)
    began_s = time.monotonic()
    assert last_words(str(folder), 3) is None
    assert last_words(str(tmp_path / "none"), 3) is None
    (tmp_path / "link").symlink_to(folder)
    assert last_words(str(tmp_path / "link"), 3) is None
    assert time.monotonic() - began_s < 1.0


def test_a_worker_finds_no_words_of_the_one_before(tmp_path: Path) -> None:
    """They are removed with the progress files, BEFORE it starts."""
    leave(tmp_path, ".rank-0.error", "v1 - 1 ValueError\n", 1.0)
    leave(tmp_path, ELASTIC_FILE, elastic("ValueError"), 1.0)
    leave(tmp_path, "mine.error", "kept", 1.0)
    forget_steps(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.error"]


@pytest.mark.parametrize("code", ["0", "256", "-1", "1e2", "\u0663", "9" * 1000])
def test_a_code_that_is_none_ends_no_rank(tmp_path: Path, code: str) -> None:
    """The words are told all the same, once the worker has ended."""
    leave(tmp_path, ".rank-0.error", f"v1 3 {code} {FIRST}\n", 1.0)
    words = last_words(str(tmp_path), 3)
    assert words is None or words.code is None
