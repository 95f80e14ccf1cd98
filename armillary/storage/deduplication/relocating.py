"""Relocation, its measure and its check on a real store."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError

from .chunking import fingerprint
from .containers import HEAD, SLOT, BadSlot, Place, slot_bytes
from .layout import containers_per_file, runs_per_file
from .moving import plan_moves
from .similarity import Rows

if TYPE_CHECKING:
    import polars

    from .index import Chunk
    from .store import DedupStore


@dataclass(frozen=True)
class RelocationReport:
    """What a round did: chunks and bytes moved, runs of all files before and after, containers written and freed, seconds."""

    moved_chunks: int
    moved_bytes: int
    runs_before: int
    runs_after: int
    containers_written: int
    containers_freed: int
    seconds: float


@dataclass(frozen=True)
class Verification:
    """What `verify` looked at and what it found wrong."""

    files: int
    chunks: int
    bytes: int
    faults: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def move_chunks(store: DedupStore, budget: float, slack: float, mode: str) -> RelocationReport:
    """One round: plan, copy into new containers, one transaction, unlink."""
    start = time.perf_counter()
    log = store.log
    assert log is not None
    table, files = _state(store)
    position = table[:, 1] * store.slots + table[:, 2]
    before = int(runs_per_file(files.starts, position[files.values], store.slots).sum())
    first = log.next_container
    moves = plan_moves(files, position, table[:, 3], slots=store.slots, slack=slack, budget=budget, first=first, mode=mode)
    moved = np.flatnonzero(moves.moved)
    freed = 0
    if len(moved):
        log.next_container = max(log.next_container, moves.next_container)
        order = moved[np.argsort(moves.position[moved], kind="stable")]
        places = _copied(store, table[order, 0], moves.position[order])
        store.containers.flush()
        with store.index.transaction():
            store.index.move(places)
        existed = len(store.containers.numbers())
        store.sweep()
        freed = existed - len(store.containers.numbers())
    after = int(runs_per_file(files.starts, moves.position[files.values], store.slots).sum())
    seconds = time.perf_counter() - start
    return RelocationReport(len(moved), int(table[moved, 3].sum()), before, after, moves.next_container - first, freed, seconds)


def _copied(store: DedupStore, ids: np.ndarray, positions: np.ndarray) -> list[tuple[int, Place]]:
    """Writes chunks to their new positions, which ascend; (chunk number, place) of each."""
    places: list[tuple[int, Place]] = []
    fixed = store.chunker.name == "fixed"
    container, offset = -1, HEAD.size
    for at in range(0, len(ids), store.slots):
        rows = store.index.by_id(map(int, ids[at : at + store.slots]))
        waiting, first = bytearray(), None
        for id, position in zip(ids[at : at + store.slots].tolist(), positions[at : at + store.slots].tolist(), strict=True):
            chunk, (number, slot) = rows[id], divmod(position, store.slots)
            if number != container:
                container, offset = number, HEAD.size
            place = store.containers.fixed_place(number, slot) if fixed else Place(number, slot, offset, chunk.length)
            offset += SLOT.size + chunk.length
            if first is None or place.container != first.container or place.offset != first.offset + len(waiting):
                if first is not None:
                    store.containers.write(first.container, first.offset, waiting)
                waiting, first = bytearray(), place
            waiting += slot_bytes(store.payloads([chunk])[0], chunk.crc, id, store.chunker.chunk if fixed else None)
            places.append((id, place))
        if first is not None:
            store.containers.write(first.container, first.offset, waiting)
    return places


def _state(store: DedupStore) -> tuple[np.ndarray, Rows]:
    """The table of chunks, and every file's recipe as rows of that table."""
    table = store.index.table()
    recipes = [store.recipe_ids(file) for file, _, _ in store.index.names()]
    starts = np.concatenate(([0], np.cumsum([len(recipe) for recipe in recipes]))).astype(np.int64)
    ids = np.array([i for recipe in recipes for i in recipe], np.int64)
    return table, Rows(starts, np.searchsorted(table[:, 0], ids).astype(np.int32))


def fragmentation_of(store: DedupStore) -> polars.DataFrame:
    """A row a file: name, bytes, chunks, runs, containers, ideal containers and their ratio."""
    import polars

    table, files = _state(store)
    place = (table[:, 1] * store.slots + table[:, 2])[files.values]
    named = store.index.names()
    sizes = np.array([size for _, _, size in named], np.int64)
    containers = containers_per_file(files.starts, place, store.slots)
    ideal = -(-sizes // (store.slots * store.chunker.chunk))
    return polars.DataFrame(
        {
            "name": [name for _, name, _ in named],
            "bytes": sizes,
            "chunks": np.diff(files.starts),
            "runs": runs_per_file(files.starts, place, store.slots),
            "containers": containers,
            "ideal": ideal,
            "ratio": containers / np.maximum(ideal, 1),
        },
        schema_overrides={"name": polars.String},
    )


def verified(store: DedupStore) -> Verification:
    """Every chunk's bytes, every recipe's chunks, every count of references."""
    faults, counted, total = [], Counter[int](), 0
    with store.index.transaction(write=False):
        chunks = {chunk.id: chunk for chunk in store.index.all_chunks()}
        named = store.index.names()
        for file, name, size in named:
            ids = store.recipe_ids(file)
            counted.update(ids)
            missing = [i for i in ids if i not in chunks]
            if missing:
                faults.append(f"{name}: found no chunk {missing[0]}; expected {len(missing)} more")
            elif sum(chunks[i].length for i in ids) != size:
                faults.append(f"{name}: found {sum(chunks[i].length for i in ids)} bytes; expected {size}")
    for chunk in chunks.values():
        total += chunk.length
        faults += _faults_of(store, chunk, counted[chunk.id])
    return Verification(len(named), len(chunks), total, tuple(faults))


def _faults_of(store: DedupStore, chunk: Chunk, references: int) -> list[str]:
    held = 0 if store.log is None else store.log.pins[chunk.id]
    where = f"{store.containers.path(chunk.place.container).name}: slot {chunk.place.slot}"
    faults = []
    if chunk.refs != references and not held:
        faults.append(f"{where}: found {chunk.refs} references; expected {references}")
    try:
        if fingerprint(store.payloads([chunk])[0]) != chunk.fingerprint:
            faults.append(f"{where}: found other content; expected that of its fingerprint")
    except BadSlot as error:
        faults.append(str(error))
    except InputError as error:
        faults.append(str(error))
    return faults
