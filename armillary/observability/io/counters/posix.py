"""What Darshan's POSIX module counts of a list of operations, exactly.

For each file and rank, and for reads and writes apart, `last` is the last byte of the request before, and 0 at first. A request is
sequential if its offset > last, and consecutive if its offset = last + 1. It is misaligned if its offset mod the file's alignment is
not 0. Sizes go into ten bins whose upper bounds are inclusive. A change of direction is a switch.

    offsets 0, 100, 300 of 100 bytes each: last = 0, 99, 199: sequential: 100 > 99, 300 > 199, so 2; consecutive: 100 = 99 + 1, so 1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..logs.log import Module
from ..logs.modules import BIN_BOUNDS, BIN_NAMES, COUNTERS, is_float
from .requests import OPEN, READ, SEEK, STAT, SYNC, WRITE, Requests

if TYPE_CHECKING:
    import numpy.typing as npt


def count_posix(requests: Requests, alignment: Mapping[int, int] | int = 4096) -> Module:
    """The records of module POSIX, one for each file and rank that did anything; `alignment` is in bytes, by file or for all."""
    order: Any = slice(None) if _sorted(requests) else np.lexsort((requests.rank, requests.file))
    file, rank = requests.file[order], requests.rank[order]
    new = np.ones(len(file), np.bool_)
    new[1:] = (file[1:] != file[:-1]) | (rank[1:] != rank[:-1])
    record = np.cumsum(new) - 1
    n = int(record[-1]) + 1 if len(record) else 0
    kind, offset, length = requests.kind[order], requests.offset[order], requests.length[order]
    start, end = requests.start_s[order], requests.end_s[order]
    ids = file[new]
    of_file = np.array([alignment if isinstance(alignment, int) else alignment.get(int(one), 4096) for one in ids.tolist()], np.int64)
    made = {name: np.zeros(n, np.float64 if is_float(name) else np.int64) for name in COUNTERS["POSIX"]}
    made["POSIX_FILE_ALIGNMENT"], made["POSIX_MEM_ALIGNMENT"] = of_file, np.full(n, 8, np.int64)
    for name in ("POSIX_MMAPS", "POSIX_RENAMED_FROM"):
        made[name] = np.full(n, -1 if name == "POSIX_MMAPS" else 0, np.int64)
    for code, name in ((OPEN, "OPENS"), (STAT, "STATS"), (SEEK, "SEEKS"), (SYNC, "FSYNCS")):
        made[f"POSIX_{name}"] = np.bincount(record[kind == code], minlength=n).astype(np.int64)
    spent = end - start
    # Waiting for data to reach the disk is part of writing, as Darshan counts it.
    meta = (kind == OPEN) | (kind == STAT) | (kind == SEEK)
    made["POSIX_F_META_TIME"] = np.bincount(record[meta], spent[meta], n)
    opened = kind == OPEN
    made["POSIX_F_OPEN_START_TIMESTAMP"] = _first(record[opened], start[opened], n)
    made["POSIX_F_OPEN_END_TIMESTAMP"] = _last(record[opened], end[opened], n)
    made["POSIX_F_CLOSE_START_TIMESTAMP"] = made["POSIX_F_CLOSE_END_TIMESTAMP"] = _last(record, end, n)
    for code, name, plural, past in ((READ, "READ", "READS", "READ"), (WRITE, "WRITE", "WRITES", "WRITTEN")):
        mine = np.flatnonzero(kind == code)
        _direction(made, name, plural, past, record[mine], offset[mine], length[mine], start[mine], end[mine], of_file)
        synced = np.flatnonzero(kind == SYNC) if code == WRITE else mine[:0]
        made[f"POSIX_F_{name}_TIME"] += np.bincount(record[synced], spent[synced], n)
    data = np.flatnonzero((kind == READ) | (kind == WRITE))
    switched = (record[data][1:] == record[data][:-1]) & (kind[data][1:] != kind[data][:-1])
    made["POSIX_RW_SWITCHES"] = np.bincount(record[data][1:][switched], minlength=n).astype(np.int64)
    _most_common(made, "ACCESS", record[data], length[data])
    strides = [_strides(record[mine], offset[mine], length[mine]) for mine in (np.flatnonzero(kind == READ), np.flatnonzero(kind == WRITE))]
    _most_common(made, "STRIDE", *(np.concatenate(part) for part in zip(*strides)))
    return Module("POSIX", ids, rank[new], made, version=4)


def _sorted(requests: Requests) -> bool:
    """Whether the requests of each file and rank stand together already, in ascending order."""
    later, same = requests.file[1:] > requests.file[:-1], requests.file[1:] == requests.file[:-1]
    return bool((later | same & (requests.rank[1:] >= requests.rank[:-1])).all())


def _direction(
    made: dict[str, Any], name: str, plural: str, past: str, record: Any, offset: Any, length: Any, start: Any, end: Any, alignment: Any
) -> None:
    """The counters of the reads or of the writes."""
    n = len(alignment)
    same = np.zeros(len(record), np.bool_)
    same[1:] = record[1:] == record[:-1]
    last = np.zeros(len(record), np.int64)
    last[1:] = np.where(same[1:], offset[:-1] + length[:-1] - 1, 0)
    sequential, consecutive = offset > last, offset == last + 1
    made[f"POSIX_{plural}"] = np.bincount(record, minlength=n).astype(np.int64)
    made[f"POSIX_SEQ_{plural}"] = np.bincount(record[sequential], minlength=n).astype(np.int64)
    made[f"POSIX_CONSEC_{plural}"] = np.bincount(record[consecutive], minlength=n).astype(np.int64)
    made["POSIX_FILE_NOT_ALIGNED"] += np.bincount(record[offset % np.maximum(alignment, 1)[record] != 0], minlength=n)
    np.add.at(made[f"POSIX_BYTES_{past}"], record, length)
    np.maximum.at(made[f"POSIX_MAX_BYTE_{past}"], record, offset + length - 1)
    sizes = np.bincount(len(BIN_NAMES) * record + bins(length), minlength=len(BIN_NAMES) * n).reshape(n, len(BIN_NAMES))
    for i, part in enumerate(BIN_NAMES):
        made[f"POSIX_SIZE_{name}_{part}"] = np.ascontiguousarray(sizes[:, i]).astype(np.int64)
    spent = end - start
    made[f"POSIX_F_{name}_TIME"] = np.bincount(record, spent, n)
    longest = np.zeros(n)
    np.maximum.at(longest, record, spent)
    made[f"POSIX_F_MAX_{name}_TIME"] = longest
    at = np.flatnonzero(spent == longest[record])[::-1]
    made[f"POSIX_MAX_{name}_TIME_SIZE"][record[at]] = length[at]
    made[f"POSIX_F_{name}_START_TIMESTAMP"] = _first(record, start, n)
    made[f"POSIX_F_{name}_END_TIMESTAMP"] = _last(record, end, n)


def _strides(record: Any, offset: Any, length: Any) -> tuple[Any, Any]:
    """(record, bytes between the end of a request and the begin of the next) where the next begins further on."""
    gap = offset[1:] - (offset[:-1] + length[:-1])
    further = np.flatnonzero((record[1:] == record[:-1]) & (gap > 0))
    return record[1:][further], gap[further]


def bins(length: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The size bin of each request, from 0 (up to 100 bytes) to 9 (more than 1 GiB)."""
    return np.searchsorted(np.array(BIN_BOUNDS), length, side="left").astype(np.int64)


def _first(record: Any, when: Any, n: int) -> Any:
    found = np.full(n, np.inf)
    np.minimum.at(found, record, when)
    return np.where(np.isfinite(found), found, 0.0)


def _last(record: Any, when: Any, n: int) -> Any:
    found = np.zeros(n)
    np.maximum.at(found, record, when)
    return found


def _most_common(made: dict[str, Any], what: str, record: Any, value: Any) -> None:
    """The four most common values of each record; of equally common ones the larger."""
    import polars as pl

    table = pl.DataFrame({"record": record, "value": value}).group_by("record", "value").len("count")
    best = [pl.col(name).top_k_by(["count", "value"], 4) for name in ("count", "value")]
    table = table.group_by("record").agg(best).explode("count", "value")
    table = table.sort(["record", "count", "value"], descending=[False, True, True])
    table = table.with_columns(place=pl.int_range(pl.len()).over("record"))
    for place in range(4):
        part = table.filter(pl.col("place") == place)
        rows = part["record"].to_numpy()
        made[f"POSIX_{what}{place + 1}_{what}"][rows] = part["value"].to_numpy()
        made[f"POSIX_{what}{place + 1}_COUNT"][rows] = part["count"].to_numpy()
