"""A process to be killed: works on a store and says what was acknowledged."""

from __future__ import annotations

from typing import TextIO

import numpy as np

from armillary.storage.deduplication import DedupStore


def content(seed: int) -> bytes:
    """The bytes that stand for `seed`: half of them shared with other seeds."""
    own = np.random.default_rng(seed).bytes(6000 + seed % 5000)
    shared = np.random.default_rng(seed % 3).bytes(8192)
    return own + shared


def main(folder: str, work: str, chunker: str, seed: int, output: TextIO) -> None:
    """Puts, updates or relocates without end; a line before each operation and one after it."""
    rng = np.random.default_rng(seed)
    with DedupStore(folder, chunker, 1024) as store:
        names = store.names()
        print("ready", file=output, flush=True)
        for step in range(10**6):
            name, value = str(rng.choice(names)), int(rng.integers(1 << 30))
            if work == "relocate":
                print("begin relocate", file=output, flush=True)
                store.relocate(0.5)
                store.update(name, 0, store.get(name, 0, 1))
                store.put(f"scratch-{step % 4}", content(value))
                continue
            print(f"begin {work} {name} {value}", file=output, flush=True)
            if work == "put":
                store.put(name, content(value))
            else:
                store.update(name, 1000, content(value))
            print(f"done {work} {name} {value}", file=output, flush=True)
