"""A store that somebody crafted neither writes outside its folder nor ends in anything but one line."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.storage.deduplication import DedupStore
from armillary.storage.deduplication.store.containers import HEAD, MAGIC, VERSION

K = 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store of three files that share chunks."""
    path = tmp_path / "store"
    with DedupStore(path, "fixed", K, sync=False) as store:
        data = np.random.default_rng(1).bytes(20 * K)
        for name in ("a", "b", "c/d"):
            store.put(name, data + name.encode() * 3000)
    return path


def changed(folder: Path, *statements: str) -> None:
    with sqlite3.connect(folder / "index.sqlite") as database:
        for statement in statements:
            database.execute(statement)
    database.close()


def used(folder: Path) -> None:
    """Everything that one does with a store: reading by another process, and opening it for writing."""
    with DedupStore(folder, "fixed", K, readonly=True) as store:
        for name in store.names():
            store.get(name)
        store.fragmentation()
        store.verify()
    with DedupStore(folder, "fixed", K, sync=False) as store:
        for name in store.names():
            store.update(name, 0, store.get(name)[:10])
        store.relocate(1.0)
        store.verify()
        for name in store.names():
            store.delete(name)


def refused(folder: Path) -> str:
    """What is said when a store is used; empty if nothing is wrong. Any other error than InputError comes out."""
    try:
        used(folder)
    except InputError as error:
        return str(error)
    return ""


def test_an_unfinished_update_is_not_replayed_through_a_link(folder: Path, tmp_path: Path) -> None:
    victim = tmp_path / "start-up file"
    link = folder / "containers" / f"{77:012d}.con"
    link.symlink_to(victim)
    changed(folder, "INSERT INTO redo VALUES (77, 0, 32, x'6576696c')")
    with pytest.raises(InputError):
        DedupStore(folder, "fixed", K)
    assert not victim.exists()


@pytest.mark.parametrize(
    "row", ["(77, 0, 32, x'6576696c')", "(0, 0, 100000000, x'6576696c')", "('../../x', 0, 0, 'text')", "(0, 1, 1072, 7)"]
)
def test_an_unfinished_update_must_belong_to_a_chunk(folder: Path, row: str) -> None:
    changed(folder, f"INSERT INTO redo VALUES {row}")
    before = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(folder / "containers"))
    with pytest.raises(InputError, match="unfinished update") as error:
        DedupStore(folder, "fixed", K)
    assert "\n" not in str(error.value)
    assert before == sorted((entry.name, entry.stat().st_size) for entry in os.scandir(folder / "containers"))


@pytest.mark.parametrize("name", ["lock", "index.sqlite-wal", "index.sqlite-journal", "index.sqlite", "containers"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo"])
def test_links_and_special_files_are_refused(folder: Path, tmp_path: Path, name: str, kind: str) -> None:
    outside = tmp_path / "outside"
    if (folder / name).exists():
        (folder / name).rename(outside)
    if kind == "fifo":
        os.mkfifo(folder / name)
    else:
        if kind == "link" and not outside.exists():
            outside.write_bytes(b"precious")
        (folder / name).symlink_to(outside if kind == "link" else tmp_path / "none")
    with pytest.raises(InputError) as error:
        DedupStore(folder, "fixed", K)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "none").exists()


def test_a_container_that_is_a_link_is_neither_read_nor_written(folder: Path, tmp_path: Path) -> None:
    container = next((folder / "containers").iterdir())
    outside = tmp_path / "outside"
    container.rename(outside)
    container.symlink_to(outside)
    before = outside.read_bytes()
    with DedupStore(folder, "fixed", K, readonly=True) as store, pytest.raises(InputError, match="regular file"):
        store.get("a")
    with DedupStore(folder, "fixed", K) as store, pytest.raises(InputError, match="regular file"):
        store.update("a", 0, b"x" * K)
    assert outside.read_bytes() == before


def test_a_container_with_a_second_name_is_not_written(folder: Path, tmp_path: Path) -> None:
    container = next((folder / "containers").iterdir())
    os.link(container, tmp_path / "other")
    with DedupStore(folder, "fixed", K, readonly=True) as store:
        assert len(store.get("a")) == 20 * K + 3000
    with DedupStore(folder, "fixed", K) as store, pytest.raises(InputError, match="second name"):
        store.update("a", 0, b"x" * K)


CHANGES = [
    *(f"UPDATE chunks SET {column} = {value} WHERE id = (SELECT min(id) FROM chunks)"
      for column in ("container", "slot", "offset", "room", "length", "crc", "refs")
      for value in ("-1", "9223372036854775807", "'../../etc'", "1.5", "x'00'", "4096")),
    "UPDATE chunks SET fingerprint = 'text' WHERE id = 1", "UPDATE chunks SET fingerprint = x'00' WHERE id = 1",
    "UPDATE chunks SET id = 9223372036854775807 WHERE id = 1", "UPDATE chunks SET id = -5 WHERE id = 1", "DELETE FROM chunks WHERE id = 1",
    "DELETE FROM chunks", "DELETE FROM recipes", "UPDATE recipes SET ids = x'0102'", "UPDATE recipes SET ids = 'text'",
    "UPDATE recipes SET start = 'x'", "UPDATE recipes SET start = -7", "UPDATE recipes SET start = 4611686018427387904",
    "UPDATE recipes SET ids = x'ffffffffffffff7f'", "UPDATE recipes SET ids = zeroblob(80000)", "UPDATE recipes SET part = part + 1000",
    "UPDATE recipes SET part = 'x' WHERE file = 1",
    "UPDATE files SET size = -1", "UPDATE files SET size = 9223372036854775807", "UPDATE files SET size = 'x'",
    "UPDATE files SET name = '../../x' WHERE id = 1", "UPDATE files SET name = cast(x'ff' AS TEXT) WHERE id = 1",
    "UPDATE files SET size = size + 100000", "UPDATE meta SET value = 'x' WHERE key = 'log'", "UPDATE meta SET value = -3 WHERE key = 'log'",
    "UPDATE meta SET value = 9223372036854775807 WHERE key = 'log'", "UPDATE meta SET value = 5 WHERE key = 'slots'", "DELETE FROM meta",
    "DROP TABLE redo", "CREATE TABLE more (x)",
    "CREATE TRIGGER t AFTER DELETE ON redo BEGIN UPDATE chunks SET container = 1 << 60; END",
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_index_ends_in_one_line(folder: Path, change: str) -> None:
    changed(folder, change)
    said = refused(folder)
    assert "\n" not in said


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_index_ends_in_one_line(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    changed(folder, "PRAGMA wal_checkpoint(TRUNCATE)")
    path = folder / "index.sqlite"
    data = bytearray(path.read_bytes())
    for at in rng.integers(0, len(data), 1 + seed % 8):
        data[at] = rng.integers(256)
    path.write_bytes(data)
    said = refused(folder)
    assert "\n" not in said


def _head(number: int) -> bytes:
    return HEAD.pack(MAGIC, VERSION, 0, number)


@pytest.mark.parametrize("craft", [
    lambda path: path.write_bytes(b""), lambda path: path.write_bytes(_head(9)), lambda path: path.write_bytes(_head(0)[:20]),
    lambda path: path.unlink(), lambda path: (path.unlink(), path.mkdir()), lambda path: (path.unlink(), os.mkfifo(path)),
])  # fmt: skip
def test_a_damaged_container_ends_in_one_line(folder: Path, craft: Callable[[Path], object]) -> None:
    craft(next((folder / "containers").iterdir()))
    said = refused(folder)
    assert "\n" not in said
