"""Writes a fleet as the logs that the readers read: for examples, tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..fleets.fleet import Fleet

if TYPE_CHECKING:
    import polars as pl


def write_alibaba(fleet: Fleet, folder: Path) -> Path:
    """Writes `yyyymmdd.csv` of every day and `ssd_failure_label.csv`; returns the folder."""
    import polars as pl

    folder.mkdir(parents=True, exist_ok=True)
    for date, drives, raw, normal in _days(fleet):
        stamp = date.replace("-", "")
        names: dict[str, object] = {
            "disk_id": [fleet.serial[int(i)] for i in drives],
            "ds": [stamp] * len(drives),
            "model": _models(fleet, drives),
        }
        values = {f"{half}_{a}": of[:, i] for i, a in enumerate(fleet.attributes.tolist()) for half, of in (("n", normal), ("r", raw))}
        _frame(names | values).write_csv(folder / f"{stamp}.csv")
    failed = np.flatnonzero(fleet.failed)
    labels = {
        "model": _models(fleet, failed), "disk_id": [fleet.serial[int(i)] for i in failed],
        "failure_time": [f"{fleet.date(int(fleet.failure[i]))} 12:00:00" for i in failed],
    }  # fmt: skip
    pl.DataFrame(labels).write_csv(folder / "ssd_failure_label.csv")
    return folder


def write_backblaze(fleet: Fleet, folder: Path) -> Path:
    """Writes `YYYY-MM-DD.csv` of every day; a drive's last day in the log is the one of its failure, if that is at most a day later."""
    folder.mkdir(parents=True, exist_ok=True)
    last = fleet.day[fleet.start[1:] - 1]
    for date, drives, raw, normal in _days(fleet):
        day = int((np.datetime64(date) - np.datetime64(fleet.first_date)).astype(np.int64))
        fails = (last[drives] == day) & fleet.failed[drives] & (fleet.failure[drives] <= day + 3)
        names: dict[str, object] = {
            "date": [date] * len(drives), "serial_number": [fleet.name(int(i)).replace("/", "-") for i in drives],
            "model": _models(fleet, drives),
            "capacity_bytes": [4000787030016] * len(drives), "failure": fails.astype(np.int64),
        }  # fmt: skip
        values = {
            f"smart_{a}_{_spelled(a, half)}": of[:, i]
            for i, a in enumerate(fleet.attributes.tolist()) for half, of in (("normalized", normal), ("raw", raw))
        }  # fmt: skip
        _frame(names | values).write_csv(folder / f"{date}.csv")
    return folder


def _spelled(attribute: int, half: str) -> str:
    return "normailized" if attribute in (211, 212) and half == "normalized" else half


def _models(fleet: Fleet, drives: object) -> list[str]:
    return [fleet.models[int(fleet.model[int(i)])] for i in drives]  # type: ignore[attr-defined]


def _days(fleet: Fleet) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    drive = fleet.drive
    order = np.argsort(fleet.day, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(fleet.day[order])) + 1):
        yield fleet.date(int(fleet.day[rows[0]])), drive[rows], fleet.raw[rows], fleet.normal[rows]


def _frame(columns: dict[str, object]) -> pl.DataFrame:
    """A table whose numbers are whole where they can be, and whose unknown ones are empty."""
    import polars as pl

    frame = pl.DataFrame(columns).with_columns(pl.col(pl.Float32, pl.Float64).fill_nan(None).cast(pl.Float64))
    whole = [name for name in frame.columns if frame[name].dtype == pl.Float64 and ((frame[name] % 1) == 0).all()]
    return frame.with_columns(pl.col(whole).cast(pl.Int64))
