"""Overwriting bytes of a file on a real store, by index remapping.

The decisions are those of `relocation.slots`. Content that exists is referred to. A chunk that nobody else uses gives its slot away, with
a promise in the index that the slot's bytes will follow. A shared chunk stays, and the new content takes the nearest free slot near the
file's other chunks. With chunks of varying size, only a slot that is long enough is taken over, and everything else goes to the end of
the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError
from armillary.files.checksums import crc32c

from ..relocation.slots import TRIED, free_slot, home_container
from .chunking import fingerprint
from .containers import Place, occupied_slots, slot_bytes
from .index import PART, Chunk

if TYPE_CHECKING:
    from .dedup_store import DedupStore


def overwrite_range(store: DedupStore, name: str, offset: int, data: bytes) -> None:
    """Bytes from `offset` on become `data`, in one transaction."""
    file, size = store._found(name)
    if not 0 <= offset <= size:
        raise InputError(f"found offset {offset}; expected 0 to {size}, the file's bytes", where=name)
    if not data:
        return
    # Starts at the chunk that holds the first byte; a file that grows is cut anew from its last chunk on.
    start = min(offset, max(size - 1, 0))
    parts = store.index.recipe(file, start, max(offset + len(data), 1))
    if not parts:
        with store.writer(name) as writer:
            writer.write(data)
        return
    ids = np.concatenate([part[2] for part in parts]).astype(np.int64)
    rows = store.index.by_id(map(int, ids))
    ends = parts[0][1] + np.cumsum([rows[int(i)].length for i in ids])
    first = int(np.searchsorted(ends, start, side="right"))
    last = min(len(ids) - 1, int(np.searchsorted(ends, offset + len(data) - 1, side="right")))
    begin = int(ends[first]) - rows[int(ids[first])].length
    old = b"".join(store.payloads([rows[int(i)] for i in ids[first : last + 1]]))
    content = old[: offset - begin] + data + old[offset - begin + len(data) :]
    kept = last - first + 1
    cuts = (ends[first : last + 1] - begin).tolist()
    if offset + len(data) > size:
        # The last chunk is cut anew with what follows it.
        kept -= 1
        tail = cuts[kept - 1] if kept else 0
        cuts = cuts[:kept] + (tail + store.chunker.cuts(content[tail:])).tolist()
    change = _Change(store, ids, first)
    store.containers.flush()
    with store.index.transaction():
        at = 0
        for number, end in enumerate(cuts):
            payload = content[at:end]
            at = end
            change.write(first + number if number < kept else -1, payload)
        if offset + len(data) > size:
            change.lose(first + kept)
        store.containers.flush()
        change.finish(name, max(size, offset + len(data)), parts[0][0], parts[0][1])
    change.keep_promises()


class _Change:
    """One update while its transaction is open. Slots that it frees are not reused before the transaction ends."""

    def __init__(self, store: DedupStore, ids: np.ndarray, first: int) -> None:
        assert store.log is not None
        self.store, self.log, self.index = store, store.log, store.index
        self.ids = [int(i) for i in ids]
        self.added: list[int] = []
        self.counts: dict[int, int] = {}
        self.promises: list[tuple[Place, bytes]] = []
        self.taken: set[tuple[int, int]] = set()
        rows = self.index.by_id(self.ids)
        self.places = [rows[i].place for i in self.ids]
        self.home = home_container(np.array([place.container for place in self.places]))

    def write(self, at: int, payload: bytes) -> None:
        """Chunk `at` of the recipe, or a further one for -1, becomes `payload`."""
        name, crc = fingerprint(payload), crc32c(payload)
        old = self.index.by_id([self.ids[at]])[self.ids[at]] if at >= 0 else None
        if old is not None and old.fingerprint == name:
            return
        pending = self.log.fresh.get(name)
        found = self.index.by_fingerprint(name)
        if found is None and pending is not None:
            # An open writer has stored it, so its chunk joins the index with this transaction.
            self.index.insert([pending])
            found = pending
        if found is None and old is not None and self._alone(old) and len(payload) <= old.place.room:
            data = slot_bytes(payload, crc, old.id)
            self.index.replace_content(old.id, name, len(payload), crc)
            self.index.promise(old.place, data)
            self.promises.append((old.place, data))
            return
        if found is None:
            place = self._free_place(at) or self.log.next_place(len(payload))
            self.store.containers.write(place.container, place.offset, slot_bytes(payload, crc, self.log.next_id))
            found = Chunk(self.log.next_id, name, place, len(payload), crc, 0)
            self.log.next_id += 1
            self.index.insert([found])
            self.taken.add((place.container, place.slot))
        self._count(found.id, 1)
        if at < 0:
            self.added.append(found.id)
        else:
            self._count(self.ids[at], -1)
            self.ids[at], self.places[at] = found.id, found.place

    def lose(self, at: int) -> None:
        """The last chunk, number `at`, was cut anew; what it became is in `added`."""
        self._count(self.ids[at], -1)
        del self.ids[at:]

    def _alone(self, chunk: Chunk) -> bool:
        return chunk.refs + self.counts.get(chunk.id, 0) == 1 and not self.log.pins[chunk.id]

    def _count(self, id: int, by: int) -> None:
        self.counts[id] = self.counts.get(id, 0) + by

    def _free_place(self, at: int) -> Place | None:
        """A free slot near the file's other chunks; None with chunks of varying size, or where all are full."""
        if self.store.chunker.name != "fixed" or at < 0:
            return None
        near = 0
        if at > 0 and self.places[at - 1].container == self.home:
            near = min(self.places[at - 1].slot + 1, self.store.slots - 1)
        order = [(self.home, near)]
        for place in self.places[at + 1 :] + self.places[:at]:
            if place.container != order[-1][0]:
                order.append((place.container, place.slot))
            if len(order) > TRIED:
                break
        for container, slot in order:
            # Only the log hands out slots at its end.
            if container == self.log.container:
                continue
            used = set(self.index.slots_of(container)) | {s for c, s in self.taken if c == container}
            used |= {c.place.slot for c in self.log.fresh.values() if c.place.container == container}
            free = int(free_slot(occupied_slots(used, self.store.slots), slot))
            if free >= 0:
                return self.store.containers.fixed_place(container, free)
        return None

    def finish(self, name: str, size: int, part: int, start: int) -> None:
        """Counts references, writes the parts of the recipe from number `part` on, and drops chunks that nobody uses."""
        dead = self.index.count(self.counts)
        rows = self.index.by_id(self.ids + self.added)
        ids = self.ids + self.added
        parts, at = [], start
        for number, begin in enumerate(range(0, len(ids), PART), start=part):
            piece = ids[begin : begin + PART]
            parts.append((number, at, np.array(piece, np.int64)))
            at += sum(rows[i].length for i in piece)
        self.index.set_file(name, size, parts, whole=False)
        self.index.drop(i for i in dead if not self.log.pins[i])
        self.index.keep("log", self.log.container)

    def keep_promises(self) -> None:
        """Writes the promised bytes to their slots after the transaction, and then forgets the promises."""
        known = {chunk.id for chunk in self.index.by_id(self.counts).values()}
        for name in [name for name, chunk in self.log.fresh.items() if chunk.id in known]:
            del self.log.fresh[name]
        for place, data in self.promises:
            self.store.containers.write(place.container, place.offset, data)
        if self.promises:
            self.store.containers.flush()
            with self.index.transaction():
                self.index.kept()
        self.store.sweep()
