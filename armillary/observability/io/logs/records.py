"""Puts the counter lines of a text log together into records: a row per module, file and rank, a column per counter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from armillary import memory
from armillary.errors import InputError, one_line

from .log import MOST_TIME, Module
from .modules import COUNTED, is_float
from .stripes import stripe_lines

if TYPE_CHECKING:
    import polars as pl

#: Different counters of one module; PNETCDF_VAR has 147 of them.
MOST_COUNTERS = 250
#: Bytes that one counter line takes until its record is put together.
_BYTES = 40


class Collected:
    """What was read so far, block by block; a record may be spread over blocks."""

    def __init__(self, path: str, most: int) -> None:
        self.path, self.most = path, most
        self.left: list[str] = []
        self.names: dict[int, str] = {}
        #: For each module: records by (rank, id), counters by name, and blocks of (record, counter, integers, floats, line).
        self._records: dict[str, dict[tuple[int, int], int]] = {}
        self._counters: dict[str, dict[str, int]] = {}
        self._parts: dict[str, list[tuple[Any, Any, Any, Any, Any]]] = {}
        #: What the lines of the module LUSTRE say of stripes.
        self.lustre: list[pl.DataFrame] = []
        self._held = 0

    def add(self, table: pl.DataFrame, lines: Any) -> None:
        """Adds the counter lines of a block, whose line numbers are `lines`."""
        import polars as pl

        numbered = table.with_columns(line=pl.Series(lines))
        numbered = numbered.with_columns(
            rank_number=pl.col("rank").cast(pl.Int64, strict=False), id_number=pl.col("id").cast(pl.UInt64, strict=False)
        )
        for column, bad in (("rank", "rank_number"), ("id", "id_number")):
            wrong = numbered.filter(pl.col(bad).is_null())
            if wrong.height:
                self._refuse(wrong.row(0, named=True), column, "a whole number of 64 bits")
        for (name,), part in numbered.group_by(["module"], maintain_order=True):
            module = str(name)
            if module == "LUSTRE":
                self._name(part)
                self.lustre.append(part.select("rank_number", "id_number", "counter", "value", "line").pipe(stripe_lines, self.path))
                self._hold(len(part) * _BYTES)
            elif module in COUNTED:
                self._add(module, part)
            elif module not in self.left:
                self.left.append(module)

    def _hold(self, more: int) -> None:
        """Counts what is kept, and asks whether there is memory for it and for putting it together."""
        self._held += more
        memory.require(3 * self._held, "the log", where=self.path)

    def _refuse(self, row: dict[str, Any], column: str, expected: str) -> None:
        raise InputError(f'{column}: found "{one_line(row[column], 40)}"; expected {expected}', where=f"{self.path}:{row['line']}")

    def _name(self, part: pl.DataFrame) -> None:
        first = part.select("id_number", "file").unique(subset="id_number", keep="first")
        for number, name in first.rows():
            self.names.setdefault(number, name)

    def _add(self, module: str, part: pl.DataFrame) -> None:
        import polars as pl

        records = self._records.setdefault(module, {})
        counters = self._counters.setdefault(module, {})
        self._name(part)
        for name in part["counter"].unique(maintain_order=True).to_list():
            counters.setdefault(name, len(counters))
        if len(counters) > MOST_COUNTERS:
            raise InputError(f"found more than {MOST_COUNTERS:,} counters of {module}; expected at most as many", where=self.path)
        keys = part.select("rank_number", "id_number").unique(maintain_order=True)
        for key in keys.rows():
            records.setdefault(key, len(records))
        if sum(map(len, self._records.values())) > self.most:
            raise InputError(f"found more than {self.most:,} records; expected at most as many (--max-records)", where=self.path)
        numbers = [records[key] for key in keys.rows()]
        joined = part.join(keys.with_columns(record=pl.Series(numbers, dtype=pl.Int64)), on=["rank_number", "id_number"], how="left")
        value = pl.col("value")
        joined = joined.with_columns(
            number=pl.col("counter").replace_strict(list(counters), list(counters.values()), return_dtype=pl.Int64),
            float=pl.col("counter").str.contains("_F_", literal=True), of_file=pl.col("counter").str.ends_with("_RENAMED_FROM"),
        )  # fmt: skip
        # The number of a file has no sign, and goes into a column of numbers that have one with the same bits.
        unsigned = value.cast(pl.UInt64, strict=False).reinterpret(signed=True)
        joined = joined.with_columns(
            whole=pl.when("float").then(0).when("of_file").then(unsigned).otherwise(value.cast(pl.Int64, strict=False)),
            real=pl.when("float").then(value.cast(pl.Float64, strict=False)).otherwise(0.0),
        )
        wrong = joined.filter(pl.col("whole").is_null() | pl.col("real").is_null() | ~(pl.col("real").abs() <= MOST_TIME))
        if wrong.height:
            row = wrong.row(0, named=True)
            self._refuse({**row, row["counter"]: row["value"]}, row["counter"], "seconds" if row["float"] else "a whole number below 2⁶³")
        self._hold(len(part) * _BYTES)
        part_of = self._parts.setdefault(module, [])
        columns = [joined[name].to_numpy() for name in ("record", "number", "whole", "real", "line")]
        part_of.append((columns[0], columns[1].astype(np.int32), columns[2], columns[3], columns[4]))

    def modules(self, processes: int, versions: dict[str, int], partial: list[str]) -> tuple[dict[str, Module], dict[int, str]]:
        """The records of every module, and the names of files by their numbers."""
        made = {name: self._module(name, processes, versions.get(name, 0), name in partial) for name in self._records}
        return made, self.names

    def _module(self, name: str, processes: int, version: int, partial: bool) -> Module:
        records, counters = self._records[name], self._counters[name]
        rows, columns, whole, real, lines = (np.concatenate(part) for part in zip(*self._parts.pop(name)))
        memory.require(9 * len(records) * len(counters), f"the module {name}", where=self.path)
        ranks = np.array([rank for rank, _ in records], np.int64)
        outside = np.flatnonzero((ranks < -1) | (ranks >= processes))
        if len(outside):
            at = int(lines[np.flatnonzero(rows == outside[0])[0]])
            found = f"found the rank {int(ranks[outside[0]])} of {processes} processes"
            raise InputError(f"{found}; expected -1 to {processes - 1}", where=f"{self.path}:{at}")
        seen = np.zeros((len(counters), len(records)), np.bool_)
        seen[columns, rows] = True
        if seen.sum() < len(rows):
            order = np.lexsort((lines, rows, columns))
            again = np.flatnonzero((np.diff(rows[order]) == 0) & (np.diff(columns[order]) == 0))
            at = int(lines[order[again[0] + 1]])
            raise InputError("found a counter of one record twice; expected it once", where=f"{self.path}:{at}")
        values: dict[str, Any] = {}
        order = np.argsort(columns, kind="stable")
        edges = np.searchsorted(columns[order], np.arange(len(counters) + 1))
        for counter, number in counters.items():
            mine = order[edges[number] : edges[number + 1]]
            values[counter] = _column(counter, rows[mine], real[mine] if is_float(counter) else whole[mine], len(records))
        return Module(name, np.array([number for _, number in records], np.uint64), ranks, values, partial, version)


def _column(counter: str, rows: Any, values: Any, records: int) -> Any:
    """One counter of all records; a count that a record lacks was not monitored."""
    made = np.zeros(records) if is_float(counter) else np.full(records, -1, np.int64)
    made[rows] = values
    return made
