"""SQLite files: numbers as Python's sqlite3 gives them, and damaged or hostile files refused in one line."""

from __future__ import annotations

import random
import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.files.sqlite import SqliteFile
from armillary.files.sqlite_pages import NULL, leaves, read_pages
from armillary.testing.fuzzing import damaged_bytes


def made(path: Path, *statements: str, rows: Sequence[Sequence[Any]] = (), table: str = "t", page_size: int = 4096) -> Path:
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA page_size = {page_size}")
    for statement in statements:
        connection.execute(statement)
    if rows:
        connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
    connection.commit()
    connection.close()
    return path


def read(path: Path, table: str, columns: Sequence[str]) -> list[list[int]]:
    """All rows, as lists of numbers."""
    with SqliteFile(path) as file:
        chunks = [np.stack([chunk[name] for name in columns]) for chunk in file.numbers(table, columns)]
    return np.concatenate(chunks, axis=1).T.tolist() if chunks else []


def oracle(path: Path, table: str, columns: Sequence[str]) -> list[list[int]]:
    """The same by Python's sqlite3."""
    connection = sqlite3.connect(path)
    rows = connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
    connection.close()
    return [[NULL if value is None else int(value) for value in row] for row in rows]


EDGES = [
    0, 1, -1, 127, -128, 128, 32767, -32768, 1 << 23, -(1 << 23) - 1, (1 << 31) - 1, 1 << 31, -(1 << 47), 1 << 47, (1 << 63) - 1,
    -(1 << 63) + 1,
]  # fmt: skip
VALUES = st.one_of(st.none(), st.sampled_from(EDGES), st.integers(-(1 << 63) + 1, (1 << 63) - 1), st.floats(-1e15, 1e15))


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(VALUES, st.text(max_size=40), st.one_of(st.none(), st.integers(-(1 << 50), 1 << 50), st.floats(-1e15, 1e15)), st.binary(max_size=30), VALUES), max_size=60),
    page_size=st.sampled_from([512, 1024, 4096, 65536]),
)
def test_numbers_are_those_of_sqlite(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], page_size: int) -> None:
    path = tmp_path_factory.mktemp("db") / "x.sqlite"
    made(path, "CREATE TABLE t (a, s TEXT, b REAL, z BLOB, c INTEGER)", rows=rows, page_size=page_size)
    assert read(path, "t", ["c", "a", "b", "rowid"]) == oracle(path, "t", ["c", "a", "b", "rowid"])


@pytest.mark.parametrize("page_size", [512, 4096, 65536])
def test_a_table_of_many_pages_is_read_in_order_after_deletions(tmp_path: Path, page_size: int) -> None:
    rng = random.Random(page_size)
    rows = [(k, rng.randrange(-(1 << 62), 1 << 62), "x" * rng.randrange(90), rng.choice([None, 3, 1 << 40])) for k in range(20_000)]
    path = made(tmp_path / "x.sqlite", "CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER, s TEXT, b INTEGER)", rows=rows, page_size=page_size)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM t WHERE a % 3 = 0")
    connection.commit()
    connection.close()
    assert read(path, "t", ["id", "rowid", "b", "a"]) == oracle(path, "t", ["id", "rowid", "b", "a"])
    with SqliteFile(path) as file:
        stored = file.tables["t"]
        assert len(leaves(file._raw.fileno(), stored.root, page_size, file._pages, page_size, "x")) > 10  # the pages were really walked


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_long_text_may_stand_on_further_pages(tmp_path: Path, place: str) -> None:
    columns = "s TEXT, a INTEGER" if place == "before" else "a INTEGER, s TEXT"
    rows: list[Any] = [("y" * (5_000 * (k % 7 == 3)), k) if place == "before" else (k, "y" * (5_000 * (k % 7 == 3))) for k in range(2_000)]
    path = made(tmp_path / "x.sqlite", f"CREATE TABLE t ({columns})", rows=rows)
    assert read(path, "t", ["a"]) == [[k] for k in range(2_000)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (k INTEGER PRIMARY KEY, a INTEGER) WITHOUT ROWID",
        "CREATE TABLE t (k INTEGER PRIMARY KEY DESC, a INTEGER)",
        "CREATE TABLE t (k INTEGER PRIMARY KEY, a INTEGER, d INTEGER DEFAULT 7)",
        "CREATE TABLE t (k INT PRIMARY KEY, a INTEGER)",
        "CREATE TABLE t (k TEXT, a INTEGER)",
    ],
)
def test_unusual_tables_are_read_like_others(tmp_path: Path, statement: str) -> None:
    path = made(tmp_path / "x.sqlite", statement)
    connection = sqlite3.connect(path)
    connection.executemany("INSERT INTO t (k, a) VALUES (?, ?)", [(k, 10 * k) for k in range(50)])
    connection.commit()
    connection.close()
    names = ["a"] if "TEXT" in statement else ["k", "a"]
    assert sorted(read(path, "t", names)) == sorted(oracle(path, "t", names))


def test_a_column_that_was_added_later_has_its_default(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite", "CREATE TABLE t (a INTEGER)", rows=[(1,), (2,)])
    made_later = sqlite3.connect(path)
    made_later.execute("ALTER TABLE t ADD COLUMN b INTEGER")
    made_later.execute("ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 5")
    made_later.commit()
    made_later.close()
    assert read(path, "t", ["a", "b", "c", "missing"]) == [[1, NULL, 5, NULL], [2, NULL, 5, NULL]]


def test_rows_of_small_tables_are_whole_whatever_their_text(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite", "CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)")
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO t VALUES (1, CAST(x'66ff6f' AS TEXT)), (2, 'two' || char(10) || 'lines'), (3, NULL)")
    connection.commit()
    connection.close()
    with SqliteFile(path) as file:
        assert file.rows("t", ["id", "s", "missing"], most=3) == [(1, "f\ufffdo", None), (2, "two\nlines", None), (3, None, None)]
        assert file.rows("t", ["s"], most=3, present="s") == [("f\ufffdo",), ("two\nlines",)]
        assert file.rows("t", ["s"], most=3, present="missing") == file.rows("none", ["s"], most=3) == []
        with pytest.raises(InputError, match="found more than 2 rows in the table t; expected at most 2"):
            file.rows("t", ["id"], most=2)


def test_only_tables_are_seen_and_nothing_is_run(tmp_path: Path) -> None:
    path = made(
        tmp_path / "x.sqlite", "CREATE TABLE t (a INTEGER)", "CREATE VIEW v AS SELECT a FROM t",
        "CREATE TABLE g (a INTEGER, b INTEGER GENERATED ALWAYS AS (a * 2) STORED)", "CREATE VIRTUAL TABLE f USING fts5(x)",
    )  # fmt: skip
    with SqliteFile(path) as file:
        assert {"v", "g", "f"}.isdisjoint(file.tables)
        assert "t" in file.tables
        assert list(file.numbers("v", ["a"])) == []
        for statement in (
            "INSERT INTO t VALUES (1)", "ATTACH 'y.db' AS y", "PRAGMA writable_schema = 1", "SELECT * FROM v", "SELECT load_extension('x')",
        ):  # fmt: skip
            with pytest.raises(InputError, match=r"cannot be read as SQLite"):
                file._fetch(statement)
    assert [one.name for one in tmp_path.iterdir()] == ["x.sqlite"]


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_a_file_that_is_still_written_is_refused(tmp_path: Path, ending: str) -> None:
    path = made(tmp_path / "x.sqlite", "CREATE TABLE t (a INTEGER)", rows=[(1,)])
    (tmp_path / f"x.sqlite{ending}").write_bytes(b"pages")
    with pytest.raises(InputError, match=f"found the file x.sqlite{ending} beside it"):
        SqliteFile(path)


def test_a_finished_file_in_wal_mode_is_read(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite", "CREATE TABLE t (a INTEGER)", rows=[(5,)])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("INSERT INTO t VALUES (6)")
    connection.commit()
    connection.close()
    assert path.read_bytes()[18] == 2
    assert read(path, "t", ["a"]) == [[5], [6]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found an empty file; expected a SQLite file"),
        (b"#Paraver (01", 'found "#Paraver'),
        (b"SQLite format 3\0" + bytes(30), "found a damaged header"),
        (b"SQLite format 3\0" + struct.pack(">H", 1000) + bytes(100), "found a damaged header"),
    ],
)
def test_what_is_no_sqlite_file_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    (path := tmp_path / "x.sqlite").write_bytes(content)
    with pytest.raises(InputError) as raised:
        SqliteFile(path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_text_where_numbers_belong_is_said_with_its_row(tmp_path: Path) -> None:
    for words in ("CREATE TABLE t (a)", "CREATE TABLE t (a PRIMARY KEY) WITHOUT ROWID"):
        path = made(tmp_path / "x.sqlite", words, rows=[(1,), ("two",)])
        with pytest.raises(InputError, match=r"x.sqlite: t: row 2: found a value in column \w+ that is no whole number"):
            read(path, "t", ["a"])


# Damage: pages are changed where the reader must not believe them


def damaged(path: Path, at: int, value: bytes) -> Path:
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(bytes(data))
    return path


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, int]:
    """A table with interior pages, of 512 bytes, and the page of its root."""
    rows = [(k, k * k) for k in range(3_000)]
    path = made(tmp_path / "x.sqlite", "CREATE TABLE t (a INTEGER, b INTEGER)", rows=rows, page_size=512)
    with SqliteFile(path) as file:
        root = file.tables["t"].root
        assert read_pages(file._raw.fileno(), np.array([root]), 512, "x")[0] == 5
    return path, root


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as raised:
        read(path, "t", ["a", "b"])
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_loop_of_pages_ends(tree: tuple[Path, int]) -> None:
    path, root = tree
    assert "expected a whole SQLite file" in refusal(damaged(path, (root - 1) * 512 + 8, root.to_bytes(4, "big")))


def test_a_tree_that_is_its_own_only_child_ends(tree: tuple[Path, int]) -> None:
    path, root = tree
    page = bytes([5, 0, 0, 0, 0, 1, 0, 0]) + root.to_bytes(4, "big")
    assert "nested deeper" in refusal(damaged(path, (root - 1) * 512, page))


@pytest.mark.parametrize("number", [0, 1, 1 << 31, (1 << 32) - 1])
def test_pages_outside_of_the_file_are_not_followed(tree: tuple[Path, int], number: int) -> None:
    path, root = tree
    assert "outside of the file" in refusal(damaged(path, (root - 1) * 512 + 8, number.to_bytes(4, "big")))


@pytest.mark.parametrize("cells", [200, 65535])
def test_more_children_than_a_page_has_room_for_are_refused(tree: tuple[Path, int], cells: int) -> None:
    path, root = tree
    assert "damaged page" in refusal(damaged(path, (root - 1) * 512 + 3, cells.to_bytes(2, "big")))


def test_one_page_in_two_places_is_refused(tree: tuple[Path, int]) -> None:
    path, root = tree
    data = path.read_bytes()
    begin = (root - 1) * 512
    first = int.from_bytes(data[begin + 12 : begin + 14], "big")
    assert "twice" in refusal(damaged(path, begin + 8, data[begin + first : begin + first + 4]))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (3, b"\xff\xff"),  # rows beyond the page
        (8, b"\x01\xff"),  # a row at the last byte
        (8, b"\xff\xff"),  # a row behind the page
        (0, b"\x0a"),  # an index
    ],
)
def test_leaves_are_not_believed(tree: tuple[Path, int], at: int, value: bytes) -> None:
    path, root = tree
    with SqliteFile(path) as file:
        leaf = int(leaves(file._raw.fileno(), root, 512, file._pages, 512, "x")[7])
    assert "expected a whole SQLite file" in refusal(damaged(path, (leaf - 1) * 512 + at, value))


@pytest.mark.parametrize("header", [b"\x7f", b"\x00", b"\x03\x0a\x01", b"\x03\x06\x06", b"\xff" * 9])
def test_the_header_of_a_row_is_not_believed(tree: tuple[Path, int], header: bytes) -> None:
    path, root = tree
    with SqliteFile(path) as file:
        leaf = int(leaves(file._raw.fileno(), root, 512, file._pages, 512, "x")[0])
    data = path.read_bytes()
    begin = (leaf - 1) * 512
    row = begin + int.from_bytes(data[begin + 14 : begin + 16], "big")
    assert "x.sqlite: t: row " in refusal(damaged(path, row + 2, header))


def test_a_file_that_ends_early_is_refused(tree: tuple[Path, int]) -> None:
    path, _ = tree
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert "expected" in refusal(path)


def test_damage_anywhere_is_read_or_refused(tmp_path: Path) -> None:
    rows = [(k, None if k % 5 else k << 33, "text" * (k % 9)) for k in range(1_500)]
    path = made(tmp_path / "x.sqlite", "CREATE TABLE t (a INTEGER, b INTEGER, s TEXT)", rows=rows, page_size=512)
    sound, rng = path.read_bytes(), random.Random(4)
    refused, lines = 0, list[str]()
    for _ in range(300):
        path.write_bytes(damaged_bytes(sound, rng))
        try:
            read(path, "t", ["a", "b", "rowid"])
        except InputError as error:
            refused += 1
            lines.append(str(error))
    assert 50 < refused < 300
    assert not any("\n" in line for line in lines)
