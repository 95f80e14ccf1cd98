"""Tables with declared columns, from CSV, TSV, JSON lines and Parquet, plain or packed by gzip or Zstandard.

Text is read in blocks of whole rows, and Polars converts each block as a whole, so memory holds one block of text and the values of
the declared columns. The row limit bounds the values; a line and a cell have at most 1 MiB, a header at most 10,000 columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, one_line, unknown

from .columns import Column, check_columns
from .opening import STREAM_BYTES, Name
from .sources import Source

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

#: Rows of a table, unless the caller says otherwise.
ROWS = 10_000_000
FORMATS = ("csv", "tsv", "jsonl", "parquet")
_ENDINGS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}


@dataclass(frozen=True, eq=False)
class Table(Mapping[str, "npt.NDArray[Any]"]):
    """The rows of a file: `table["time"]` is an array, `table.frame` the Polars frame, `table.error(row, …)` an error with its line.

    A declared column that is optional and that the file lacks is not in the table (`"task" in table` is false). Arrays may be
    views of the frame that cannot be written to.
    """

    path: str
    frame: pl.DataFrame
    _source: Source = field(repr=False)
    #: The row of the file, from 0, at which the frame starts.
    start: int = 0

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.frame.height

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """One column: int64, float64, bool, datetime64[ns], or str as objects."""
        if name not in self.frame.columns:
            raise KeyError(name)
        return self.frame[name].to_numpy()

    def __contains__(self, name: object) -> bool:
        return name in self.frame.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.frame.columns)

    def __len__(self) -> int:
        """The number of columns, as for any mapping; `rows` is the number of rows."""
        return self.frame.width

    def numbered(self, name: str) -> tuple[npt.NDArray[np.int64], list[Any]]:
        """(number of each row's value, the values): values are numbered from 0 in the order of their first appearance."""
        import polars as pl

        values = self.frame[name].unique(maintain_order=True)
        numbers = self.frame[name].replace_strict(values, pl.int_range(len(values), eager=True), return_dtype=pl.Int64)
        return numbers.to_numpy(), values.to_list()

    def error(self, row: int, message: str, column: str = "") -> InputError:
        """The error for a row, counted from 0 in this table, with its line in the file: `raise table.error(3, "found …; expected …")`."""
        return InputError(f'column "{column}": {message}' if column else message, where=self._source.where(self.start + row))


def read_table(
    path: Name,
    columns: Sequence[Column],
    *,
    format: str | None = None,
    first: int | None = None,
    row_limit: int = ROWS,
    limit: int | None = STREAM_BYTES,
    unique: Sequence[str] = (),
    refuse_unknown: bool = False,
    may_be_empty: bool = False,
    header: bool | Sequence[str] = True,
    delimiter: str | None = None,
    comment: str = "",
) -> Table:
    """The table in a file, its declared columns converted and checked.

    format: one of csv, tsv, jsonl, parquet; by default what the file's ending says (.gz and .zst aside).
    first: the number of rows to read. row_limit: more rows than this are refused. limit: the most bytes, packed and unpacked.
    unique: columns whose values together may occur in one row only.
    refuse_unknown: a column that is not declared is refused instead of ignored. may_be_empty: a table without rows is accepted.
    header: false if a CSV has none, so that its columns are the declared ones in order; or the names of its columns.
    delimiter: a comma by default, and a tab for TSV. comment: lines that begin with it are skipped.
    """
    import polars as pl

    blocks = list(
        scan_table(
            path, columns, format=format, first=first, row_limit=row_limit, limit=limit, refuse_unknown=refuse_unknown, header=header,
            delimiter=delimiter, comment=comment,
        )
    )  # fmt: skip
    table = Table(blocks[0].path, pl.concat([block.frame for block in blocks], rechunk=True), blocks[0]._source)
    if not table.rows and not may_be_empty:
        raise InputError("found no rows; expected at least one", where=table.path)
    if unique:
        _check_unique(table, unique)
    return table


def scan_table(
    path: Name,
    columns: Sequence[Column],
    *,
    format: str | None = None,
    first: int | None = None,
    row_limit: int | None = None,
    limit: int | None = None,
    refuse_unknown: bool = False,
    header: bool | Sequence[str] = True,
    delimiter: str | None = None,
    comment: str = "",
) -> Iterator[Table]:
    """The table in a file as consecutive tables of a few MiB, for files that do not fit memory; parameters as for `read_table`.

    There is at least one table, which may be empty. Neither rows nor bytes are bounded unless the caller asks for it.
    """
    check_columns(columns)
    if first is not None and first < 1:
        raise InputError(f"found {first} rows; expected at least 1", where="first")
    source = _source(path, columns, format, limit, refuse_unknown, header, delimiter, comment)
    for start, frame in source.frames(first, row_limit):
        yield Table(str(path), frame, source, start)


def column_names(path: Name, *, format: str | None = None, delimiter: str | None = None, comment: str = "") -> list[str]:
    """The names of a table's columns as they stand in the file, from its header, its first object or its schema."""
    return _source(path, (), format, None, False, True, delimiter, comment).names()


def _source(
    path: Name, columns: Sequence[Column], format: str | None, limit: int | None, refuse_unknown: bool, header: bool | Sequence[str],
    delimiter: str | None, comment: str,
) -> Source:  # fmt: skip
    kind = _format(path, format)
    if kind == "parquet":
        from .parquet import Parquet

        return Parquet(path, columns, limit, refuse_unknown)
    if kind == "jsonl":
        from .json_lines import JsonLines

        return JsonLines(path, columns, limit, refuse_unknown)
    from .delimited import Delimited

    return Delimited(path, columns, limit, refuse_unknown, header, delimiter or ("\t" if kind == "tsv" else ","), comment)


def _format(path: Name, format: str | None) -> str:
    if format is not None:
        if format not in FORMATS:
            raise unknown("format of table", format, FORMATS)
        return format
    name = os.path.basename(os.fspath(path)).lower()
    ending = os.path.splitext(name.removesuffix(".gz").removesuffix(".zst"))[1]
    if ending not in _ENDINGS:
        raise InputError(f'found the ending "{one_line(ending, 20)}"; expected {", ".join(_ENDINGS)}', where=str(path))
    return _ENDINGS[ending]


def _check_unique(table: Table, names: Sequence[str]) -> None:
    import polars as pl

    there = [name for name in names if name in table.frame.columns]
    again = table.frame.select(~pl.struct(there).is_first_distinct()).to_series()
    if again.any():
        row = int(again.arg_max() or 0)
        values = ", ".join(f"{name} {one_line(str(table.frame[name][row]), 40)}" for name in there)
        raise table.error(row, f"found {values} again; expected it once")
