"""What the counter lines of Lustre say of stripes, in both generations of Darshan's module LUSTRE.

Of the old generation LUSTRE_STRIPE_WIDTH is the number of a file's targets. The new one has components, numbered from 1, and some counters
that are words (the pattern, flags and the pool), which are passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, one_line

from .log import Stripes

if TYPE_CHECKING:
    import polars as pl

#: Components of one file, and storage targets of one component.
MOST_COMPONENTS, MOST_OSTS = 64, 20_000
_WORDS = "^COMP[0-9]{1,3}_(PATTERN|STRIPE_PATTERN|FLAGS|POOL_NAME)$"
_FIELDS = {"STRIPE_SIZE": "size", "STRIPE_COUNT": "count", "STRIPE_WIDTH": "count"}


def stripe_lines(table: pl.DataFrame, path: str) -> pl.DataFrame:
    """The lines about stripe sizes, counts and targets: file, rank, component, which of the three, place of the target, value."""
    import polars as pl

    name = pl.col("counter").str.strip_prefix("LUSTRE_")
    lines = table.with_columns(name=name).filter(~pl.col("name").str.contains(_WORDS))
    lines = lines.with_columns(
        number=pl.col("value").cast(pl.Int64, strict=False),
        component=pl.col("name").str.extract("^COMP([0-9]{1,3})_").cast(pl.Int64).fill_null(1),
        field=pl.col("name").str.replace("^COMP[0-9]{1,3}_", ""),
    )
    lines = lines.with_columns(
        place=pl.col("field").str.extract("^OST_ID_([0-9]{1,18})$").cast(pl.Int64),
        what=pl.col("field").replace_strict(_FIELDS, default=None, return_dtype=pl.String),
    )
    for wrong, message in (
        (pl.col("number").is_null(), '{counter}: found "{value}"; expected a whole number below 2⁶³'),
        (pl.col("component") > MOST_COMPONENTS, f"found component {{component}}; expected at most {MOST_COMPONENTS}"),
        (pl.col("place") >= MOST_OSTS, f"found storage target {{place}} of a file; expected at most {MOST_OSTS:,}"),
    ):
        bad = lines.filter(wrong).head(1)
        if bad.height:
            row = {key: one_line(str(value), 40) for key, value in bad.row(0, named=True).items()}
            raise InputError(message.format(**row), where=f"{path}:{row['line']}")
    lines = lines.with_columns(what=pl.when(pl.col("place").is_not_null()).then(pl.lit("ost")).otherwise("what"))
    kept = lines.filter(pl.col("what").is_not_null())
    return kept.select("id_number", "rank_number", "component", pl.col("what").cast(pl.Enum(["size", "count", "ost"])), "place", "number")


def stripes_of(lines: list[pl.DataFrame], most: int, path: str) -> Stripes | None:
    """The stripes of every file, or None where the log has no module LUSTRE."""
    import polars as pl

    if not lines:
        return None
    key = ["rank_number", "id_number", "component"]
    # A file that is there twice says the same twice; what stands last counts.
    table = pl.concat(lines).unique([*key, "what", "place"], keep="last", maintain_order=True)

    def of(what: str, column: str = "number") -> pl.Expr:
        return pl.col(column).filter(pl.col("what") == what)

    found = table.group_by(key, maintain_order=True).agg(
        size=of("size").first().fill_null(0), count=of("count").first().fill_null(0), osts=of("ost").sort_by(of("ost", "place"))
    )
    if found.height > most:
        raise InputError(f"found more than {most:,} files in LUSTRE; expected at most as many (--max-records)", where=path)
    return made(found.select("id_number", *key[:1], "component", "size", "count", "osts").rows())


def made(rows: Sequence[tuple[int, int, int, int, int, Sequence[int]]]) -> Stripes:
    """Stripes from (file, rank, component, stripe size, stripe count, targets)."""
    lengths = [len(row[5]) for row in rows]
    columns: list[list[Any]] = [[row[i] for row in rows] for i in range(5)]
    first, others = columns[0], columns[1:]
    begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    osts = np.array([ost for row in rows for ost in row[5]], np.int64)
    ranks, component, size, count = (np.array(column, np.int64) for column in others)
    return Stripes(np.array(first, np.uint64), ranks, component, size, count, begin, osts)
