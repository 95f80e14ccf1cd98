"""Reads SMART logs: `read_alibaba`, `read_backblaze`, `read_smartctl`, and `read_logs`, which tells them apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.errors import InputError, one_line
from armillary.files import Column, read_table, scan_table

from ..blocks import cores
from ..fleets.fleet import Fleet
from . import columns as known
from .assembly import fleet_of
from .days import Day, days
from .gathering import Gathering, kept

if TYPE_CHECKING:
    import polars as pl

#: Drive-days in memory; beyond them healthy drives are thinned.
MOST_ROWS = 2_000_000
LABELS = ("ssd_failure_label.csv", "ssd_failure_tag.csv")


def read_alibaba(
    path: str | Path, labels: str | Path | None = None, *, attributes: Sequence[int] = (), models: Sequence[str] = (), last: int = 0,
    most_rows: int = MOST_ROWS, cache: str | Path | None = None,
) -> Fleet:  # fmt: skip
    """A folder of daily files `yyyymmdd.csv` with the columns disk_id, ds, model, n_<i> and r_<i>, and a file of failures.

    labels: a table with model, disk_id and failure_time; by default `ssd_failure_label.csv` in the folder, or beside it. Without one no
    failure is known, which is enough to predict. attributes: the SMART attributes to read; by default those known to matter.
    models: the models of drives to read. last: the number of days to read, from the end; 0 reads all.
    most_rows: drive-days; beyond them healthy drives are thinned. cache: a folder that keeps the log sorted by drives as Parquet.
    """
    path = Path(path)
    dated = _chosen(days(path), last)
    labelled = _labels_beside(path) if labels is None else Path(labels)
    found = _read("alibaba", path, dated, attributes, models, cache)
    with ExitStack() as stack:
        parts, numbers, notes = stack.enter_context(found)
        first, until = dated[0].date, (dated[-1].date - dated[0].date).days + 1
        failures, told = ({}, ["no file of failures was given"]) if labelled is None else _failures(labelled, first, parts, models)
        known_until = max(until, max(failures.values(), default=0) + 1)
        return fleet_of(
            parts, numbers, failures, days=until, first=first, known_until=known_until, most_rows=most_rows, where=str(path),
            notes=[*notes, *told],
        )  # fmt: skip


def read_backblaze(
    path: str | Path, *, attributes: Sequence[int] = (), models: Sequence[str] = (), last: int = 0, most_rows: int = MOST_ROWS,
    cache: str | Path | None = None,
) -> Fleet:  # fmt: skip
    """A folder of daily files `YYYY-MM-DD.csv`, a quarter's zip archive, or a folder of such archives; parameters as for `read_alibaba`.

    A drive fails on the day on which its column `failure` is 1.
    """
    path = Path(path)
    dated = _chosen(days(path), last)
    with _read("backblaze", path, dated, attributes, models, cache) as (parts, numbers, notes):
        failures: dict[tuple[str, str], int] = {}
        for part in parts(False):
            for model, serial, day in part.filter(part["failure"]).select("model", "serial", "day").iter_rows():
                failures.setdefault((model, serial), day)
        until = (dated[-1].date - dated[0].date).days + 1
        return fleet_of(
            parts, numbers, failures, days=until, first=dated[0].date, known_until=until, most_rows=most_rows, where=str(path), notes=notes
        )  # fmt: skip


def read_logs(
    path: str | Path, *, format: str = "auto", labels: Path | None = None, attributes: Sequence[int] = (), models: Sequence[str] = (),
    last: int = 0, most_rows: int = MOST_ROWS, cache: Path | None = None,
) -> Fleet:  # fmt: skip
    """A fleet from whatever the files are: the header of the first day tells Alibaba's logs from Backblaze's, JSON is smartctl's."""
    path = Path(path)
    kind = told(path) if format == "auto" else format
    if kind == "smartctl":
        from .smartctl import read_smartctl

        return read_smartctl(path)
    if kind == "alibaba":
        return read_alibaba(path, labels, attributes=attributes, models=models, last=last, most_rows=most_rows, cache=cache)
    return read_backblaze(path, attributes=attributes, models=models, last=last, most_rows=most_rows, cache=cache)


def told(path: Path) -> str:
    """alibaba, backblaze or smartctl."""
    if path.suffix.lower() == ".json" or (path.is_dir() and not any(path.glob("*.csv*")) and any(path.glob("*.json"))):
        return "smartctl"
    first = days(path)[0]
    names = set(first.columns())
    if "disk_id" in names:
        return "alibaba"
    if "serial_number" in names:
        return "backblaze"
    shown = one_line(", ".join(sorted(names)[:6]), 120)
    raise InputError(f'found the columns {shown}; expected "disk_id" (Alibaba) or "serial_number" (Backblaze)', where=first.shown)


class _read:
    """Reads the days of a log, or what an earlier reading kept: (frames of whole drives, attributes, notes) within `with`."""

    def __init__(
        self, kind: str, path: Path, dated: Sequence[Day], attributes: Sequence[int], models: Sequence[str], cache: str | Path | None
    ) -> None:  # fmt: skip
        self.kind, self.path, self.dated, self.models = kind, path, dated, models
        self.cache = None if cache is None else Path(cache)
        try:
            self.numbers = known.attributes((name for day in dated for name in day.columns()), attributes)
        except InputError as error:
            raise InputError(error.message, where=error.where or str(path)) from None
        self.gathering = Gathering(self.numbers, self.cache)

    def __enter__(self):  # type: ignore[no-untyped-def]
        source = _source(self.kind, self.dated, self.models)
        earlier = None if self.cache is None else kept(self.cache, source, self.numbers)
        if earlier is not None:
            return earlier.parts, self.numbers, earlier.notes
        wanted = (known.alibaba if self.kind == "alibaba" else known.backblaze)(self.numbers)
        try:
            self._all(wanted)
            self.gathering.keep(source, ())
        except BaseException:
            self.gathering.__exit__()
            raise
        if self.cache is not None:
            again = kept(self.cache, source, self.numbers)
            assert again is not None
            return again.parts, self.numbers, ()
        return self.gathering.parts, self.numbers, ()

    def __exit__(self, *_: object) -> None:
        self.gathering.__exit__()

    def _all(self, wanted: list[Column]) -> None:
        """All days, some of them at once, gathered in their order."""
        workers = min(4, cores())
        with ThreadPoolExecutor(workers) as pool:
            for at in range(0, len(self.dated), workers):
                for frames in pool.map(
                    lambda day: list(_day(self.kind, day, self.dated[0].date, wanted, self.models)), self.dated[at : at + workers]
                ):
                    for frame in frames:
                        self.gathering.add(frame)


def _day(kind: str, day: Day, first: date, wanted: list[Column], models: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The rows of one day as frames with the columns model, serial, day, failure, r_* and n_*."""
    import polars as pl

    name, said = ("disk_id", "ds") if kind == "alibaba" else ("serial_number", "date")
    expected = (day.date.strftime("%Y%m%d"), day.date.isoformat())
    with day.file() as file:
        for table in scan_table(file, wanted):
            frame = table.frame
            if not frame.height:
                continue
            wrong = ~frame[said].is_in(expected)
            if wrong.any():
                row = int(wrong.arg_max() or 0)
                raise table.error(
                    row, f'found "{one_line(frame[said][row], 40)}"; expected {expected[kind != "alibaba"]}, as the file is named', said
                )
            if models:
                frame = frame.filter(pl.col("model").is_in(list(models)))
            failure = pl.col("failure").cast(pl.Boolean) if kind == "backblaze" else pl.lit(False)
            yield frame.select(
                "model", pl.col(name).alias("serial"), pl.lit((day.date - first).days, pl.Int32).alias("day"), failure.alias("failure"),
                *(pl.col(one.name) for one in wanted if one.name[:2] in ("r_", "n_")),
            )  # fmt: skip


def _failures(path: Path, first: date, parts: object, models: Sequence[str]) -> tuple[dict[tuple[str, str], int], list[str]]:
    """(first day of failure of each drive, notes) of a file of failures."""
    import numpy as np

    table = read_table(
        path, [Column("model", "str"), Column("disk_id", "str"), Column("failure_time", "datetime")], row_limit=5_000_000, may_be_empty=True
    )
    there: set[tuple[str, str]] = set()
    for part in parts(False):  # type: ignore[operator]
        there |= set(part.select("model", "serial").unique().iter_rows())
    day = (table["failure_time"].astype("datetime64[D]") - np.datetime64(first)).astype(np.int64).tolist()
    found: dict[tuple[str, str], int] = {}
    elsewhere = 0
    for model, serial, one in zip(table["model"].tolist(), table["disk_id"].tolist(), day):
        if models and model not in models:
            continue
        if (model, serial) not in there:
            elsewhere += 1
        else:
            found[model, serial] = min(one, found.get((model, serial), one))
    if elsewhere and not found:
        logged, labelled = sorted({model for model, _ in there})[:6], sorted(set(table["model"].tolist()))[:6]
        there_is = one_line(", ".join(logged), 80)
        said = f"found failures of {one_line(', '.join(labelled), 80)}; expected drives of the log, which has {there_is}"
        raise InputError(said, where=str(path))
    return found, [f"{elsewhere} failures are of drives that the log does not have"] if elsewhere else []


def _labels_beside(path: Path) -> Path | None:
    folder = path if path.is_dir() else path.parent
    places = [place / name for name in LABELS for place in (folder, folder.parent)]
    return next((place for place in places if place.is_file()), None)


def _chosen(dated: list[Day], last: int) -> list[Day]:
    if not last:
        return dated
    return [day for day in dated if (dated[-1].date - day.date).days < last]


def _source(kind: str, dated: Sequence[Day], models: Sequence[str]) -> str:
    """A digest of what the files are: names, sizes and times."""
    digest = hashlib.sha256(repr((kind, tuple(models))).encode())
    for day in dated:
        facts = day.path.stat()
        digest.update(repr((day.date.isoformat(), day.path.name, day.member, facts.st_size, facts.st_mtime_ns)).encode())
    return digest.hexdigest()
