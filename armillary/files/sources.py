"""Every format of a table gives blocks of cells, whose rows know their line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.errors import InputError

from .columns import Column, Conversion, Fault
from .opening import Name

if TYPE_CHECKING:
    import polars as pl

#: Columns of a file, declared or not.
COLUMNS = 10_000
#: Bytes of text that are converted at a time.
BLOCK_BYTES = 1 << 22


class Block:
    """The cells of some rows, one series for each declared column that the file has."""

    cells: pl.DataFrame

    def where(self, row: int) -> str:
        """The place of a row of this block, as an error names it."""
        raise NotImplementedError


@dataclass
class Source:
    """A file that gives blocks of cells. `limit` is the most bytes that it may have, packed and unpacked."""

    path: Name
    columns: Sequence[Column]
    limit: int | None
    refuse_unknown: bool

    def blocks(self) -> Iterator[Block]:
        """All rows, block after block; at least one block."""
        raise NotImplementedError

    def names(self) -> list[str]:
        """The names of the file's columns."""
        raise NotImplementedError

    def frames(self, first: int | None, row_limit: int | None) -> Iterator[tuple[int, pl.DataFrame]]:
        """(number of its first row, values of the declared columns) of each block, converted and checked."""
        import polars as pl

        conversions = [Conversion(column) for column in self.columns]
        start = 0
        for block in self.blocks():
            cells = block.cells if first is None else block.cells.head(first - start)
            if row_limit is not None and start + cells.height > row_limit:
                raise InputError(f"found more than {row_limit:,} rows; expected at most {row_limit:,}", where=str(self.path))
            values = []
            for conversion in conversions:
                try:
                    if conversion.column.name in cells.columns:
                        values.append(conversion.convert(cells[conversion.column.name]))
                    elif conversion.column.default is not None:
                        values.append(conversion.filled(cells.height))
                except Fault as fault:
                    raise InputError(fault.message, where=block.where(fault.row)) from None
            yield start, pl.DataFrame(values)
            start += cells.height
            if first is not None and start >= first:
                return

    def where(self, row: int) -> str:
        """The place of a row of the file, found by reading the file again up to there."""
        start = 0
        for block in self.blocks():
            if row < start + block.cells.height:
                return block.where(row - start)
            start += block.cells.height
        return str(self.path)
