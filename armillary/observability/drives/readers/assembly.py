"""A fleet from rows in the order of drives: healthy drives are thinned where there are too many rows, and failures end a drive's days."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError
from armillary.streams import stream

from ..fleets.fleet import NEVER, Array, Fleet, assembled, check

if TYPE_CHECKING:
    import polars as pl


def fleet_of(
    parts: Callable[[bool], Iterator[pl.DataFrame]], attributes: Sequence[int], failures: dict[tuple[str, str], int], *, days: int,
    first: date, known_until: int, most_rows: int, where: str, notes: Sequence[str] = (),
) -> Fleet:  # fmt: skip
    """The fleet of rows; `failures` gives the day of each failure, and each of `parts` holds whole drives sorted by day."""
    import polars as pl

    drives, weight = _drives(parts, failures, most_rows, where)
    numbers = pl.DataFrame(drives, schema={"model": pl.String, "serial": pl.String}, orient="row").with_row_index("drive")
    models = sorted({model for model, _ in drives})
    failure = np.array([failures.get(key, NEVER) for key in drives], np.int64)
    found, early = list[tuple[Array, ...]](), 0
    for part in parts(True):
        joined = part.select("model", "serial").join(numbers, on=["model", "serial"], how="left", maintain_order="left")
        of = joined["drive"].cast(pl.Int64).fill_null(-1).to_numpy()
        day = part["day"].to_numpy().astype(np.int64)
        _refuse_twice(part, of, day, first, where)
        ends = np.where(of >= 0, failure[of], NEVER)
        # A drive that failed on or before its first day in the log was repaired or never left; its days stay, and are told apart.
        begin = np.full(len(drives), NEVER, np.int64)
        np.minimum.at(begin, of[of >= 0], day[of >= 0])
        before = ends <= np.where(of >= 0, begin[of], 0)
        early += len(np.unique(of[before & (of >= 0)]))
        keep = (of >= 0) & ((day < ends) | before)
        kept = part.filter(keep)
        raw = kept.select(f"r_{a}" for a in attributes).to_numpy()
        normal = kept.select(f"n_{a}" for a in attributes).to_numpy().astype(np.float32)
        found.append((of[keep], day[keep], np.ascontiguousarray(raw, np.float64), normal))
    if early:
        notes = [*notes, f"{early} drives failed on or before their first day in the log; they neither train nor count as healthy"]
    drive, day, raw, normal = (np.concatenate([one[i] for one in found]) for i in range(4))
    told = [i for i in range(len(attributes)) if not (np.isnan(raw[:, i]).all() and np.isnan(normal[:, i]).all())]
    fleet = assembled(
        models, np.array([models.index(model) for model, _ in drives]), [serial for _, serial in drives], drive, day,
        np.array(attributes)[told], raw[:, told], normal[:, told], failure, days=days, known_until=known_until, weight=weight,
        first_date=str(first), notes=tuple(notes),
    )  # fmt: skip
    return check(fleet, where)


def _drives(
    parts: Callable[[bool], Iterator[pl.DataFrame]], failures: dict[tuple[str, str], int], most_rows: int, where: str
) -> tuple[list[tuple[str, str]], float]:
    """(the drives that are kept, how many healthy drives each kept one stands for)."""
    import polars as pl

    counts = [part.group_by("model", "serial").len().sort("model", "serial") for part in parts(False)]
    if not counts or not sum(one.height for one in counts):
        raise InputError("found no drive with a day; expected some", where=where)
    whole = pl.concat(counts).sort("model", "serial")
    drives: list[Any] = list(whole.select("model", "serial").iter_rows())
    rows = whole["len"].to_numpy().astype(np.int64)
    if int(rows.sum()) <= most_rows:
        return drives, 1.0
    failing = np.array([key in failures for key in drives])
    left = most_rows - int(rows[failing].sum())
    healthy = np.flatnonzero(~failing)
    order = stream(0, "observability", "drives", "thinning").permutation(healthy)
    chosen = order[np.cumsum(rows[order]) <= left]
    if not len(chosen):
        raise InputError(
            f"found {int(rows.sum()):,} drive-days, of which failing drives alone take too many; expected at most {most_rows:,}",
            where=where,
        )
    keep = np.sort(np.concatenate([np.flatnonzero(failing), chosen]))
    return [drives[int(i)] for i in keep], len(healthy) / len(chosen)


def _refuse_twice(part: pl.DataFrame, of: Array, day: Array, first: date, where: str) -> None:
    same = (of[1:] == of[:-1]) & (day[1:] == day[:-1]) & (of[1:] >= 0)
    if same.any():
        at = int(np.argmax(same))
        named = f"{part['model'][at]}/{part['serial'][at]}"
        said = str(np.datetime64(first) + np.timedelta64(int(day[at]), "D"))
        raise InputError(f"found drive {named} twice on {said}; expected one row per drive and day", where=where)
