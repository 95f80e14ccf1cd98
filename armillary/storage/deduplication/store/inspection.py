"""What a real store holds: how torn its files are, and whether every byte is what it should be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError

from ..layouts.layout import containers_per_file, runs_per_file
from ..relocation.similarity import Rows
from .chunking import fingerprint
from .containers import BadSlot

if TYPE_CHECKING:
    import polars

    from .dedup_store import DedupStore
    from .index import Chunk


@dataclass(frozen=True)
class Verification:
    """What `verify` read, and the faults that it found."""

    files: int
    chunks: int
    bytes: int
    faults: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


@dataclass(frozen=True)
class Space:
    """Bytes of the chunks that files refer to, and bytes that the containers take on the disk, holes left out."""

    live_bytes: int
    disk_bytes: int

    @property
    def ratio(self) -> float:
        """Bytes on the disk for each byte in use; 1 for an empty store."""
        return self.disk_bytes / self.live_bytes if self.live_bytes else 1.0


def space_of(store: DedupStore) -> Space:
    """The space that a store needs and takes."""
    return Space(int(store.index.table()[:, 3].sum()), store.containers.disk_bytes())


def chunks_and_recipes(store: DedupStore) -> tuple[np.ndarray, Rows]:
    """The table of chunks, and the recipe of every file as rows of that table."""
    table = store.index.table()
    recipes = [store.recipe_ids(file) for file, _, _ in store.index.names()]
    starts = np.concatenate(([0], np.cumsum([len(recipe) for recipe in recipes]))).astype(np.int64)
    ids = np.array([i for recipe in recipes for i in recipe], np.int64)
    at = np.searchsorted(table[:, 0], ids)
    missing = at == len(table)
    missing[~missing] = table[at[~missing], 0] != ids[~missing]
    if missing.any():
        raise InputError(f"found a recipe with chunk {ids[missing][0]}; expected chunks of the index", where=store.index.where)
    return table, Rows(starts, at.astype(np.int32))


def fragmentation_of(store: DedupStore) -> polars.DataFrame:
    """One row per file: name, bytes, chunks, runs, containers, ideal containers and their ratio."""
    import polars

    table, files = chunks_and_recipes(store)
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
    """Checks every chunk's bytes, every recipe's chunks and every reference count."""
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
    except (BadSlot, InputError) as error:
        faults.append(str(error))
    return faults
