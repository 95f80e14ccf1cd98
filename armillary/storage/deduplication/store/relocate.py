"""One round of relocation on a real store: chunks are copied into new containers, and the index then points to the copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.timing import Stopwatch

from ..layouts.layout import runs_per_file
from ..relocation.rounds import plan_moves
from .containers import HEAD, SLOT, Place, slot_bytes
from .inspection import chunks_and_recipes, space_of

if TYPE_CHECKING:
    from .dedup_store import DedupStore


@dataclass(frozen=True)
class RelocationReport:
    """The effect of a round: chunks and bytes moved, runs of all files before and after, containers written and freed, seconds.

    `most_added_runs` is the most runs that a single file gained. `live_bytes` are those of chunks in use and `disk_bytes` what the
    containers take on the disk after the round.
    """

    moved_chunks: int
    moved_bytes: int
    runs_before: int
    runs_after: int
    containers_written: int
    containers_freed: int
    seconds: float
    most_added_runs: int
    live_bytes: int
    disk_bytes: int


def move_chunks(store: DedupStore, budget: float, slack: float, mode: str) -> RelocationReport:
    """Does one round: plans it, copies chunks into new containers, changes the index in one transaction, and unlinks old containers."""
    with Stopwatch() as watch:
        moved, moved_bytes, before, after, written, freed = _moved(store, budget, slack, mode)
        store.reclaim()
    space = space_of(store)
    added = int((after - before).max(initial=0))
    return RelocationReport(
        moved, moved_bytes, int(before.sum()), int(after.sum()), written, freed, watch.seconds, added, space.live_bytes, space.disk_bytes
    )


def _moved(store: DedupStore, budget: float, slack: float, mode: str) -> tuple[int, int, np.ndarray, np.ndarray, int, int]:
    """(chunks, bytes, each file's runs before, and after, containers written, containers freed) of a round."""
    log = store.log
    assert log is not None
    table, files = chunks_and_recipes(store)
    position = table[:, 1] * store.slots + table[:, 2]
    before = runs_per_file(files.starts, position[files.values], store.slots)
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
    after = runs_per_file(files.starts, moves.position[files.values], store.slots)
    return len(moved), int(table[moved, 3].sum()), before, after, moves.next_container - first, freed


def _copied(store: DedupStore, ids: np.ndarray, positions: np.ndarray) -> list[tuple[int, Place]]:
    """Writes chunks to their new positions, which ascend; returns (chunk number, place) of each."""
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
