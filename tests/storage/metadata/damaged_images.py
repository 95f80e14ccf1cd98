"""Store files with one field changed and every checksum repaired, as a stranger could write them (`tests/fuzz_decoders` makes many)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.storage.metadata import MetadataStore
from armillary.storage.metadata.record_groups.records import crc

GROUP, RECORD = 4096, 256
HANDLERS = 2
#: Values that links, ids, counts and flags are tempted with, besides those nearby.
TEMPTING = [0, 1, 2, 3, 5, 15, 16, 63, 64, 255, 256, 1000, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


class Image:
    """The bytes of a store; records and headers are named by group and slot, and `seal` repairs their checksums."""

    def __init__(self, data: bytes) -> None:
        self.b = np.frombuffer(bytearray(data), np.uint8)
        self.w, self.h = self.b.view(np.uint64), self.b.view(np.uint32)

    def record(self, group: int, slot: int) -> int:
        """Returns a record's offset in words."""
        return group * GROUP // 8 + 32 * (slot + 1)

    def records(self) -> list[tuple[int, int]]:
        """Returns (group, slot) of every taken slot."""
        bitmaps = self.w[1 :: GROUP // 8]
        return [(g, slot) for g in range(1, len(bitmaps)) for slot in range(15) if int(bitmaps[g]) >> slot & 1]

    def place_of(self, number: int) -> tuple[int, int]:
        """Returns (group, slot) of an id."""
        return next(at for at in self.records() if int(self.w[self.record(*at)]) == number)

    def seal(self, group: int, slot: int | None = None) -> None:
        """Repairs the checksums of a header, or of a record."""
        if slot is None:
            g = group * GROUP // 8
            self.h[2 * g + 10] = crc(self.w, g, g + 8, 2 * g + 10)
            return
        r = self.record(group, slot)
        for first, last, at in ((0, 8, 15), (8, 16, 19), (16, 32, 63)):
            self.h[2 * r + at] = crc(self.w, r + first, r + last, 2 * r + at)


def sound(path: Path) -> bytes:
    """Makes a store with every structure: tiny, plain and hashed directories, long names, and directories in directories."""
    with MetadataStore(path, handlers=HANDLERS) as store:
        deep = store.mkdir(1, "deep")
        for level in range(4):
            deep = store.mkdir(deep, f"level{level}")
        plain = store.mkdir(1, "plain")
        store.create_many(plain, [f"p{i}" for i in range(40)])
        store.create_many(plain, ["long" * 40, "longer" * 42])
        for i in range(4):
            store.create_many(store.mkdir(plain, f"tiny{i}"), ["a", "b" * 150])
        hashed = store.mkdir(1, "hashed")
        store.create_many(hashed, [f"h{i}" for i in range(600)])
    return path.read_bytes()


def mutant(whole: bytes, rng: np.random.Generator) -> bytes:
    """Changes one or two fields of a header or record and repairs the checksums."""
    image = Image(whole)
    places = image.records()
    for _ in range(1 + int(rng.integers(2))):
        group, slot = places[int(rng.integers(len(places)))]
        header = bool(rng.random() < 0.4)
        at = group * GROUP // 8 if header else image.record(group, slot)
        value = TEMPTING[int(rng.integers(len(TEMPTING)))] if rng.random() < 0.6 else int(rng.integers(1, 200))
        match int(rng.integers(3)):
            case 0:  # a word: owner, bitmap and links of a header; id, parent and pointer of a record
                image.w[at + int(rng.choice([0, 1, 2, 3] if header else [0, 1, 10]))] = np.uint64(value)
            case 1:  # half a word: prefix, or flags, and name length with kind and extensions
                image.h[2 * at + int(rng.choice([9] if header else [16, 17, 18]))] = np.uint32(value & 0xFFFFFFFF)
            case _:  # a byte: depth and kind of a header; kind and extensions of a record, or a byte of its name
                image.b[8 * at + int(rng.choice([44, 45] if header else [74, 75, 72, 90]))] = value & 255
        image.seal(group, None if header else slot)
    return image.b.tobytes()


def use(path: Path) -> str:
    """Opens a store and does everything with it; returns "refused", "unsound" or "sound"."""
    try:
        store = MetadataStore(path)
    except InputError:
        return "refused"
    with store:
        faults = store.check()
        frame = store.query()
        folders = [1, *frame.filter(frame["directory"])["id"].to_list()]
        for folder in folders:
            store.readdirplus(folder)
            for names in ([f"x{i}" for i in range(3)], ["y" * 200]):
                try:
                    store.create_many(folder, names)
                except InputError:
                    continue
            try:
                store.rename(folder, "x0", folders[-1], f"moved{folder}")
            except InputError:
                continue
        store.stat_many(frame["id"].to_numpy())
        store.query()
        return "unsound" if faults else "sound"
