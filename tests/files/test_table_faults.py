"""Bad tables of every kind end in one line, soon, and without much memory."""

from __future__ import annotations

import copy
import gzip
import io
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from thrift_footer import Decoder, Fields, chunk, encoded_fields, joined, split

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table

TIME = Column("time", "time", not_decreasing=True)
BIG = 10**12


def refused(path: Path, columns: list[Column], *parts: str, **how: object) -> str:
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(InputError) as error:
        read_table(path, columns, **how)  # type: ignore[arg-type]
    said = str(error.value)
    assert "\n" not in said
    assert len(said) < 700
    for part in parts:
        assert part in said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB
    assert time.monotonic() - begun < 30  # A hang, not a speed.
    return said


CELLS = [
    ("time\n46812.5\n13:07\n", [TIME], ':3: column "time": found "13:07" after 46812.5; expected seconds that do not decrease'),
    ("time\n2\n1.5\n", [TIME], ':3: column "time": found "1.5" after 2; expected seconds that do not decrease'),
    ("time\n1\nnan\n", [TIME], ':3: column "time": found "nan" after 1; expected a finite number'),
    ("a\n1e999\n", [Column("a")], ':2: column "a": found "1e999"; expected a finite number'),
    ("a\n-inf\n", [Column("a")], ':2: column "a": found "-inf"; expected a finite number'),
    ("a\nx\n", [Column("a")], ':2: column "a": found "x"; expected a number'),
    ("a\n0x10\n", [Column("a", "int")], ':2: column "a": found "0x10"; expected a whole number'),
    ("a\n1.5\n", [Column("a", "int")], ':2: column "a": found "1.5"; expected a whole number'),
    ("a\n9223372036854775808\n", [Column("a", "int")], ":2: "),
    ("a\n1e300\n", [Column("a", "int")], ":2: "),
    ("a\n0\n", [Column("a", "int", unit="tokens", least=1)], "found \"0\"; expected a whole number of tokens of at least 1"),
    ("a\n0\n", [Column("a", unit="seconds", above=0)], 'found "0"; expected seconds above 0'),
    ("a\n2\n", [Column("a", above=0, most=1)], 'found "2"; expected a number above 0 and at most 1'),
    ("a\n-1\n", [Column("a", least=0, most=1)], 'found "-1"; expected a number from 0 to 1'),
    ("a\n5\n", [Column("a", most=1)], 'found "5"; expected a number of at most 1'),
    ("a\nmaybe\n", [Column("a", "bool")], 'found "maybe"; expected true or false'),
    ("a\nsideways\n", [Column("a", "str", choices=("up", "down"))], 'found "sideways"; expected one of up, down'),
    ("a\n5\n", [Column("a", "int", choices=(3, 4, 8))], 'found "5"; expected one of 3, 4, 8'),
    ("a,b\n1,\n", [Column("b", "str")], ':2: column "b": found nothing; expected text'),
    ("a,b\n1,   \n", [Column("b")], ':2: column "b": found "   "; expected a number'),
    ("t\n2024-13-01\n", [Column("t", "datetime")], 'found "2024-13-01"; expected a time such as 2024-01-31T12:00:00Z'),
    ("t\n2024-01-31\nsoon\n", [Column("t", "time")], ':3: column "t": found "soon"; expected a time such as'),
    ("t\n3024-01-31\n", [Column("t", "datetime")], 'found "3024-01-31"'),
    ("t\n3\n3\n", [Column("t", increasing=True)], 'found "3" after 3; expected a number, greater than the one before'),
    ("a\n" + "x" * 900_000 + "\n", [Column("a")], "…"),
    ("a\n\x1b[31m\n", [Column("a")], r'found "\x1b[31m"'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "columns", "said"), CELLS)
def test_cells(tmp_path: Path, text: str, columns: list[Column], said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    refused(path, columns, said)
    path.write_text("\n\n" + text)
    if "found" in said and said.startswith(":"):
        refused(path, columns, f":{int(said[1]) + 2}{said[2:]}")


SHAPES = [
    (b"", "found no header; expected the names of the columns"),
    (b"\n \n", "found no header"),
    (b"time\n", "found no rows; expected at least one"),
    (b"other\n1\n", ":1: found the columns other; expected time"),
    (b"time,TIME\n1,2\n3,4,5\n", ":3: found 3 cells; expected 2"),
    (b"Time,TIME\n1,2\n", ':1: found the columns "Time" and "TIME"; expected "time" once'),
    (b"time,time\n1,2\n", ':1: found the columns "time" and "time"; expected "time" once'),
    (b"time,a\n1,2\n3\n", ":3: found 1 cell; expected 2"),
    (b"time,a\n1,2\n\n3,4,5\n", ":4: found 3 cells; expected 2"),
    (b'time,a\n1,"x\n2,y\n', ":2: cannot be read as CSV (unexpected end of data)"),
    (b'time,a\n1,"x"y\n', ":2: cannot be read as CSV"),
    (b"time\n1\n\xff\xfe\n", ":3: found the byte 0xff; expected UTF-8 text"),
    (b"time\n1\n2\0\n", ":3: found a NUL byte; expected text"),
    ("time\n1\n".encode("utf-16"), ":1: found the byte 0xff; expected UTF-8 text"),
    (b"a," * 20_000 + b"\n", ":1: found 20,001 columns; expected at most 10,000"),
    (b"time\n" + b"1" * (1 << 21), ":2: found a line of more than 1,048,576 bytes"),
    (b'time\n"' + b"1\n" * (1 << 20), ":2: found a quoted cell of more than 1,048,576 bytes; expected its closing quotation mark"),
    (b"\x89PNG\r\n\x1a\n\0\0\0", ":1: found the byte 0x89"),
]


@pytest.mark.parametrize(("data", "said"), SHAPES)
def test_shapes(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    refused(path, [TIME], said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"time": 1}\n{"time": 0.5}\n', ':2: column "time": found 0.5 after 1.0; expected seconds that do not decrease'),
        ('{"time": 1}\n\n{"time": null}\n', ':3: column "time": found nothing after 1.0; expected seconds'),
        ('{"time": 1}\n{}\n', ':2: column "time": found nothing'),
        ('{"time": 1}\n{"time": 2, "time": 3}\n', ':2: found the key "time" twice in one object; expected it once'),
        ('{"time": 1}\n{"time": [2]}\n', ':2: column "time": found [2]; expected seconds'),
        ('{"time": true}\n', ':1: column "time": found True; expected seconds'),
        ('{"time": "x"}\n', ':1: column "time": found "x"; expected seconds'),
        ('{"time": NaN}\n', ":1: found NaN; expected a finite number"),
        ('{"time": 1e999}\n', ":1: found 1e999; expected a finite number"),
        ('{"time": 1}\n{"time": 1\n', ":2: found the end in column 11; expected JSON"),
        ('{"time": 1} {"time": 2}\n', ':1: found "{"time": 2}" in column 13; expected JSON (extra data)'),
        ("[1]\n", ':1: found "[1]"; expected an object'),
        ('{"other": 1}\n', "found the columns other; expected time"),
        ('{"time": 1, "a": ' + "[" * 100_000 + "]" * 100_000 + "}\n", "found JSON nested more than 64 levels deep"),
        ('{"time": 1}\n' + "{" * 2_000_000, ":2: found a line of more than 1,048,576 bytes"),
        ("\n\n", "found no rows"),
    ],
)
def test_json_lines(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    refused(path, [TIME], said)


def test_json_keys(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"time": 1}\n{"time": 2, "tme": 3}\n')
    refused(path, [TIME], ':2: unknown key "tme" (did you mean "time"?)', refuse_unknown=True)
    path.write_text('{"time": 1}\n{"time": 2, "task": "x"}\n')
    refused(path, [TIME, Column("task", "str", optional=True)], ':2: found the key "task", which the first row lacks')
    path.write_text('{"time": 1, "s": {"a": 1}}\n')
    refused(path, [TIME, Column("s", "str")], ":1: column \"s\": found {'a': 1}; expected text")


def test_none_of_the_declared_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    refused(tmp_path / "t.csv", [Column("x", default=1.0), Column("y", optional=True)], ":1: found the columns a, b; expected [x], [y]")
    refused(tmp_path / "t.csv", [Column("a"), Column("b"), Column("c")], ":1: found the columns a, b; expected a, b, c", header=False)


def test_unknown_columns_and_repeated_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time,a\n1,x\n1,y\n\n1,x\n")
    refused(path, [TIME], ":1: found the columns time, a; expected time", refuse_unknown=True)
    assert refused(path, [TIME, Column("a", "str")], ":5: found time 1.0, a x again; expected it once", unique=("time", "a"))


def test_endings_and_names(tmp_path: Path) -> None:
    (tmp_path / "t.xls").write_text("time\n1\n")
    refused(tmp_path / "t.xls", [TIME], 'found the ending ".xls"; expected .csv, .tsv')
    refused(tmp_path / "t.xls", [TIME], "unknown format of table", format="xls")
    refused(tmp_path / "none.csv", [TIME], "none.csv: no such file")
    os.mkfifo(tmp_path / "f.parquet")
    refused(tmp_path / "f.parquet", [TIME], "found a FIFO")
    refused(Path("/dev/zero"), [TIME], "found a device", format="csv")
    with pytest.raises(InputError, match="found a device"):
        column_names("/dev/zero", format="jsonl")


def test_too_many_rows_stop_the_reading(tmp_path: Path) -> None:
    for name, row in (("t.csv.gz", b"1\n"), ("t.jsonl.gz", b'{"time":1}\n')):
        head = b"time\n" if "csv" in name else b""
        (tmp_path / name).write_bytes(gzip.compress(head) + gzip.compress(row * 100_000, 1) * 50)
        refused(tmp_path / name, [TIME], "found more than 50,000 rows; expected at most 50,000", row_limit=50_000)


def test_a_line_of_a_billion_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"," * (1 << 22), 9) * 240)
    refused(tmp_path / "t.csv.gz", [TIME], ":1: found a line of more than 1,048,576 bytes")


def test_truncated_tables(tmp_path: Path) -> None:
    packed = gzip.compress(b"time\n" + os.urandom(3000).hex().encode() + b"\n1\n")
    (tmp_path / "t.csv.gz").write_bytes(packed[:-9])
    refused(tmp_path / "t.csv.gz", [TIME], "found the end of the file within its gzip data")


# Parquet


def parquet(frame: pl.DataFrame) -> bytes:
    data = io.BytesIO()
    frame.write_parquet(data, compression="zstd")
    return data.getvalue()


GOOD = parquet(pl.DataFrame({"time": [float(i) for i in range(1000)], "s": [f"x{i % 3}" for i in range(1000)]}))


def group(footer: Fields) -> Fields:
    found: Fields = footer[4][1][1][0]
    return found


def all_rows(footer: Fields) -> None:
    footer[3][1] = group(footer)[3][1] = chunk(footer)[5][1] = BIG


LIES: dict[str, Callable[[Fields], object]] = {
    "rows": lambda footer: footer[3].__setitem__(1, BIG),
    "rows of the group": lambda footer: group(footer)[3].__setitem__(1, BIG),
    "rows everywhere": all_rows,
    "negative rows": lambda footer: (footer[3].__setitem__(1, -5), group(footer)[3].__setitem__(1, -5)),
    "values": lambda footer: chunk(footer)[5].__setitem__(1, BIG),
    "packed bytes": lambda footer: chunk(footer)[7].__setitem__(1, BIG),
    "fewer packed bytes": lambda footer: chunk(footer)[7].__setitem__(1, 10),
    "place": lambda footer: chunk(footer)[9].__setitem__(1, BIG),
    "negative place": lambda footer: chunk(footer)[9].__setitem__(1, -8),
    "schema": lambda footer: footer[2][1][1][0][5].__setitem__(1, 10**6),
    "no groups": lambda footer: footer[4][1][1].clear(),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_parquet_whose_footer_lies(tmp_path: Path, lie: str) -> None:
    body, footer = split(GOOD)
    told = copy.deepcopy(footer)
    LIES[lie](told)
    (tmp_path / "t.parquet").write_bytes(joined(body, told))
    refused(tmp_path / "t.parquet", [TIME], "t.parquet")


def test_parquet_whose_footer_misses_its_unpacked_bytes(tmp_path: Path) -> None:
    body, footer = split(GOOD)
    for size in (chunk(footer)[6][1], 0, BIG):  # Nobody relies on them: the pages say it too.
        chunk(footer)[6][1] = size
        (tmp_path / "t.parquet").write_bytes(joined(body, footer))
        assert read_table(tmp_path / "t.parquet", [TIME]).rows == 1000


@pytest.mark.parametrize(
    ("field", "said"),
    [(2, "found columns that unpack to 2,147,483,647 bytes"), (3, "found pages of"), (5, "found pages of 2,147,483,647 values")],
)
def test_parquet_whose_page_lies(tmp_path: Path, field: int, said: str) -> None:
    body, footer = split(GOOD)
    facts = chunk(footer)
    start = facts[9][1]
    decoder = Decoder(body, start)
    header = decoder.fields()
    rest = body[decoder.at : facts[7][1] + start]
    if field == 5:
        header[5][1][1][1] = 2**31 - 1
    else:
        header[field][1] = 2**31 - 1
    page = encoded_fields(header) + rest
    facts[9][1], facts[7][1] = len(body), len(page)
    facts.pop(11, None)
    (tmp_path / "t.parquet").write_bytes(joined(body + page, footer))
    refused(tmp_path / "t.parquet", [TIME], said)


def test_parquet_that_is_none_cut_or_nested(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    for data, said in (
        (b"", "found no Parquet data"), (b"time\n1\n" * 9, "found no Parquet data"), (GOOD[:-1], "found no footer"), (GOOD[: len(GOOD) // 2], "found no footer"),
        (GOOD[:-8] + b"\xff\xff\xff\x7fPAR1", "found no footer"), (b"PAR1" + bytes(100) + b"\x20\0\0\0PAR1", "found a damaged footer"),
        (b"PAR1" + b"\x19\xfc" + b"\xff" * 9 + bytes(50) + b"\x20\0\0\0PAR1", "found a damaged footer"),
        (b"PAR1" + b"\x1c" * 5000 + b"\x00\x10\0\0PAR1", "found a damaged footer"),
    ):  # fmt: skip
        path.write_bytes(data)
        refused(path, [TIME], said)
    path.write_bytes(parquet(pl.DataFrame({"time": [[1.0], [2.0]]})))
    refused(path, [TIME], 'column "time": found nested values; expected one per row')
    path.write_bytes(parquet(pl.DataFrame({"time": [True, False]})))
    refused(path, [TIME], 'row 1: column "time": found True; expected seconds')
    path.write_bytes(parquet(pl.DataFrame({"time": [1.0, None, 2.0]})))
    refused(path, [TIME], 'row 2: column "time": found nothing after 1.0')
    damaged = bytearray(GOOD)
    damaged[60:400] = os.urandom(340)
    path.write_bytes(damaged)
    refused(path, [TIME], "t.parquet")


def test_parquet_with_honest_but_too_many_rows_or_texts(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"time": pl.zeros(5_000_000, dtype=pl.Float64, eager=True)}).write_parquet(path)
    assert path.stat().st_size < 100_000
    refused(path, [TIME], "found 5,000,000 rows; expected at most 1,000,000", row_limit=10**6)
    pl.DataFrame({"s": ["x" * (1 << 20) + "y"] * 20}).write_parquet(path)
    assert path.stat().st_size < 100_000
    refused(path, [Column("s", "str")], 'column "s": found')


def test_declarations_that_make_no_sense_are_defects(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    for columns in ([Column("a"), Column("b", aliases=("a",))], [Column("a", "str", least=1)], [Column("a", least=2, most=1)]):
        with pytest.raises(ValueError):
            read_table(tmp_path / "t.csv", columns)
    with pytest.raises(InputError, match="unknown type of column"):
        Column("a", "number")  # type: ignore[arg-type]
