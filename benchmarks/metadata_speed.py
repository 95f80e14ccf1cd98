"""MetadataStore beside SQLite, LMDB and RocksDB: creates, stats and listings of 1000-file directories, sync off, as ratios.

Every side is written as its best users would: rows go in and out in batches, and NumPy decodes records of fixed size, not Python.
Each part runs several times in turn with the others, and the least CPU seconds count.

python benchmarks/metadata_speed.py [--directories 50] [--rounds 3] [--folder /dev/shm]
"""

from __future__ import annotations

import argparse
import sqlite3
import struct
import tempfile
import time
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from armillary.storage.metadata import MetadataStore

FILES = 1000
COLUMNS = ("id", "mode", "uid", "gid", "size", "atime", "mtime", "ctime")
Works = tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]


def names(directory: int) -> list[str]:
    """The files of a directory."""
    return [f"image_{directory:04d}_{i:05d}.jpeg" for i in range(FILES)]


def records(directory: int) -> list[bytes]:
    """The attributes of a directory's files, packed as 64 bytes each."""
    table = np.zeros((FILES, len(COLUMNS)), "<i8")
    table[:, 0], table[:, 1], table[:, 4] = directory * FILES + np.arange(FILES), 0o644, np.arange(FILES)
    raw = table.tobytes()
    return [raw[at : at + 64] for at in range(0, len(raw), 64)]


def frame(values: list[bytes], names: list[bytes] | None = None) -> Any:
    """Packed attributes, and names if given, as a data frame."""
    import polars as pl

    table = np.frombuffer(b"".join(values), "<i8").reshape(-1, len(COLUMNS))
    columns = [pl.Series(name, np.ascontiguousarray(table[:, i])) for i, name in enumerate(COLUMNS)]
    return pl.DataFrame(columns if names is None else [pl.Series("name", names, pl.Binary), *columns])


def ours(folder: Path, directories: int) -> Works:
    """(create, stat, list) of MetadataStore."""
    store = MetadataStore(folder / "ours")
    folders = [store.mkdir(1, f"d{d}") for d in range(directories)]
    ids: list[np.ndarray] = []
    order = np.random.default_rng(0).permutation(directories * FILES)

    def create() -> None:
        for d, number in enumerate(folders):
            ids.append(store.create_many(number, names(d), {"size": np.arange(FILES)}))

    return create, lambda: store.stat_many(np.concatenate(ids)[order]), lambda: [store.readdirplus(number) for number in folders]


def sqlite(folder: Path, directories: int) -> Works:
    """The same of a table by id with an index by directory and name."""
    import polars as pl

    base = sqlite3.connect(folder / "sqlite")
    base.executescript("pragma synchronous=off; pragma journal_mode=wal; create table f(id integer primary key, parent,"
                       " name, mode, uid, gid, size, atime, mtime, ctime); create unique index by_name on f(parent, name);")  # fmt: skip
    order = np.random.default_rng(0).permutation(directories * FILES).tolist()

    def create() -> None:
        for d in range(directories):
            rows = [(d * FILES + i, d, name, 0o644, 0, 0, i, 0, 0, 0) for i, name in enumerate(names(d))]
            base.executemany("insert into f values(?,?,?,?,?,?,?,?,?,?)", rows)
            base.commit()

    def listing() -> list[Any]:
        return [pl.DataFrame(base.execute("select * from f where parent=?", (d,)).fetchall(), orient="row") for d in range(directories)]

    return create, lambda: [base.execute("select * from f where id=?", (i,)).fetchone() for i in order], listing


def lmdb(folder: Path, directories: int) -> Works:
    """The same of LMDB: key (directory, name), and (id) to key for stats."""
    import lmdb as package

    base = package.open(str(folder / "lmdb"), map_size=1 << 32, sync=False, metasync=False, max_dbs=2)
    files, by_id = base.open_db(b"files"), base.open_db(b"ids")
    order = np.random.default_rng(0).permutation(directories * FILES)

    def create() -> None:
        for d in range(directories):
            prefix = struct.pack(">q", d)
            keys = [prefix + name.encode() for name in names(d)]
            numbers = (d * FILES + np.arange(FILES)).astype(">i8").tobytes()
            with base.begin(write=True) as change:
                change.cursor(db=files).putmulti(zip(keys, records(d), strict=True))
                by_number = ((numbers[8 * i : 8 * i + 8], key) for i, key in enumerate(keys))
                change.cursor(db=by_id).putmulti(by_number, append=True)

    def stat() -> Any:
        wanted = order.astype(">i8").tobytes()
        with base.begin() as look:
            keys = look.cursor(db=by_id).getmulti([wanted[at : at + 8] for at in range(0, len(wanted), 8)])
            return frame([value for _, value in look.cursor(db=files).getmulti([key for _, key in keys])])

    def listing() -> list[Any]:
        frames = []
        with base.begin() as look:
            for d in range(directories):
                prefix = struct.pack(">q", d)
                cursor = look.cursor(db=files)
                cursor.set_range(prefix)
                found = list(takewhile(lambda pair, prefix=prefix: pair[0].startswith(prefix), cursor))
                frames.append(frame([value for _, value in found], [key[8:] for key, _ in found]))
        return frames

    return create, stat, listing


def rocksdb(folder: Path, directories: int) -> Works:
    """The same of RocksDB through rocksdict."""
    from rocksdict import Options, Rdict, WriteBatch

    base = Rdict(str(folder / "rocks"), Options(raw_mode=True))
    order = np.random.default_rng(0).permutation(directories * FILES).tolist()
    keys = [struct.pack(">q", d) + name.encode() for d in range(directories) for name in names(d)]

    def create() -> None:
        for d in range(directories):
            batch = WriteBatch(raw_mode=True)
            for i, value in enumerate(records(d)):
                batch.put(keys[d * FILES + i], value)
            base.write(batch)

    def listing() -> list[Any]:
        frames = []
        for d in range(directories):
            prefix = struct.pack(">q", d)
            found = list(takewhile(lambda pair, prefix=prefix: pair[0].startswith(prefix), base.items(from_key=prefix)))
            frames.append(frame([value for _, value in found], [key[8:] for key, _ in found]))
        return frames

    return create, lambda: frame(base[[keys[i] for i in order]]), listing


def main() -> None:
    """Prints seconds and ratios."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--directories", type=int, default=50)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", default=None)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as warm:
        for work in ours(Path(warm), 2):
            work()
    seconds: dict[str, list[float]] = {}
    for name, make in (("ours", ours), ("sqlite", sqlite), ("lmdb", lmdb), ("rocksdb", rocksdb)) * given.rounds:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            try:
                works = make(Path(folder), given.directories)
            except ImportError as missing:
                print(f"{name}: skipped, {missing}")
                continue
            taken = []
            for work in works:
                start = time.process_time()
                work()
                taken.append(time.process_time() - start)
            seconds[name] = [min(pair) for pair in zip(taken, seconds.get(name, taken), strict=True)]
    n = given.directories * FILES
    print(f"{n} files; files per CPU second, and MetadataStore's speed over each")
    for name, row in seconds.items():
        cells = (
            f"{what} {n / s:12,.0f}/s {s / mine:6.2f}x"
            for what, s, mine in zip(("create", "stat", "list"), row, seconds["ours"], strict=True)
        )
        print(f"{name:8s}", *cells)


if __name__ == "__main__":
    main()
