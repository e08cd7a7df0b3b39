"""Any text is read in a bounded time, as Kubernetes would read it, or refused in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from inplace.cli.manifests.documents import STREAM_BYTES_MAX, StreamError, read_stream
from inplace.cli.manifests.yaml_loader import DEPTH_MAX, REPEATED_MAX, VALUES_MAX, parse, with_whole_characters
from tests.cli.command import REPOSITORY, run_here
from tests.cli.injecting import EXAMPLES, saved


def doubled(kind: str, levels: int) -> str:
    """Return anchors that each refer twice to the one before: 2**levels values from 20 bytes a level."""
    first, more = {"alias": ("[x]", "[*a{0}, *a{0}]"), "merge": ("{x: 1}", "{{<<: [*a{0}, *a{0}]}}")}[kind]
    lines = [f"a{level}: &a{level} {more.format(level - 1)}\n" for level in range(1, levels)]
    return f"a0: &a0 {first}\n{''.join(lines)}"


TOO_MANY = f"more than {VALUES_MAX:,} values"
REPEATED = f"more than {REPEATED_MAX:,} values that aliases and merge keys repeat"
TOO_DEEP = f"a nesting of more than {DEPTH_MAX}"
NASTY = {
    "aliases of aliases": (doubled("alias", 40), REPEATED),
    "merges of merges": (doubled("merge", 18), REPEATED),
    "many merges of merges": (doubled("merge", 40), REPEATED),
    "2,000 aliases": (f"a: &a {{{', '.join(f'k{n}: v' for n in range(40))}}}\nb: [{'*a, ' * 2_000}]", REPEATED),
    "many merges": ("a: &a {b: 1, c: 2, d: 3}\n" + "".join(f"a{n}: {{<<: *a}}\n" for n in range(5_001)), REPEATED),
    "many values": ("[" + "1," * VALUES_MAX + "]", TOO_MANY),
    "deep brackets": ("a: " + "[" * 100_000, TOO_DEEP),
    "deep braces": ("{a: " * 20_000, TOO_DEEP),
    "deep blocks": ("".join(f"{' ' * depth}a:\n" for depth in range(1_000)), TOO_DEEP),
    "a chain of aliases": ("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200)), TOO_DEEP),
    "an alias of itself": ("a: &a [*a]", TOO_DEEP),
    "infinity": ("a: .inf", "a finite number"),
    "no number": ("a: -.NaN\nb: .nan", "a finite number"),
    "a tag that lies": ("a: !!int x", "a value that is a int"),
    "an empty integer": ("a: !!int ''", "a value that is a int"),
    "a wrong bool": ("a: !!bool maybe", "a value that is a bool"),
    "a wrong date": ("a: !!timestamp x", "a date"),
    "a character that is none": ('a: "\\UFFFFFFFF"', "expected YAML or JSON"),
    "bytes that are none": ("a: !!binary '*'", "expected YAML or JSON"),
    "a key of nothing": ("~: 1", "a key that is a text, a number or a boolean"),
    "a key that is a list": ("? [a]\n: b", "a key that is a text, a number or a boolean"),
    "a merge of a text": ("<<: x", "a mapping, or a list of mappings"),
    "half a character": ('a: "\\ud800"', "expected YAML or JSON"),
    "half a character in JSON": ('{"a": "\\ud800"}', "expected YAML or JSON"),
    "two escapes for a character, outside JSON": ('a: "\\ud83d\\ude00"', "invalid Unicode character escape"),
    "a version of 5,000 digits": (f"%YAML {'9' * 5_000}.1\n---\na: 1", "expected YAML or JSON"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "many values" else name for name in NASTY]
)
def test_a_nasty_text_is_refused(tmp_path: Path, name: str) -> None:
    """Each nasty text raises a StreamError with a message of a few lines."""
    text, expected = NASTY[name]
    with pytest.raises(StreamError) as refused:
        read_stream(saved(tmp_path, text))
    assert expected in str(refused.value)
    assert len(str(refused.value)) < 1_000


def test_shared_parts_are_read_up_to_the_bound() -> None:
    """Aliases may repeat 10,000 values, whoever shares them; one more is refused."""
    shared = f"a: &a [{', '.join('x' * 99)}]\nb: [{', '.join(['*a'] * 100)}]\n"
    (read,) = parse(shared)
    assert read["b"] == [["x"] * 99] * 100
    assert read["b"][0] is not read["b"][1]
    with pytest.raises(yaml.YAMLError, match="repeat"):
        parse(shared + "c: *a\n")


def test_what_is_no_file_is_refused_and_what_the_shell_opened_is_read(tmp_path: Path) -> None:
    """A named pipe, a device and a folder are refused at once; standard input and process substitution are read."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, kind in ((pipe, "a named pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(StreamError, match=f"expected a readable file, saw: {kind}, not a file"):
            read_stream(str(path))
    manifest = EXAMPLES / "minimal.yaml"
    inject = f"{sys.executable} -m inplace.cli inject -q"
    for script in (
        f"{inject} -f - < {manifest}",
        f"{inject} -f /dev/stdin < {manifest}",
        f"{inject} -f <(cat {manifest})",
    ):
        done = subprocess.run(
            ["bash", "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, "kind: JobSet" in done.stdout) == (0, True), (script, done.stderr)


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    """A file one byte above the bound is refused by its length, unread."""
    with pytest.raises(StreamError, match=f"at most {STREAM_BYTES_MAX:,} bytes"):
        read_stream(saved(tmp_path, "#" * (STREAM_BYTES_MAX + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["lint", "inject", "demo"])
def test_every_command_that_reads_manifests_refuses(tmp_path: Path, command: str) -> None:
    """Every command refuses 800 bytes that stand for 2**40 values, in one sentence without a traceback."""
    file = saved(tmp_path, doubled("merge", 40))
    result = run_here(command, "--file", file)
    assert result.returncode in (1, 2)
    assert REPEATED in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-22", "2026-11-22"),
        ("12:30", "12:30"),
        ("1:59:59.5", "1:59:59.5"),
        ("=", "="),
        ("0o17", 15),
        ("08", 8),
        ("0b-1", -1),
        ("0x_", "0x_"),
        ("1e-4", 0.0001),
        ("1E5", 100_000),
        (".5_0e1", 5),
        ("1.0e+400", "1.0e+400"),
        pytest.param("9" * 5_000, "9" * 5_000, id="5,000 digits"),
        pytest.param("0x" + "f" * 200_000, "0x" + "f" * 200_000, id="200,000 hexadecimal digits"),
        ("18446744073709551616", 2.0**64),
        ("y", True),
        ("N", False),
        ("! 12", "12"),
        ("!!float 1", 1),
        ("!!binary QUFB", "AAA"),
        ("!!set {x, z}", {"x": None, "z": None}),
        ("!!map [x]", ["x"]),
        ("!!python/object/apply:os.system [id]", ["id"]),
        ("{1: a, 1e6: b, 0.1: c, on: d}", {"1": "a", "1e+06": "b", "0.1": "c", "true": "d"}),
        ("{b: 1, b: 2}", {"b": 2}),
        ("[&x 1, &x 2, *x]", [1, 2, 2]),
        ("017", 15),
        ("0x1F", 31),
        ("1_000", 1000),
        ("-1.5", -1.5),
        ("yes", True),
        ("~", None),
        ("!!str 12", "12"),
        ("!!int 12", 12),
        ('"<<"', "<<"),
        ("x\t# a tab in front", "x"),
    ],
)
def test_values_are_what_kubernetes_reads(text: str, expected: object) -> None:
    """Values are read as kubectl reads them: dates are text, and a number without a fraction is an integer."""
    ((found,),) = (document.values() for document in parse(f"a: {text}"))
    assert (found, type(found)) == (expected, type(expected))


def test_two_escapes_are_one_character_in_json_alone() -> None:
    """As in kubectl: JSON's text is read as JSON, and a backslash that is escaped begins no escape."""
    assert with_whole_characters(r'{"a": "\ud83d\ude00\\ud83d\ud83d\uDE00"}') == r'{"a": "😀\\ud83d😀"}'
    assert with_whole_characters(in_yaml := r"{a: '\ud83d\ude00'}") == in_yaml


def test_merge_keys_still_merge() -> None:
    """A merge key counts where it stands, as for kubectl; no two parts of the result are the same object."""
    (found,) = parse(
        "base: &b {x: 1, q: {z: 2}}\none: {<<: *b, x: 3}\ntwo: {<<: [*b, {x: 5, w: 4}]}\nlate: {x: 3, <<: *b}"
    )
    assert found["one"] == {"x": 3, "q": {"z": 2}}
    assert found["two"] == {"x": 1, "q": {"z": 2}, "w": 4}
    assert found["late"] == {"x": 1, "q": {"z": 2}}
    assert found["one"]["q"] is not found["two"]["q"]


KEYS = st.text(max_size=80)  # escaped they take 12 characters each; a key of YAML may have 1,024
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**63, 2**63 - 1)  # beyond these kubectl has a float
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_json_is_read_as_json_reads_it(value: Any) -> None:
    """JSON that a program wrote is read back unchanged, with and without escapes."""
    assert parse(with_whole_characters(json.dumps(value))) == (value,)


@given(
    st.text(alphabet="&*<>!|'\"{}[],:-?#%@`=~ \n\tabx019.e+\\u") | st.binary().map(lambda raw: raw.decode("latin-1"))
)
def test_no_text_breaks_the_reader(text: str) -> None:
    """Any text is read, or refused with a StreamError."""
    try:
        parse(text)
    except yaml.YAMLError:
        return
