"""JSON documents and lines: what Python reads, less what is refused, with the line of every fault."""

from __future__ import annotations

import gzip
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.files import parse_json, read_json, read_json_lines
from armillary.files.documents import _is_deeper

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=4), inside, max_size=4),
    max_leaves=20,
)


@given(value=VALUES, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
@settings(max_examples=100)
def test_a_document_is_what_python_reads(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    if "\0" in text:
        return
    assert parse_json(text, "d") == value
    assert parse_json(text.encode("utf-8", "surrogatepass"), "d") == value if text.isascii() else True


def depth(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(depth, inside), default=0)


@given(value=VALUES, most=st.integers(0, 5))
@settings(max_examples=100)
def test_depth_is_counted_outside_of_strings(value: Any, most: int) -> None:
    data = json.dumps([value, '[[[["\\', "\\"], ensure_ascii=True).encode()
    assert _is_deeper(data, most) == (depth([value]) > most)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "d.json:1: found the end in column 1; expected JSON (expecting value)"),
        ('{"a": 1,\n "b": }', 'd.json:2: found "}" in column 7; expected JSON (expecting value)'),
        ('{"a": 1,\n "b": {"c": 1,\n "c": 2}}', 'd.json:3: found the key "c" twice in one object; expected it once'),
        ('{"a": 1,\n "\\u0061": 2}', 'd.json:2: found the key "a" twice'),
        ('{"a": ["a", {"a": 1}], "b": {"a": "a:"},\n\n"a": 0}', 'd.json:3: found the key "a" twice'),
        ("[1,\n\nNaN]", "d.json:3: found NaN; expected a finite number"),
        ("[1,\n-Infinity]", "d.json:2: found -Infinity; expected a finite number"),
        ('["NaN", 1,\n\n-1e999]', "d.json:3: found -1e999; expected a finite number"),
        ("[1]\n[2]", 'd.json:2: found "[2]" in column 1; expected JSON (extra data)'),
        ("1" * 5000, "d.json:1: cannot be read as JSON (Exceeds the limit"),
        ("[" * 70 + "]" * 70, "d.json: found JSON nested more than 64 levels deep; expected at most 64"),
        ("[\n\0]", "d.json:2: found a NUL byte; expected text"),
    ],
)
def test_documents_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "d.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_json(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bombs_and_limits(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    begun = time.monotonic()
    for data in (b"[" * 3_000_000, b'{"a":' * 600_000, b"[[],[" * 600_000):
        path.write_bytes(data)
        with pytest.raises(InputError, match="nested more than 64 levels deep"):
            read_json(path)
    with pytest.raises(InputError, match="cannot be read as JSON"):
        parse_json(b"[" * 100_000 + b"]" * 100_000, "d.json", depth=10**6)
    path.write_bytes(b" " * 2000 + b"1")
    with pytest.raises(InputError, match="found 2,001 bytes; expected at most 2,000"):
        read_json(path, limit=2000)
    path.write_bytes(gzip.compress(b" " * 5000 + b"1"))
    assert read_json(path) == 1
    with pytest.raises(InputError, match="found more than 5,000 bytes after unpacking"):
        read_json(path, limit=5000)
    keys = ",".join(f'"{i}":0' for i in range(30_000))
    with pytest.raises(InputError, match='found the key "29999" twice'):
        parse_json("{" + keys + ',"29999":1}', "d.json")
    assert time.monotonic() - begun < 30  # A hang, not a speed.


def test_a_mark_before_the_text_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_bytes(b'\xef\xbb\xbf{"a": 1.5}')
    assert read_json(tmp_path / "d.json") == {"a": 1.5}
    assert math.isclose(parse_json("1e308", "d"), 1e308)


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"a": [1, 2]}\n\n  \r\n{"a": {"b": null}}')
    assert list(read_json_lines(path)) == [(1, {"a": [1, 2]}), (4, {"a": {"b": None}})]
    with pytest.raises(InputError, match="found more than 1 rows; expected at most 1"):
        list(read_json_lines(path, most=1))
    for text, said in (
        ('{"a": 1}\n5\n', r"d\.jsonl:2: found a number; expected an object"), ('{"a": 1}\n\n{"a": 1, "a": 2}\n', r'd\.jsonl:3: found the key "a" twice'),
        ('{"a": 1}\n{"a"', r"d\.jsonl:2: found the end in column 5"), ('{"a": ' + "[" * 99 + "]" * 99 + "}", "nested more than 64 levels deep"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            list(read_json_lines(path))
    path.write_bytes(b'{"a": "' + b"x" * (1 << 20) + b'"}')
    with pytest.raises(InputError, match="found a line of more than 1,048,576 bytes"):
        list(read_json_lines(path))
    assert len(list(read_json_lines(path, longest=1 << 21))) == 1
