"""Columns as a reader declares them, and how their cells become numbers.

A column says its name, its type and what its values must be. The cells of a block are converted and checked as a whole, and the row is
looked for only if something is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from armillary.errors import InputError, one_line, unknown

if TYPE_CHECKING:
    import polars as pl

Type = Literal["int", "float", "str", "bool", "time", "datetime"]
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
#: Whole numbers up to here are exact as floating-point numbers.
_EXACT = 1 << 53
#: A date and time; the time, its seconds, their fraction and the zone may be missing. Without a zone it is UTC.
_MOMENT = (
    r"^(?<day>\d{4}-\d\d-\d\d)(?:[T ](?<minute>\d\d:\d\d)(?::(?<second>\d\d)(?:\.(?<part>\d{1,9}))?)?)?"
    r"\s*(?<zone>Z|z|[+-]\d\d(?::?\d\d)?)?$"
)
#: Seconds since 1970 whose nanoseconds fit 64 bits.
_NS_SECONDS = 9_223_372_036


@dataclass(frozen=True)
class Column:
    """One column of a table: `Column("arrival_s", "time", least=0, not_decreasing=True)`.

    | type | what a cell may be | what it becomes |
    |---|---|---|
    | `int` | a whole number; 5.0 and 5e3 too | int64 |
    | `float` | a number | float64 |
    | `str` | text, whose spaces at both ends go unless `strip` is false | str |
    | `bool` | true, false, yes, no, 1, 0 | bool |
    | `time` | seconds, or all cells ISO 8601 (UTC without a zone), which become seconds since 1970 | float64 |
    | `datetime` | ISO 8601 | datetime64[ns], UTC |
    """

    name: str
    type: Type = "float"
    #: Other names under which files have it.
    aliases: tuple[str, ...] = ()
    #: What the numbers count, as a plural ("seconds", "bytes"); messages and documentation use it.
    unit: str = ""
    least: float | None = None
    most: float | None = None
    #: Values must be greater than this.
    above: float | None = None
    #: The only values that it may have.
    choices: tuple[Any, ...] = ()
    #: Whether the file may lack the column, in which case the table lacks it too.
    optional: bool = False
    #: The value of empty cells, and of all cells if the file has no such column. Without it, an empty cell is refused.
    default: Any = None
    #: Whether NaN and the infinities are refused.
    finite: bool = True
    not_decreasing: bool = False
    increasing: bool = False
    strip: bool = True

    def __post_init__(self) -> None:
        if self.type not in get_args(Type):
            raise unknown("type of column", str(self.type), get_args(Type), where=self.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it may have in a file."""
        return (self.name, *self.aliases)

    @property
    def may_be_missing(self) -> bool:
        """Whether a file without it is accepted."""
        return self.optional or self.default is not None

    def expected(self, moments: bool = False) -> str:
        """What a cell must be, in words; `moments` says that the others of a time column are ISO 8601."""
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices[:20])) + ("…" if len(self.choices) > 20 else "")
        plural = (self.type == "time" and not moments) or (self.type == "float" and bool(self.unit))
        if self.type == "datetime" or moments:
            noun = "a time such as 2024-01-31T12:00:00Z"
        elif self.type == "int":
            noun = f"a whole number of {self.unit}" if self.unit else "a whole number"
        elif self.type in ("float", "time"):
            noun = self.unit or ("seconds" if self.type == "time" else "a number")
        else:
            noun = {"str": "text", "bool": "true or false"}[self.type]
        return noun + self._range() + self._order(plural)

    def _range(self) -> str:
        low, high = self.least, self.most
        if self.above is not None:
            return f" above {_number(self.above)}" + (f" and at most {_number(high)}" if high is not None else "")
        if low is not None and high is not None:
            return f" from {_number(low)} to {_number(high)}"
        return f" of at least {_number(low)}" if low is not None else f" of at most {_number(high)}" if high is not None else ""

    def _order(self, plural: bool) -> str:
        if self.increasing:
            return " that increase" if plural else ", greater than the one before"
        if self.not_decreasing:
            return " that do not decrease" if plural else ", not less than the one before"
        return ""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"


class Fault(Exception):
    """A row, counted from 0 within its block, and what is wrong with it."""

    def __init__(self, row: int, message: str) -> None:
        self.row, self.message = row, message
        super().__init__(message)


@dataclass
class Conversion:
    """Converts and checks the cells of one column, block after block."""

    column: Column
    #: The last value and its cell, which the next block's first must follow.
    _last: Any = field(default=None)
    _last_cell: Any = field(default=None)
    #: Whether a time column has ISO 8601 times; decided by the first cell that is not empty.
    _moments: bool | None = field(default=None)

    def convert(self, cells: pl.Series) -> pl.Series:
        """The values of a block; raises a `Fault` for the first cell that is wrong."""
        import polars as pl

        column = self.column
        values = self._typed(cells)
        if values.null_count():
            wrong = values.is_null()
            if column.default is not None:
                wrong = wrong & ~_is_empty(cells)
            self._refuse(wrong, cells)
        if column.finite and values.dtype == pl.Float64:
            self._refuse(~values.is_finite(), cells, "a finite number")
        self._check_range(values, cells)
        if column.choices:
            self._refuse(~values.is_in(list(column.choices)), cells)
        if values.null_count():
            values = values.fill_null(column.default)
        if (column.not_decreasing or column.increasing) and len(values):
            self._check_order(values, cells)
        return values.rename(column.name)

    def filled(self, rows: int) -> pl.Series:
        """The values of a column that the file lacks."""
        import polars as pl

        kinds: dict[str, Any] = {"int": pl.Int64, "str": pl.String, "bool": pl.Boolean, "datetime": pl.Datetime("ns")}
        one = pl.Series(self.column.name, [self.column.default], kinds.get(self.column.type, pl.Float64))
        return one.new_from_index(0, rows) if rows else one.head(0)

    def _typed(self, cells: pl.Series) -> pl.Series:
        """The values; null where a cell is empty or does not fit."""
        import polars as pl

        kind, dtype = self.column.type, cells.dtype
        if dtype == pl.Null:
            return self.filled(0).extend_constant(None, len(cells))
        if isinstance(dtype, (pl.Categorical, pl.Enum)):
            cells, dtype = cells.cast(pl.String), pl.String()
        if kind == "str":
            if dtype == pl.String:
                text = cells.str.strip_chars() if self.column.strip else cells
                return _without(text, text == "")
            return self._refused(cells) if not dtype.is_integer() else cells.cast(pl.String)
        if kind == "bool":
            return _truths(cells) if dtype == pl.String or dtype.is_integer() else cells if dtype == pl.Boolean else self._refused(cells)
        if kind in ("time", "datetime") and (dtype == pl.Date or isinstance(dtype, pl.Datetime)):
            self._moments = True
            if getattr(dtype, "time_zone", None):
                cells = cells.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
            moments = cells.cast(pl.Datetime("ns"), strict=False)
            if kind == "datetime":
                return moments
            parts = moments.dt.epoch("ns")
            return (parts // 1_000_000_000).cast(pl.Float64) + (parts % 1_000_000_000) / 1e9
        if dtype == pl.String:
            return self._from_text(cells)
        if kind == "datetime" or not dtype.is_numeric():
            return self._refused(cells)
        return _whole(cells) if kind == "int" else cells.cast(pl.Float64, strict=False)

    def _from_text(self, cells: pl.Series) -> pl.Series:
        import polars as pl

        kind = self.column.type
        if kind == "time" and self._moments is None:
            first = cells.str.strip_chars().filter(cells.str.strip_chars() != "").head(1)
            self._moments = None if not len(first) else bool(_seconds(first)[0].is_not_null()[0])
        if kind == "datetime" or (kind == "time" and self._moments):
            seconds, part = _seconds(cells)
            if kind == "time":
                return seconds.cast(pl.Float64) + part / 1e9
            fits = (seconds > -_NS_SECONDS) & (seconds < _NS_SECONDS)
            return (_without(seconds, ~fits) * 1_000_000_000 + part).cast(pl.Datetime("ns"))
        wanted = pl.Int64 if kind == "int" else pl.Float64
        values = cells.cast(wanted, strict=False)
        if values.null_count():
            text = cells.str.strip_chars()
            values = text.cast(wanted, strict=False)
            if kind == "int" and values.null_count():
                values = values.fill_null(_whole(text.cast(pl.Float64, strict=False)))
        return values

    def _refused(self, cells: pl.Series) -> pl.Series:
        """Refuses cells of a type that does not fit, unless all are empty, which is left to the default."""
        there = cells.is_not_null().arg_max() if len(cells) else None
        if there is not None and cells[there] is not None:
            raise Fault(there, self._message(there, cells))
        return self.filled(0).extend_constant(None, len(cells))

    def _check_range(self, values: pl.Series, cells: pl.Series) -> None:
        column = self.column
        bounds = ((column.least, "lt"), (column.most, "gt"), (column.above, "le"))
        for bound, compare in bounds:
            if bound is not None:
                wrong = getattr(values, compare)(bound)
                # Polars puts NaN above every number.
                self._refuse(wrong & ~values.is_nan() if not column.finite else wrong, cells)

    def _check_order(self, values: pl.Series, cells: pl.Series) -> None:
        before = values.shift(1, fill_value=self._last) if self._last is not None else values.shift(1)
        self._refuse(values <= before if self.column.increasing else values < before, cells)
        self._last, self._last_cell = values[-1], cells[-1]

    def _refuse(self, wrong: pl.Series, cells: pl.Series, expected: str = "") -> None:
        if wrong.any():
            row = int(wrong.fill_null(False).arg_max() or 0)
            raise Fault(row, self._message(row, cells, expected))

    def _message(self, row: int, cells: pl.Series, expected: str = "") -> str:
        column, cell = self.column, cells[row]
        found = "nothing" if cell is None or cell == "" else _shown(cell)
        if column.not_decreasing or column.increasing:
            before = cells[row - 1] if row else self._last_cell
            found += f" after {_shown(before, quote=False)}" if before is not None else ""
        return f'column "{column.name}": found {found}; expected {expected or column.expected(bool(self._moments))}'


def _shown(cell: Any, quote: bool = True) -> str:
    if isinstance(cell, str):
        return f'"{one_line(cell, 60)}"' if quote else one_line(cell.strip(), 60)
    return one_line(str(cell.to_list() if hasattr(cell, "to_list") else cell), 60)


def _without(values: pl.Series, wrong: pl.Series) -> pl.Series:
    """The values, null where they are wrong."""
    import polars as pl

    return pl.select(pl.when(wrong).then(None).otherwise(values)).to_series()


def _is_empty(cells: pl.Series) -> pl.Series:
    import polars as pl

    return cells.is_null() | (cells.str.strip_chars() == "") if cells.dtype == pl.String else cells.is_null()


def _whole(numbers: pl.Series) -> pl.Series:
    """Whole numbers as int64; null where there is a fraction or more than 64 bits, or for a float more than 53."""
    import polars as pl

    if numbers.dtype.is_integer():
        return numbers.cast(pl.Int64, strict=False)
    numbers = numbers.cast(pl.Float64, strict=False)
    fits = (numbers == numbers.floor()) & (numbers.abs() <= _EXACT)
    return _without(numbers, ~fits).cast(pl.Int64, strict=False)


def _truths(cells: pl.Series) -> pl.Series:
    import polars as pl

    text = cells.cast(pl.String).str.strip_chars().str.to_lowercase()
    yes = text.is_in(_TRUE)
    return _without(yes, ~(yes | text.is_in(_FALSE)))


def _seconds(cells: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Whole seconds since 1970 and the nanoseconds beyond them (int64 both) of ISO 8601 text; null where it is none."""
    import polars as pl

    fields = cells.str.strip_chars().str.extract_groups(_MOMENT).struct
    day, minute, second = fields.field("day"), fields.field("minute"), fields.field("second")
    moment = (day + "T" + minute.fill_null("00:00") + ":" + second.fill_null("00")).str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False)
    zone = fields.field("zone").fill_null("Z")
    digits = zone.str.replace(":", "", literal=True)
    hours, minutes = (digits.str.slice(at, 2).cast(pl.Int64, strict=False).fill_null(0) for at in (1, 3))
    offset = (hours * 3600 + minutes * 60) * (1 - 2 * zone.str.starts_with("-").cast(pl.Int64))
    part = fields.field("part").fill_null("0").str.pad_end(9, "0").cast(pl.Int64, strict=False)
    return moment.dt.epoch("s") - offset, part


def placed(
    columns: Sequence[Column], names: Iterable[str], where: str, *, refuse_unknown: bool = False, some: bool = True
) -> dict[str, int]:
    """The place of each column among the names of a file, by its name or an alias, which are compared in their own case first.

    some: at least one of the columns must be there.
    """
    there = [name.strip() for name in names]
    at: dict[str, int] = {}
    for column in columns:
        exact = [i for i, name in enumerate(there) if name in column.names]
        folded = {name.casefold() for name in column.names}
        found = exact or [i for i, name in enumerate(there) if name.casefold() in folded]
        if len(found) > 1:
            twice = " and ".join(f'"{one_line(there[i], 40)}"' for i in found[:2])
            raise InputError(f'found the columns {twice}; expected "{column.name}" once', where=where)
        if found:
            at[column.name] = found[0]
    missing = [column.name for column in columns if column.name not in at and not column.may_be_missing]
    extra = [name for i, name in enumerate(there) if i not in at.values()]
    if missing or (refuse_unknown and extra) or (some and columns and not at):
        found_names = one_line(", ".join(there) or "none", 160)
        needed = ", ".join(c.name if not c.may_be_missing else f"[{c.name}]" for c in columns)
        raise InputError(f"found the columns {found_names}; expected {needed}", where=where)
    return at


def check_columns(columns: Sequence[Column]) -> None:
    """Refuses columns that are declared twice or with bounds that make no sense, which are defects of the caller."""
    names = [name for column in columns for name in column.names]
    if len(set(names)) < len(names):
        raise ValueError(f"columns declared twice: {names}")
    for column in columns:
        if column.type in ("str", "bool") and any(b not in (None, False) for b in (column.least, column.most, column.above)):
            raise ValueError(f"{column.name}: bounds are for numbers")
        if column.least is not None and column.most is not None and not math.inf > column.most >= column.least:
            raise ValueError(f"{column.name}: found bounds {column.least} and {column.most}")
