"""SQLite files from strangers: opened read-only, only their ordinary tables are read, and text that is no UTF-8 is decoded leniently.

Views, triggers, virtual tables and computed columns are a stranger's program and never take part. Every statement is made here from names
that were found in the file's own list of tables. Whole numbers of large tables are read page by page (`armillary.files.sqlite_pages`).
"""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line

from .opening import STREAM_BYTES, Name, open_file
from .sqlite_pages import NULL, Numbers, Spilled, leaves, numbers

_MAGIC = b"SQLite format 3\0"
#: Tables, columns of a table, and bytes of a text or blob that are accepted.
_TABLES, _COLUMNS, _VALUE_BYTES = 5_000, 500, 1 << 24
#: Steps of SQLite's machine after which a statement over a small table is given up; a row takes some tens of them.
_STEPS = 2_000_000_000
_CHUNK = 100_000
#: What SQLite raises of damaged files: names in its messages may be no text.
_FAULTS = (sqlite3.Error, UnicodeError)


@dataclass(frozen=True)
class StoredTable:
    """An ordinary table: the page that it begins on, its stored columns in order, and which of them is the row's own number."""

    name: str
    root: int
    columns: tuple[str, ...]
    rowid: str | None
    #: Whether rows stand in the usual form; other tables are read through SQLite.
    plain: bool
    #: Whether rows have numbers of their own.
    numbered: bool = True


class SqliteFile:
    """A SQLite file that is open for reading: `with SqliteFile(path) as file`."""

    def __init__(self, path: Name, *, limit: int = STREAM_BYTES) -> None:
        self.where = one_line(str(path), 200)
        self._raw = open_file(path, limit=limit, unpack=False)
        self._connection: sqlite3.Connection | None = None
        try:
            self._read_header(Path(os.fspath(path)))
            self._connection = self._connected(path)
            self.tables = self._found_tables()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SqliteFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        if self._connection is not None:
            self._connection.close()
        self._raw.close()

    def columns(self, table: str) -> tuple[str, ...]:
        """The stored columns of a table; none where it does not exist."""
        return self.tables[table].columns if table in self.tables else ()

    def rows(self, table: str, columns: Sequence[str], *, most: int, present: str = "") -> list[tuple[Any, ...]]:
        """Rows of a small table as tuples, None for a column that it does not have; more than `most` rows are refused.

        The column "rowid" is the row's own number. `present` leaves out the rows in which this column is NULL.
        """
        if table not in self.tables or (present and present not in self.columns(table)):
            return []
        own = {"rowid"} if self.tables[table].numbered else set()
        chosen = ", ".join(_quoted(name) if name in {*self.columns(table), *own} else "NULL" for name in columns)
        condition = f" WHERE {_quoted(present)} IS NOT NULL" if present else ""
        found = self._fetch(f"SELECT {chosen} FROM {_quoted(table)}{condition} LIMIT {most + 1}")
        if len(found) > most:
            raise InputError(f"found more than {most:,} rows in the table {table}; expected at most {most:,}", where=self.where)
        return found

    def numbers(self, table: str, columns: Sequence[str]) -> Iterator[dict[str, Numbers]]:
        """Columns of whole numbers, in chunks of some hundred thousand rows; NULL, and a column that the table lacks, is `NULL`.

        The column "rowid" is the row's own number.
        """
        stored = self.tables.get(table)
        if stored is None:
            return
        where = f"{self.where}: {table}"
        present = {name: place for place, name in enumerate(stored.columns)}
        asked = rowid_slot = columns.index("rowid") if "rowid" in columns and "rowid" not in present else -1
        wanted = np.full(len(stored.columns), -1, np.int64)
        for slot, name in enumerate(columns):
            if name == stored.rowid:
                rowid_slot = slot
            elif name in present:
                wanted[present[name]] = slot
        missing = [slot for slot, name in enumerate(columns) if name not in present and slot != rowid_slot]
        if not stored.plain:
            yield from self._numbers_slowly(table, columns, where)
            return
        file = self._raw.fileno()
        pages = leaves(file, stored.root, self._page_size, self._pages, self._usable, where)
        done = 0
        try:
            for chunk in numbers(file, pages, self._page_size, self._usable, wanted, len(columns), rowid_slot, where):
                chunk[missing] = NULL
                if asked >= 0:
                    chunk[asked] = chunk[rowid_slot]
                done += chunk.shape[1]
                yield dict(zip(columns, chunk))
        except Spilled:
            yield from self._numbers_slowly(table, columns, where, skip=done)

    def _numbers_slowly(self, table: str, columns: Sequence[str], where: str, skip: int = 0) -> Iterator[dict[str, Numbers]]:
        present = {*self.columns(table), "rowid"} if self.tables[table].numbered else set(self.columns(table))
        chosen = ", ".join(_quoted(name) if name in present else "NULL" for name in columns)
        order = "ORDER BY rowid " if self.tables[table].numbered else ""
        cursor = self._execute(f"SELECT {chosen} FROM {_quoted(table)} {order}LIMIT -1 OFFSET {skip}")
        row = skip
        while True:
            try:
                rows = cursor.fetchmany(_CHUNK)
            except _FAULTS as error:
                raise self._fault(error) from None
            if not rows:
                return
            out = np.empty((len(columns), len(rows)), np.int64)
            for slot in range(len(columns)):
                values = [one[slot] for one in rows]
                for place, value in enumerate(values):
                    if value is None:
                        values[place] = NULL
                    elif isinstance(value, float) and abs(value) < 9.2e18:
                        values[place] = int(value)
                    elif not isinstance(value, int):
                        what = f"row {row + place + 1}: found a value in column {columns[slot]} that is no whole number"
                        raise InputError(what, where=where)
                out[slot] = values
            row += len(rows)
            yield dict(zip(columns, out))

    def _fetch(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            return self._execute(statement).fetchall()
        except _FAULTS as error:
            raise self._fault(error) from None

    def _execute(self, statement: str) -> sqlite3.Cursor:
        assert self._connection is not None
        try:
            return self._connection.execute(statement)
        except _FAULTS as error:
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> InputError:
        return InputError(f"cannot be read as SQLite ({one_line(str(error), 80)}); expected a whole file", where=self.where)

    def _read_header(self, path: Path) -> None:
        head = os.pread(self._raw.fileno(), 100, 0)
        if not head.startswith(_MAGIC):
            raise InputError(f"found {_beginning(head)}; expected a SQLite file", where=self.where)
        size = int.from_bytes(head[16:18], "big")
        self._page_size = 65536 if size == 1 else size
        self._usable = self._page_size - (head[20] if len(head) > 20 else 0)
        if len(head) < 100 or self._page_size not in (1 << k for k in range(9, 17)) or self._usable < 480:
            raise InputError("found a damaged header; expected a whole SQLite file", where=self.where)
        self._pages = os.fstat(self._raw.fileno()).st_size // self._page_size
        for ending in ("-wal", "-journal"):
            beside = Path(f"{path}{ending}")
            if beside.exists() and beside.stat().st_size:
                what = f"found the file {one_line(beside.name, 80)} beside it, so it is still being written"
                raise InputError(f"{what}; expected a finished file", where=self.where)

    def _connected(self, path: Name) -> sqlite3.Connection:
        # `immutable` takes no locks and makes no files beside this one.
        address = f"file:{urllib.parse.quote(os.path.abspath(os.fspath(path)))}?mode=ro&immutable=1"
        try:
            connection = sqlite3.connect(address, uri=True, check_same_thread=False)
        except _FAULTS as error:
            raise self._fault(error) from None
        try:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            for statement in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0", "temp_store = MEMORY"):
                connection.execute(f"PRAGMA {statement}")
            connection.set_authorizer(_only_reading)
            steps = iter(range(_STEPS // 1_000_000))
            connection.set_progress_handler(lambda: next(steps, None) is None, 1_000_000)
        except _FAULTS as error:
            connection.close()
            raise self._fault(error) from None
        return connection

    def _found_tables(self) -> dict[str, StoredTable]:
        listed = self._fetch(f"SELECT name, rootpage, sql FROM sqlite_schema WHERE type = 'table' LIMIT {_TABLES + 1}")
        if len(listed) > _TABLES:
            raise InputError(f"found more than {_TABLES:,} tables; expected at most {_TABLES:,}", where=self.where)
        found = {}
        for name, root, made in listed:
            if not (isinstance(name, str) and isinstance(root, int) and isinstance(made, str) and root > 1):
                continue
            described = self._fetch(f"PRAGMA table_xinfo({_quoted(name)})")
            if not 0 < len(described) <= _COLUMNS or any(not isinstance(one[1], str) for one in described):
                continue
            # Hidden columns are computed; those that are stored as well shift the others, so such a table is left alone.
            if any(hidden for *_, hidden in described):
                continue
            keys = [(column, str(kind).upper()) for _, column, kind, _, _, key, _ in described if key]
            own = keys[0][0] if len(keys) == 1 and keys[0][1] == "INTEGER" else None
            columns = tuple(one[1] for one in described)
            # A row that was written before a column with a default was added does not hold it, and a key in descending order is stored.
            said = made.upper()
            plain = "WITHOUT" not in said and "DESC" not in said and all(default is None for *_, default, _, _ in described)
            found[name] = StoredTable(name, root, columns, own if plain else None, plain, "WITHOUT" not in said)
        return found


def _only_reading(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    """Allows statements that read tables, and PRAGMA table_xinfo; a view or a trigger would be named as the source."""
    del second, database
    allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) or (action == sqlite3.SQLITE_PRAGMA and first == "table_xinfo")
    return sqlite3.SQLITE_OK if allowed and source is None else sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _beginning(head: bytes) -> str:
    return "an empty file" if not head else f'"{one_line(head[:16].decode("latin-1"), 24)}" at its beginning'
