"""Windows of counters with runs and labels, from Parquet, CSV or JSON lines: `run,window,label,<counter>…`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table

from ..detection.runs import Runs

Array = np.ndarray[Any, Any]
#: Windows of a file, and counters per window, at most.
MOST_WINDOWS, MOST_COUNTERS = 2_000_000, 64
LEAST_RUNS = 2


def read_windows(path: Path) -> Runs:
    """The runs in a table. `label` is 1 from the corruption on and 0 before; without the column nothing is labelled."""
    names = [name for name in column_names(path) if name not in ("run", "window", "label")]
    if not names or len(names) > MOST_COUNTERS:
        raise InputError(f"found {len(names)} counters; expected from 1 to {MOST_COUNTERS} beside run, window and label", where=str(path))
    table = read_table(
        path,
        [
            Column("run", "str"), Column("window", "int", least=0, most=1 << 40),
            Column("label", "int", least=0, most=1, optional=True), *(Column(name, least=0, most=1e18) for name in names),
        ],
        row_limit=MOST_WINDOWS, unique=("run", "window"),
    )  # fmt: skip
    run, _ = table.numbered("run")
    order = np.lexsort((table["window"], run))
    labels = table["label"][order].astype(np.int64) if "label" in table else None
    counters = np.stack([table[name][order].astype(np.float64) for name in names], 1)
    return of_windows(counters, run[order], labels, tuple(names), str(path))


def of_windows(counters: Array, run: Array, labels: Array | None, names: tuple[str, ...], where: str) -> Runs:
    """Runs of windows that stand together and in order; run numbers rise from 0."""
    count = int(run.max()) + 1
    first = np.searchsorted(run, np.arange(count + 1))
    lengths = np.diff(first)
    corrupted, start = np.zeros(count, bool), np.zeros(count, np.int64)
    pair = np.arange(count)
    if labels is not None:
        for one in range(count):
            mine = labels[first[one] : first[one + 1]]
            corrupted[one] = bool(mine.any())
            start[one] = int(np.argmax(mine)) if corrupted[one] else 0
        bad, good = np.flatnonzero(corrupted), np.flatnonzero(~corrupted)
        if min(len(bad), len(good)) < LEAST_RUNS:
            raise InputError(f"found {len(good)} clean and {len(bad)} corrupted runs; expected at least {LEAST_RUNS} of each", where=where)
        # A clean run is judged from where a corrupted one begins to be: the place in the run must not tell them apart.
        groups = min(len(bad), len(good))
        pair[bad], pair[good] = np.arange(len(bad)) % groups, np.arange(len(good)) % groups
        start[good] = np.minimum(start[bad[np.arange(len(good)) % len(bad)]], lengths[good] - 1)
    nothing = np.zeros(count, bool)
    return Runs(
        counters, counters, np.zeros((len(counters), 5)), first, pair, start, corrupted, nothing, nothing,
        np.where(corrupted, "unknown", ""), np.zeros(count, np.int64), ("log",), columns=names,
    )  # fmt: skip
