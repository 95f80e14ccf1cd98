"""A map that survives its process: every change is in a journal before it is acknowledged, and a snapshot bounds the journal.

A folder holds `snapshot.npz` of some generation g (none before the first: g = 0) and `journal-g.log` with the changes since. To
take a snapshot: make an empty journal g+1, write the snapshot of generation g+1 under another name, flush it, rename it (from
here on g+1 counts), flush the folder, remove journal g. Whenever the process dies, the snapshot names the journal that goes with it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.files.stores import check_regular, open_regular

from ..tables.keys import KEY_TYPES, as_bits, as_keys, as_values, bits_of, keys_of, row_numbers
from . import snapshot as files
from .journal import DELETE, HEAD, INSERT, MOST_KEYS, Journal
from .simd_map import SimdMap


class DurableMap:
    """A SimdMap in a folder, for one process at a time; use it as a context manager, or `close` it.

    `keys` and `values` name the types of a new map (an existing one must agree). When `insert_many` or `delete_many` returns, the
    change outlives a kill of the process, and with `sync` (the default) a loss of power. A batch is applied whole or not at all, up to
    4 million keys; larger ones are several batches. After `journal_bytes` of changes a snapshot is taken by itself.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keys: str = "int64",
        values: str = "int64",
        *,
        sync: bool = True,
        journal_bytes: int = 1 << 28,
    ) -> None:
        for what, name in (("keys", keys), ("values", values)):
            if name not in KEY_TYPES:
                raise unknown("type", str(name), KEY_TYPES, where=what)
        self.folder, self.sync, self.journal_bytes = Path(folder), sync, journal_bytes
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = open_regular(None, str(self.folder / "lock"), os.O_RDWR | os.O_CREAT, str(self.folder / "lock"))
        #: Held as long as the map is open.
        self._journal: Journal | None = None
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError("found it open in another process; expected to be alone", where=str(self.folder)) from None
            self._open(np.dtype(keys), np.dtype(values))
        except BaseException:
            self.close()
            raise

    def _open(self, keys: np.dtype, values: np.dtype) -> None:
        self._clear_scratch()
        whole = self.folder / "snapshot.npz"
        if os.path.lexists(whole):
            check_regular(os.lstat(whole), str(whole), writing=False)
            self.map, extra = files.load(whole)
            self.generation = extra.get("generation", 0)
        else:
            self.map, self.generation = SimdMap(np.zeros(0, keys), np.zeros(0, values)), 0
        if (self.map.key_dtype, self.map.value_dtype) != (keys, values):
            found = f"{self.map.key_dtype} keys and {self.map.value_dtype} values"
            raise InputError(f"found a map of {found}; expected {keys} and {values}", where=str(self.folder))
        self._check_others()
        self._journal = Journal(self._journal_path(self.generation), self.generation, keys, values, sync=self.sync)
        for operation, bits, held in self._journal.replay():
            if operation == INSERT:
                self.map.insert_many(keys_of(bits, keys), held.view(values))
            else:
                self.map.delete_many(keys_of(bits, keys))
        self._remove_others()

    def _journal_path(self, generation: int) -> Path:
        return self.folder / f"journal-{generation}.log"

    def _check_others(self) -> None:
        """Refuses a folder with a later journal that has records, or without our own, because its files were moved and no guess is made."""
        later = [path for path in self.folder.glob("journal-*.log") if _generation(path) > self.generation]
        if any(path.stat().st_size > HEAD.size for path in later):
            raise InputError(
                f"found journals later than the snapshot's generation {self.generation}; expected its own", where=str(self.folder)
            )
        if self.generation and not self._journal_path(self.generation).exists():
            raise InputError(f"found no journal-{self.generation}.log; expected it beside the snapshot", where=str(self.folder))

    def _remove_others(self) -> None:
        for path in self.folder.glob("journal-*.log"):
            if _generation(path) != self.generation:
                path.unlink()

    def _clear_scratch(self) -> None:
        for path in self.folder.glob(".snapshot.npz.*.part"):
            path.unlink()

    def insert_many(self, keys: Any, values: Any = None) -> None:
        """Inserts or overwrites; the change is on the device when this returns. Without `values`, rows are numbered on."""
        found = as_keys(keys, self.map.key_dtype)
        if values is None:
            held = row_numbers(self.map._rows, len(found), self.map.value_dtype)
        else:
            held = as_values(values, len(found), self.map.value_dtype)
        for start in range(0, len(found), MOST_KEYS):
            part = slice(start, start + MOST_KEYS)
            self._opened().append(INSERT, bits_of(found[part]), as_bits(held[part]))
            self.map.insert_many(found[part], held[part])
        self._bound()

    def delete_many(self, keys: Any) -> np.ndarray:
        """Deletes, and says which keys were there; the change is on the device when this returns."""
        found = as_keys(keys, self.map.key_dtype)
        there = [np.zeros(0, np.bool_)]
        for start in range(0, len(found), MOST_KEYS):
            part = found[start : start + MOST_KEYS]
            self._opened().append(DELETE, bits_of(part))
            there.append(self.map.delete_many(part))
        self._bound()
        return np.concatenate(there)

    def get_many(self, queries: Any, default: Any = 0) -> tuple[np.ndarray, np.ndarray]:
        """Returns (values, found) for each query."""
        return self.map.get_many(queries, default)

    def contains_many(self, queries: Any) -> np.ndarray:
        """Returns whether each query is a key of the map."""
        return self.map.contains_many(queries)

    def __len__(self) -> int:
        return len(self.map)

    def snapshot(self) -> None:
        """Writes the whole map and begins an empty journal."""
        old = self._opened()
        generation = self.generation + 1
        path = self._journal_path(generation)
        path.unlink(missing_ok=True)
        journal = Journal(path, generation, self.map.key_dtype, self.map.value_dtype, sync=self.sync)
        try:
            files.save(self.map, self.folder / "snapshot.npz", {"generation": generation})
        except BaseException:
            # The rename may have happened or not: only a new look at the folder tells which journal counts.
            journal.close()
            self.close()
            raise
        self._journal, self.generation = journal, generation
        old.close()
        old.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Gives the folder back; nothing is lost without it."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> DurableMap:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _opened(self) -> Journal:
        if self._journal is None:
            raise InputError("found it closed; expected an open map", where=str(self.folder))
        return self._journal

    def _bound(self) -> None:
        if self._opened().end > self.journal_bytes:
            self.snapshot()


def _generation(path: Path) -> int:
    number = path.stem.removeprefix("journal-")
    return int(number) if number.isdecimal() else -1
