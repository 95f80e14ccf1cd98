"""MetadataStore beside SQLite, LMDB and RocksDB: creates, stats and listings of 1000-file directories, sync off, as ratios.

python benchmarks/metadata_speed.py [--directories 50] [--folder /dev/shm]
"""

from __future__ import annotations

import argparse
import sqlite3
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from armillary.storage.metadata import MetadataStore

FILES = 1000
ROW = struct.Struct("<qqqqqqqq")


def names(directory: int) -> list[str]:
    """The files of a directory."""
    return [f"image_{directory:04d}_{i:05d}.jpeg" for i in range(FILES)]


def ours(folder: Path, directories: int) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    """(create, stat, list) of MetadataStore."""
    store = MetadataStore(folder / "ours")
    folders = [store.mkdir(1, f"d{d}") for d in range(directories)]
    ids: list[np.ndarray] = []
    order = np.random.default_rng(0).permutation(directories * FILES)

    def create() -> None:
        for d, number in enumerate(folders):
            ids.append(store.create_many(number, names(d), {"size": np.arange(FILES)}))

    return create, lambda: store.stat_many(np.concatenate(ids)[order]), lambda: [store.readdirplus(number) for number in folders]


def sqlite(folder: Path, directories: int) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
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


def lmdb(folder: Path, directories: int) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    """The same of LMDB: key (directory, name), and (id) to key for stats."""
    import lmdb as package
    import polars as pl

    base = package.open(str(folder / "lmdb"), map_size=1 << 32, sync=False, metasync=False, max_dbs=2)
    files, by_id = base.open_db(b"files"), base.open_db(b"ids")
    order = np.random.default_rng(0).permutation(directories * FILES).tolist()

    def create() -> None:
        for d in range(directories):
            with base.begin(write=True) as change:
                for i, name in enumerate(names(d)):
                    key = struct.pack(">q", d) + name.encode()
                    change.put(key, ROW.pack(d * FILES + i, 0o644, 0, 0, i, 0, 0, 0), db=files)
                    change.put(struct.pack(">q", d * FILES + i), key, db=by_id)

    def stat() -> list[Any]:
        with base.begin() as look:
            return [ROW.unpack(look.get(look.get(struct.pack(">q", i), db=by_id), db=files)) for i in order]

    def listing() -> list[Any]:
        frames = []
        with base.begin() as look:
            for d in range(directories):
                prefix = struct.pack(">q", d)
                cursor = look.cursor(db=files)
                cursor.set_range(prefix)
                rows = []
                for key, value in cursor:
                    if key[:8] != prefix:
                        break
                    rows.append((key[8:], *ROW.unpack(value)))
                frames.append(pl.DataFrame(rows, orient="row"))
        return frames

    return create, stat, listing


def rocksdb(folder: Path, directories: int) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
    """The same of RocksDB through rocksdict."""
    import polars as pl
    from rocksdict import Options, Rdict, WriteBatch

    base = Rdict(str(folder / "rocks"), Options(raw_mode=True))
    order = np.random.default_rng(0).permutation(directories * FILES).tolist()
    keys = [struct.pack(">q", d) + name.encode() for d in range(directories) for name in names(d)]

    def create() -> None:
        for d in range(directories):
            batch = WriteBatch(raw_mode=True)
            for i in range(FILES):
                batch.put(keys[d * FILES + i], ROW.pack(d * FILES + i, 0o644, 0, 0, i, 0, 0, 0))
            base.write(batch)

    def listing() -> list[Any]:
        frames = []
        for d in range(directories):
            prefix = struct.pack(">q", d)
            rows = []
            for key, value in base.items(from_key=prefix):
                if key[:8] != prefix:
                    break
                rows.append((key[8:], *ROW.unpack(value)))
            frames.append(pl.DataFrame(rows, orient="row"))
        return frames

    return create, lambda: [ROW.unpack(base[keys[i]]) for i in order], listing


def main() -> None:
    """Prints seconds and ratios."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--directories", type=int, default=50)
    options.add_argument("--folder", default=None)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as warm:
        for work in ours(Path(warm), 2):
            work()
    seconds: dict[str, list[float]] = {}
    for name, make in (("ours", ours), ("sqlite", sqlite), ("lmdb", lmdb), ("rocksdb", rocksdb)):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            try:
                works = make(Path(folder), given.directories)
            except ImportError as missing:
                print(f"{name}: skipped, {missing}")
                continue
            seconds[name] = []
            for work in works:
                start = time.perf_counter()
                work()
                seconds[name].append(time.perf_counter() - start)
    n = given.directories * FILES
    print(f"{n} files; files a second, and MetadataStore's speed over each")
    for name, row in seconds.items():
        cells = (
            f"{what} {n / s:12,.0f}/s {s / mine:6.2f}x"
            for what, s, mine in zip(("create", "stat", "list"), row, seconds["ours"], strict=True)
        )
        print(f"{name:8s}", *cells)


if __name__ == "__main__":
    main()
