"""Tables: small ones by hand in every format, against Python's own csv, json and datetime and against pandas, and in blocks."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.files import Column, column_names, delimited, read_table, scan_table

COLUMNS = [
    Column("time", "time", not_decreasing=True),
    Column("name", "str"),
    Column("bytes", "int", least=0),
    Column("ratio", "float"),
    Column("ok", "bool"),
]
ROWS = {"time": [0.5, 1.0, 1.0], "name": ["a", "b,c", "é"], "bytes": [3, 0, 7], "ratio": [0.1, -2.5, 1e300], "ok": [True, False, True]}


def write(path: Path, frame: pl.DataFrame) -> Path:
    data = io.BytesIO()
    kind = path.name.split(".")[1]
    if kind == "jsonl":
        frame.write_ndjson(data)
    elif kind == "parquet":
        frame.write_parquet(data)
    else:
        frame.write_csv(data, separator="\t" if kind == "tsv" else ",")
    packers: dict[str, Any] = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
    path.write_bytes(packers.get(path.suffix, bytes)(data.getvalue()))
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_every_format_gives_the_same_table(tmp_path: Path, ending: str, packed: str) -> None:
    path = write(tmp_path / f"t.{ending}{packed}", pl.DataFrame(ROWS))
    table = read_table(path, COLUMNS)
    assert table.frame.to_dict(as_series=False) == ROWS
    assert column_names(path) == list(ROWS)
    assert {name: array.dtype.kind for name, array in table.items()} == {"time": "f", "name": "O", "bytes": "i", "ratio": "f", "ok": "b"}
    assert (table.rows, len(table), "time" in table, "none" in table) == (3, 5, True, False)
    with pytest.raises(KeyError):
        table["none"]


def test_what_cells_may_be(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(' Time ,whole, flag,extra\n 1 , 5.0,YES,x\n+2,"7", 0 ,\n2.5e0,1e3,False,"a ""b"""\n\n   \n')
    table = read_table(path, [Column("time", "time"), Column("whole", "int"), Column("flag", "bool"), Column("extra", "str", default="-")])
    assert table["time"].tolist() == [1.0, 2.0, 2.5]
    assert table["whole"].tolist() == [5, 7, 1000]
    assert table["flag"].tolist() == [True, False, False]
    assert table["extra"].tolist() == ["x", "-", 'a "b"']


def test_columns_that_may_be_missing(tmp_path: Path) -> None:
    for name, text in (("t.csv", "a,n\n1,\n2,5\n"), ("t.jsonl", '{"a": 1, "n": null}\n{"a": 2, "n": 5}\n')):
        (tmp_path / name).write_text(text)
        table = read_table(
            tmp_path / name,
            [
                Column("a"),
                Column("n", "int", default=9),
                Column("f", default=math.nan),
                Column("s", "str", default=""),
                Column("o", optional=True),
            ],
        )
        assert table["n"].tolist() == [9, 5]
        assert np.isnan(table["f"]).all()
        assert table["s"].tolist() == ["", ""]
        assert "o" not in table


def test_aliases_cases_and_order(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("B,TIMESTAMP\n1,2\n")
    table = read_table(tmp_path / "t.csv", [Column("time", "time", aliases=("timestamp",)), Column("b", "int")])
    assert table.frame.columns == ["time", "b"]
    assert (table["time"].tolist(), table["b"].tolist()) == ([2.0], [1])
    (tmp_path / "t.jsonl").write_text('{"TS": 2}\n{"time": 3}\n')
    assert read_table(tmp_path / "t.jsonl", [Column("time", "time", aliases=("ts",))])["time"].tolist() == [2.0, 3.0]


def test_no_header_other_delimiters_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("# made by hand\n1;x;2\n# more\n3;y;4\n")
    named = read_table(path, [Column("last", "int")], format="csv", header=("first", "mid", "last"), delimiter=";", comment="#")
    assert named["last"].tolist() == [2, 4]
    ordered = read_table(path, [Column("a", "int"), Column("b", "str")], format="csv", header=False, delimiter=";", comment="#")
    assert ordered.frame.rows() == [(1, "x"), (3, "y")]
    assert str(ordered.error(1, "found it")) == f"{path}:4: found it"


def test_the_first_rows_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", pl.DataFrame({"a": range(100)}))
    assert read_table(path, [Column("a", "int")], first=7, row_limit=10)["a"].tolist() == list(range(7))
    path.write_text("a\n1\n2\nbad\n")
    assert read_table(path, [Column("a", "int")], first=2).rows == 2


def test_values_numbered_as_they_appear(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n,k\nb,5\na,5\nb,7\nc,5\n")
    table = read_table(tmp_path / "t.csv", [Column("n", "str"), Column("k", "int")])
    numbers, names = table.numbered("n")
    assert (numbers.tolist(), names) == ([0, 1, 0, 2], ["b", "a", "c"])
    assert table.numbered("k")[1] == [5, 7]


def test_an_empty_table_where_it_may_be(tmp_path: Path) -> None:
    for ending in ("csv", "parquet"):
        path = write(tmp_path / f"t.{ending}", pl.DataFrame({"a": []}, schema={"a": pl.Float64}))
        assert read_table(path, [Column("a"), Column("b", default=1.0)], may_be_empty=True).rows == 0
        with pytest.raises(InputError, match="found no rows; expected at least one"):
            read_table(path, [Column("a")])
    (tmp_path / "t.jsonl").write_text("\n")
    assert read_table(tmp_path / "t.jsonl", [Column("a")], may_be_empty=True).rows == 0


def test_blocks_are_the_table_and_lines_are_found_in_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 64)
    monkeypatch.setattr("armillary.files.opening._PIECE", 16)
    text = "time,name\n" + "".join(f'{i},"line {i}\nof a cell"\n' if i % 7 == 3 else f"{i},n{i}\n" for i in range(100))
    path = tmp_path / "t.csv"
    path.write_text(text)
    columns = [Column("time", "time", increasing=True), Column("name", "str")]
    parts = list(scan_table(path, columns))
    table = read_table(path, columns)
    assert len(parts) > 10
    assert pl.concat([part.frame for part in parts]).equals(table.frame)
    assert table["time"].tolist() == list(range(100))
    lines = text.split("\n")
    for part in parts:
        for row in {0, part.rows - 1}:
            where = str(part.error(row, "!"))
            line = int(where.rsplit(":", 2)[1])
            assert lines[line - 1].startswith(f"{int(part['time'][row])},")
            assert where == str(table.error(part.start + row, "!"))
    path.write_text(text + "7,late\n")
    with pytest.raises(InputError, match=rf't\.csv:{len(lines)}: column "time": found "7" after 99; expected seconds that increase'):
        read_table(path, columns)


def test_parquet_rows_and_types(tmp_path: Path) -> None:
    moment = datetime.datetime(2024, 1, 31, 12, 0, 0, 250000)
    frame = pl.DataFrame(
        {"t": [moment], "z": [moment.replace(tzinfo=datetime.UTC)], "d": [moment.date()], "u": pl.Series([5], dtype=pl.UInt8), "f": [5.0],
         "c": pl.Series(["x"], dtype=pl.Categorical), "n": [7], "i": [1], "e": pl.Series([2.5], dtype=pl.Float32)}
    )  # fmt: skip
    path = write(tmp_path / "t.parquet", frame)
    table = read_table(
        path,
        [Column("t", "time"), Column("z", "time"), Column("d", "datetime"), Column("u", "int"), Column("f", "int"), Column("c", "str"),
         Column("n", "str"), Column("i", "bool"), Column("e")],
    )  # fmt: skip
    seconds = moment.replace(tzinfo=datetime.UTC).timestamp()
    assert table.frame.drop("d").rows() == [(seconds, seconds, 5, 5, "x", "7", True, 2.5)]
    assert table["d"][0] == np.datetime64("2024-01-31T00:00:00")
    assert str(table.error(0, "!")) == f"{path}: row 1: !"


# Properties and oracles


def is_blank(row: list[str]) -> bool:
    return not any(row) or (len(row) == 1 and not row[0].strip())


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)


@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=8), end=st.sampled_from(["\n", "\r\n"]), all_quoted=st.booleans())
@settings(max_examples=80)
def test_text_is_that_of_pythons_reader(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]], end: str, all_quoted: bool
) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator=end, quoting=csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL)
        writer.writerow(["a", "b", "c"])
        writer.writerows(rows)
    with path.open(newline="", encoding="utf-8") as file:
        rows_there = [tuple(row) for row in list(csv.reader(file, strict=True))[1:] if not is_blank(row)]
    expected = rows_there if all(len(row) == 3 for row in rows_there) else None  # Python writes a bare carriage return without quotes.
    try:
        found = read_table(path, [Column(name, "str", default="", strip=False) for name in "abc"], may_be_empty=True).frame.rows()
    except InputError:
        found = None
    assert found == expected


PIECES = st.lists(st.sampled_from(["1", "x", ",", '"', "\n", "\r\n", " ", '""', '","']), max_size=14).map("".join)


@given(text=PIECES)
@settings(max_examples=80)
def test_odd_text_is_read_as_pythons_reader_does_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("odd") / "t.csv"
    path.write_text("a,b\n" + text, newline="")
    try:
        found = read_table(
            path, [Column("a", "str", default="", strip=False), Column("b", "str", default="", strip=False)], may_be_empty=True
        )
    except InputError:
        found = None
    try:
        rows = [tuple(row) for row in csv.reader(io.StringIO(text, newline=""), strict=True) if not is_blank(row)]
    except csv.Error:
        assert found is None
        return
    if found is None and text.count('"') % 2:
        return  # A quotation mark inside a cell that is not quoted: where rows end is then anybody's guess.
    expected = rows if all(len(row) == 2 for row in rows) else None
    assert (None if found is None else found.frame.rows()) == expected


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,25})?(e-?[0-9]{1,2})?", fullmatch=True),
)


@given(cells=st.lists(NUMBERS, min_size=1, max_size=20))
@settings(max_examples=40)
def test_numbers_have_the_bits_that_python_gives_them(tmp_path_factory: pytest.TempPathFactory, cells: list[str]) -> None:
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "t.csv").write_text("a\n" + "\n".join(cells) + "\n")
    expected = np.array([float(cell) for cell in cells])
    assert read_table(folder / "t.csv", [Column("a", finite=False)])["a"].tobytes() == expected.tobytes()
    values = [json.dumps(float(cell)) for cell in cells if math.isfinite(float(cell))]
    if values:
        (folder / "t.jsonl").write_text("".join(f'{{"a": {value}}}\n' for value in values))
        assert read_table(folder / "t.jsonl", [Column("a")])["a"].tolist() == [float(value) for value in values]


@given(
    moments=st.lists(
        st.datetimes(datetime.datetime(1680, 1, 1), datetime.datetime(2260, 1, 1), timezones=st.sampled_from(
            [None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=-5, minutes=-30)), datetime.timezone(datetime.timedelta(hours=14))]
        )), min_size=1, max_size=8,
    ),
    mark=st.sampled_from("T "),
)  # fmt: skip
@settings(max_examples=30)
def test_times_have_the_bits_of_pythons_timestamps(
    tmp_path_factory: pytest.TempPathFactory, moments: list[datetime.datetime], mark: str
) -> None:
    path = tmp_path_factory.mktemp("times") / "t.csv"
    path.write_text("t\n" + "".join(moment.isoformat(mark) + "\n" for moment in moments))
    aware = [moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC) for moment in moments]
    assert read_table(path, [Column("t", "time")])["t"].tolist() == [moment.timestamp() for moment in aware]
    exact = read_table(path, [Column("t", "datetime")])["t"]
    assert exact.tolist() == [np.datetime64(m.astimezone(datetime.UTC).replace(tzinfo=None), "ns").astype(int) for m in aware]


def test_short_times_and_nanoseconds(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t\n2024-01-31\n2024-01-31T12:00Z\n2024-01-31 12:00:00.123456789\n")
    assert read_table(tmp_path / "t.csv", [Column("t", "datetime")])["t"].astype(str).tolist() == [
        "2024-01-31T00:00:00.000000000", "2024-01-31T12:00:00.000000000", "2024-01-31T12:00:00.123456789",
    ]  # fmt: skip


def test_a_table_as_pandas_reads_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    n = 10_000
    frame = pandas.DataFrame(
        {"time": np.cumsum(rng.random(n)), "id": rng.integers(-(2**62), 2**62, n), "name": rng.choice(["a", "b,b", 'c"c', "d\nd"], n)}
    )
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    expected = pandas.read_csv(tmp_path / "t.csv.gz")
    found = read_table(tmp_path / "t.csv.gz", [Column("time", "time", increasing=True), Column("id", "int"), Column("name", "str")])
    assert found["time"].tobytes() == expected["time"].to_numpy().tobytes()
    assert found["id"].tolist() == expected["id"].tolist()
    assert found["name"].tolist() == expected["name"].tolist()


@given(rows=st.lists(st.fixed_dictionaries({}, optional={
    "i": st.integers(-(2**63), 2**63 - 1), "f": st.floats(allow_nan=False, allow_infinity=False), "s": st.text(max_size=4), "b": st.booleans(),
    "other": st.recursive(st.none(), lambda inside: st.lists(inside, max_size=2), max_leaves=4)}), min_size=1, max_size=6))  # fmt: skip
@settings(max_examples=40)
def test_json_lines_are_those_of_pythons_parser(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "t.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    columns = [
        Column("i", "int", default=-1),
        Column("f", default=-1.0),
        Column("s", "str", default="", strip=False),
        Column("b", "bool", default=False),
    ]
    table = read_table(path, columns)
    for name, default in (("i", -1), ("f", -1.0), ("s", ""), ("b", False)):
        assert table[name].tolist() == [row.get(name, default) for row in rows]
