"""JSON lines as a table: Polars reads a block in which all cells have the declared types, and Python's own parser reads the others."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, one_line, unknown

from .columns import Column, placed
from .documents import parse_json
from .opening import decoded, line_blocks
from .sources import BLOCK_BYTES, Block, Source

if TYPE_CHECKING:
    import polars as pl


@dataclass
class JsonLines(Source):
    """A file of objects, one per line; the parameters are those of `read_table`."""

    #: The key of each declared column that the first object has; an optional one that it lacks must be missing everywhere.
    _there: dict[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        for block, line in line_blocks(self.path, limit=self.limit):
            for _, row in self.objects(block, line):
                return list(row)
        return []

    def blocks(self) -> Iterator[Block]:
        if self.columns and (keys := self.names()):
            at = placed(self.columns, keys, str(self.path), refuse_unknown=self.refuse_unknown, some=False)
            self._there = {name: keys[i] for name, i in at.items()}
        empty = True
        for block, line in line_blocks(self.path, limit=self.limit, size=BLOCK_BYTES):
            empty = False
            yield _Objects(self, block, line)
        if empty:
            yield _Objects(self, b"", 1)

    def objects(self, block: bytes, line: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The (line, object) pairs by Python's own parser, which is slow and decides what an object is."""
        decoded(block, self.path, line)
        for number, text in enumerate(block.split(b"\n"), line):
            if text.strip():
                row = parse_json(text, str(self.path), line=number)
                if not isinstance(row, dict):
                    raise InputError(f'found "{one_line(text.decode(), 40)}"; expected an object', where=f"{self.path}:{number}")
                yield number, row

    def cells(self, block: bytes, line: int) -> pl.DataFrame:
        """The declared columns of a block, numbers as numbers or all as text."""
        import polars as pl

        found = None if self.refuse_unknown else self._cells_by_polars(block)
        if found is None:
            rows = list(self.objects(block, line))
            known = {name for column in self.columns for name in self._keys(column)}
            for number, row in rows:
                if self.refuse_unknown and not row.keys() <= known:
                    raise unknown("key", next(key for key in row if key not in known), known, where=f"{self.path}:{number}")
            schema = dict.fromkeys((column.name for column in self.columns), pl.String)
            found = pl.DataFrame({c.name: [self._text(c, row, number) for number, row in rows] for c in self.columns}, schema=schema)
        for column in self.columns:
            if column.optional and column.default is None and column.name not in self._there:
                if found[column.name].null_count() < found.height:
                    there = int(found[column.name].is_not_null().arg_max() or 0)
                    number = next(number for i, (number, _) in enumerate(self.objects(block, line)) if i == there)
                    raise InputError(f'found the key "{column.name}", which the first row lacks; expected it in all or none',
                                     where=f"{self.path}:{number}")  # fmt: skip
                found = found.drop(column.name)
        return found

    def _cells_by_polars(self, block: bytes) -> pl.DataFrame | None:
        import polars as pl

        kinds = {"int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean, "time": pl.Float64}
        schema = {key: kinds.get(column.type, pl.String) for column in self.columns for key in self._keys(column)}
        try:
            frame = pl.read_ndjson(io.BytesIO(block), schema=schema) if block.strip() else pl.DataFrame(schema=schema)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return None
        # Polars writes an object or an array out where a text is expected.
        texts = [frame[name] for name, kind in schema.items() if kind == pl.String]
        if any(text.str.contains(r"^[\[{]").any() for text in texts):
            return None
        # It takes the first of two equal keys.
        if any(block.count(b'"' + name.encode() + b'"') > frame.height for name in schema):
            return None
        return frame.select(pl.coalesce(self._keys(column)).alias(column.name) for column in self.columns)

    def _keys(self, column: Column) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*column.names, self._there.get(column.name, column.name))))

    def _text(self, column: Column, row: Mapping[str, Any], number: int) -> str | None:
        value = next((row[key] for key in self._keys(column) if row.get(key) is not None), None)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool) == (column.type == "bool") and isinstance(value, int | float) and column.type != "datetime":
            return str(value)
        shown = one_line(str(value), 60)
        message = f'column "{column.name}": found {shown}; expected {column.expected()}'
        raise InputError(message, where=f"{self.path}:{number}")


class _Objects(Block):
    def __init__(self, source: JsonLines, block: bytes, line: int) -> None:
        self._source, self._text, self._line = source, block, line
        self.cells = source.cells(block, line)

    def where(self, row: int) -> str:
        numbers = (number for number, _ in self._source.objects(self._text, self._line))
        return f"{self._source.path}:{next(number for i, number in enumerate(numbers) if i == row)}"
