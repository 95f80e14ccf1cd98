"""Lines into fields, another order, and back: byte for byte, whatever the bytes are."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.compression.logs.planning.plan import CHUNK, Plan, Reorder
from armillary.compression.logs.records.formats import BRACKETS, JSON, PAIRS, PLAIN, QUOTED, Format, detect
from armillary.compression.logs.records.split import LONGEST_LINE, fields_per_line, intern, parse
from armillary.errors import InputError

TSV = Format("zeek", PLAIN, "\t", 3, True)
CSV = Format("csv", QUOTED, ",", 3)
COMBINED = Format("combined", BRACKETS, " ", 3)
KV = Format("key-value", PAIRS, " ", 3)
OBJECTS = Format("jsonl", JSON, ",", 3)
SPACED = Format("jsonl", JSON, ", ", 3)
ALL = (TSV, CSV, COMBINED, KV, OBJECTS, SPACED, Format("w3c", BRACKETS, " ", 3, True))


@pytest.mark.parametrize(
    ("form", "line", "turned"),
    [
        (TSV, b"a\tb\tc\n", b"c\ta\tb\n"),
        (TSV, b"a\t\tc\r\n", b"c\ta\t\r\n"),
        (TSV, b"a\tb\n", b"a\tb\n"),
        (TSV, b"#a\tb\tc\n", b"#a\tb\tc\n"),
        (TSV, b"a\t#b\tc\n", b"a\t#b\tc\n"),
        (TSV, b"#fields\tx\ty\tz\n", b"#fields\tz\tx\ty\n"),
        (TSV, b"#types\tx\ty\tz\r\n", b"#types\tz\tx\ty\r\n"),
        (TSV, b"#path\tx\ty\tz\n", b"#path\tx\ty\tz\n"),
        (TSV, b"a\tb\r\tc\n", b"a\tb\r\tc\n"),
        (CSV, b'1,"x,""y""",3\n', b'3,1,"x,""y"""\n'),
        (CSV, b'1,"x,3\n', b'1,"x,3\n'),
        (CSV, b'1,"x"y,3\n', b'1,"x"y,3\n'),
        (COMBINED, b'h [10/Oct 13:55] "GET / \\" x"', b'"GET / \\" x" h [10/Oct 13:55]'),
        (COMBINED, b'h [open "x"\n', b'h [open "x"\n'),
        (KV, b'a=1 msg="two words" c=3\n', b'c=3 a=1 msg="two words"\n'),
        (KV, b'a=1 msg="open c=3\n', b'a=1 msg="open c=3\n'),
        (OBJECTS, b'{"a":1,"b":"x,}","c":[1,2]}\n', b'{"c":[1,2],"a":1,"b":"x,}"}\n'),
        (OBJECTS, b'{"a":1,"b":2,"c":3} \n', b'{"a":1,"b":2,"c":3} \n'),
        (SPACED, b'{"a": 1, "b": "x", "c": {"d": 1, "e": 2}}\n', b'{"c": {"d": 1, "e": 2}, "a": 1, "b": "x"}\n'),
        (SPACED, b'{"a": 1,"b": 2, "c": 3}\n', b'{"a": 1,"b": 2, "c": 3}\n'),
        (ALL[-1], b"#Fields: x y z\n", b"#Fields: z x y\n"),
    ],
)
def test_the_last_field_comes_first(form: Format, line: bytes, turned: bytes) -> None:
    plan = Plan(form, (2, 0, 1))
    assert plan.transform_bytes(line) == turned
    assert plan.inverse_bytes(turned) == line


ODD = [*(bytes([byte]) for byte in b'a#"\\[]{},\t =\r\n\0'), b"", b", ", b"\r\n", b"\xff\xfe", b"#fields\t", b"#types\t", b"#Fields: "]
PIECES = st.one_of(st.sampled_from(ODD), st.binary(max_size=4))


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=60), st.sampled_from(ALL), st.permutations(range(3)), st.integers(1, 9))
def test_any_bytes_come_back(pieces: list[bytes], form: Format, order: list[int], step: int) -> None:
    data = b"".join(pieces)
    plan = Plan(form, tuple(order))
    moved = plan.transform_bytes(data)
    assert len(moved) == len(data)
    assert plan.inverse_bytes(moved) == data
    # A stream that is cut anywhere gives the same.
    stream = Reorder(plan)
    assert b"".join(stream.feed(data[i : i + step]) for i in range(0, len(data), step)) + stream.end() == moved


FIELD = st.binary(max_size=6).filter(lambda b: not set(b) & set(b'\t\n\r#,;"\\'))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(FIELD, FIELD, FIELD), min_size=1), st.permutations(range(3)), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_fitting_lines_really_move(rows: list[tuple[bytes, ...]], order: list[int], end: bytes, last: bool) -> None:
    def text(order: list[int]) -> bytes:
        return end.join(b"\t".join(row[i] for i in order) for row in rows) + (end if last else b"")

    assert Plan(TSV, tuple(order)).transform_bytes(text([0, 1, 2])) == text(order)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.text("ab,\"' ;é", max_size=6), min_size=3, max_size=3), min_size=1, max_size=20), st.permutations(range(3)))
def test_csv_agrees_with_the_csv_module(rows: list[list[str]], order: list[int]) -> None:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    moved = Plan(CSV, tuple(order)).transform_bytes(out.getvalue().encode()).decode()
    assert list(csv.reader(io.StringIO(moved))) == [[row[i] for i in order] for row in rows]


def test_a_line_longer_than_a_chunk_moves_and_one_over_the_limit_stays() -> None:
    plan = Plan(TSV, (2, 0, 1))
    long = b"a" * (10 << 20)
    data = b"1\t2\t3\n" + long + b"\tb\tc\n4\t5\t6"
    moved = plan.transform_bytes(data)
    assert moved == b"3\t1\t2\nc\t" + long + b"\tb\n6\t4\t5"
    assert plan.inverse_bytes(moved) == data
    over = b"1\t2\t3\n" + b"a" * (LONGEST_LINE + CHUNK) + b"\tb\tc\n4\t5\t6\n" + b"a" * LONGEST_LINE + b"\tb\tc\n7\t8\t9\n"
    stream = Reorder(plan)
    moved = stream.feed(over) + stream.end()
    assert moved.startswith(b"3\t1\t2\naaaa")
    assert moved.endswith(b"\tb\tc\n9\t7\t8\n")
    assert b"\n6\t4\t5\n" in moved
    assert (stream.lines, stream.exceptions, stream.first_exception) == (5, 2, 1)
    assert plan.inverse_bytes(moved) == over


def test_parse_gives_fields_and_says_what_does_not_fit() -> None:
    data = np.frombuffer(b"a\tbb\tc\nx\n1\t2\t3", np.uint8)
    begins, starts, ends, fits = parse(data, 3, *TSV.code)
    assert begins.tolist() == [0, 7, 9, 14]
    assert fits.tolist() == [True, False, True]
    assert [data[a:b].tobytes() for a, b in zip(starts[0], ends[0], strict=True)] == [b"a", b"bb", b"c"]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3), max_size=40))
def test_interning_is_that_of_a_dictionary(pieces: list[bytes]) -> None:
    data = np.frombuffer(b"".join(pieces) + b"x", np.uint8)
    ends = np.cumsum([len(p) for p in pieces], dtype=np.int64)
    ids, firsts = intern(data, ends - np.array([len(p) for p in pieces], np.int64), ends)
    known: dict[bytes, int] = {}
    assert ids.tolist() == [known.setdefault(p, len(known)) for p in pieces]
    assert [pieces[i] for i in firsts] == list(known)


LOOKS = {
    "zeek": b"#separator \\x09\n#fields\tts\tuid\tproto\n1.5\tC1\ttcp\n2.5\tC2\tudp\n",
    "w3c": b"#Version: 1.0\n#Fields: date time s-ip\n2024-01-01 10:00:00 1.1.1.1\n",
    "csv": b"name,size,kind\na,1,x\nb,2,y\n",
    "tsv": b"name\tsize\tkind\na\t1\tx\nb\t2\ty\n",
    "netflow": b"ts,te,sa,da\n1,2,3,4\n5,6,7,8\n",
    "combined": b'1.1.1.1 - bob [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 23 "http://x/" "Mozilla 4"\n' * 3,
    "key-value": b'date=2024-01-01 time=10:00:00 src=1.1.1.1 msg="a b" action=ok\n' * 3,
    "jsonl": b'{"a": 1, "b": "x, y"}\n{"a": 2, "b": "z"}\n',
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_format_is_told_by_its_lines(name: str) -> None:
    found = detect(LOOKS[name])
    assert found is not None
    assert found.name == name
    assert found.fields == {"zeek": 3, "w3c": 3, "csv": 3, "tsv": 3, "netflow": 4, "combined": 9, "key-value": 5, "jsonl": 2}[name]
    assert len(found.names) == found.fields
    moved = Plan(found, tuple(reversed(range(found.fields)))).transform_bytes(LOOKS[name])
    assert moved != LOOKS[name]
    assert detect(moved, name).names == tuple(reversed(found.names)) or name == "combined"  # type: ignore[union-attr]


def test_free_text_has_no_fields() -> None:
    text = b"Dec 10 06:55:46 LabSZ sshd[24200]: Invalid user webmaster from 173.234.31.186\nDec 10 some thing else entirely here\n"
    assert detect(text) is None
    assert detect(LOOKS["csv"], "lines") is None


@pytest.mark.parametrize(
    ("log", "name", "says"),
    [(b"x", "xml", "unknown format"), (b"", "auto", "no line"), (b"abc\ndef\n", "csv", "two fields"), ("none", "auto", "no such file")],
)
def test_a_format_that_there_is_not_and_an_empty_log(log: bytes | str, name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        detect(log, name)


def test_fields_per_line_counts_by_the_grammar() -> None:
    assert fields_per_line(np.frombuffer(b'a,b\n"x,y",c,d\n"open\n', np.uint8), *CSV.code).tolist() == [2, 3, -1]
