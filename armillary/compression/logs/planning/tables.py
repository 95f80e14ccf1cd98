"""Orders the columns of a Polars or Arrow table by CFseq before it is written, behind an interface like scikit-learn's."""

from __future__ import annotations

from typing import Any, Self

from armillary.errors import InputError, one_line

from ..cfseq import CFseq
from ..records.formats import QUOTED, Format
from ..records.sample import STRETCHES
from .plan import Plan


class ColumnOrder:
    """Learns in which order the columns of a table compress best as CSV, and selects them in that order.

    `ColumnOrder(compressor="zstd-3").fit_transform(df).write_csv("log.csv")`. After `fit`, `order_` holds the names and `plan_` the plan.
    """

    def __init__(self, compressor: str = "zstd-3", sample_rows: int = 40_000, budget_s: float = 30.0) -> None:
        self.compressor = compressor
        self.sample_rows = sample_rows
        self.budget_s = budget_s

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters by name."""
        return {"compressor": self.compressor, "sample_rows": self.sample_rows, "budget_s": self.budget_s}

    def set_params(self, **parameters: Any) -> Self:
        """Sets some of the parameters."""
        for name, value in parameters.items():
            if name not in self.get_params():
                raise InputError(f"parameter: found {one_line(name, 40)}; expected {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def fit(self, table: Any, y: Any = None) -> Self:
        """Learns the order from eight stretches of the rows of a Polars or Arrow table."""
        import polars as pl

        frame = table if isinstance(table, pl.DataFrame) else pl.from_arrow(table)
        if not isinstance(frame, pl.DataFrame) or not frame.width or not frame.height:
            raise InputError("table: found no rows or no columns; expected both")
        if self.sample_rows < 1:
            raise InputError(f"sample_rows: found {self.sample_rows}; expected at least 1")
        if frame.width == 1:
            self.order_: tuple[str, ...] = tuple(frame.columns)
            return self
        if frame.height > self.sample_rows:
            each = max(1, self.sample_rows // STRETCHES)
            frame = pl.concat([frame.slice((frame.height - each) * i // (STRETCHES - 1), each) for i in range(STRETCHES)])
        text = frame.write_csv(include_header=False).encode()
        maker = CFseq(compressor=self.compressor, sample_bytes=max(1, len(text)), budget_s=self.budget_s, lenient=True)
        self.plan_: Plan = maker.plan_for(text, _csv(frame.width))
        self.order_ = tuple(frame.columns[i] for i in self.plan_.order)
        return self

    def transform(self, table: Any) -> Any:
        """Returns the table with its columns in the learned order."""
        names = list(getattr(table, "columns", ())) if not hasattr(table, "column_names") else list(table.column_names)
        if sorted(names) != sorted(self.order_):
            raise InputError(f"columns: found {one_line(', '.join(map(str, names)), 80)}; expected {one_line(', '.join(self.order_), 80)}")
        return table.select(list(self.order_))

    def fit_transform(self, table: Any, y: Any = None) -> Any:
        """Calls `fit`, then `transform`."""
        return self.fit(table).transform(table)


def _csv(width: int) -> Format:
    return Format("csv", QUOTED, ",", width)
