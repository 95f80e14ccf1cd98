"""Synchronisation on this machine: simulated operations a second by protocol, and merges and replicated maps beside their peers.

python benchmarks/synchronization_speed.py [acts] prints ratios within one run and one JSON object. Peers that are not here are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary import catalogue
from armillary.storage.synchronization import Crdt, Operation, generate, merge_text, simulate
from armillary.storage.synchronization.crdt import CrdtNode
from armillary.storage.synchronization.world.protocol import Act, Message

REPEATS = 3


def best(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds of the fastest of some calls: the machine may be shared."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def protocols(acts: int) -> dict[str, float]:
    """Operations a second on `team`."""
    arena = catalogue.arena("storage/synchronization")
    schedule = generate("team", np.random.default_rng(1), acts)
    return {name: len(schedule.operations) / best(lambda name=name: simulate(schedule, arena.make(name))) for name in arena.techniques}  # type: ignore[misc, arg-type]


def texts(count: int, lines: int) -> list[tuple[str, str, str]]:
    """Files of so many lines, each side with twenty edits."""
    rng = random.Random(1)
    out = []
    for _ in range(count):
        base = [f"line {i} {rng.random()}\n" for i in range(lines)]
        sides = []
        for side in "ab":
            mine = list(base)
            for k in range(20):
                mine[rng.randrange(len(mine))] = f"{side} {k} {rng.random()}\n"
            sides.append("".join(mine))
        out.append(("".join(base), *sides))
    return out  # type: ignore[return-value]


def merges(lines: int) -> dict[str, float]:
    """Seconds for one merge: ours, and libgit2's through pygit2 (its blobs are written before)."""
    work = texts(20, lines)
    found = {"merge_text": best(lambda: [merge_text(*three) for three in work]) / len(work)}
    if importlib.util.find_spec("pygit2"):
        import pygit2

        with tempfile.TemporaryDirectory() as folder:
            repo = pygit2.init_repository(folder, bare=True)
            mode = pygit2.enums.FileMode.BLOB
            entries = [[pygit2.IndexEntry("f", repo.create_blob(text.encode()), mode) for text in three] for three in work]
            found["pygit2"] = best(lambda: [repo.merge_file_from_index(o, a, b) for o, a, b in entries]) / len(work)
    return found


class Desk:
    """A host without a network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.peers: tuple[str, ...] = ("other",)

    def now(self) -> float:
        """No time passes."""
        return 0.0

    def clock(self) -> float:
        """Nor here."""
        return 0.0

    def send(self, peer: str, message: Message) -> None:
        """Nowhere."""

    def after(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        """Never."""

    def shows(self, ops: tuple[int, ...]) -> None:
        """Nobody counts."""

    def conflict(self, mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
        """Nobody counts."""


def maps(keys: int) -> dict[str, float]:
    """Seconds to set so many keys twice on each of two replicas and to join them."""

    def ours() -> None:
        a, b = (CrdtNode(Desk(name), Crdt().retry) for name in "ab")
        for i in range(2 * keys):
            for node in (a, b):
                node.local(Act(i, Operation(0.0, node.host.name, "write", f"k{i % keys}")))
        for key, state in list(a.states.items()):
            b.join(key, state)
        for key, state in list(b.states.items()):
            a.join(key, state)

    found = {"crdt": best(ours)}
    if importlib.util.find_spec("pycrdt"):
        import pycrdt

        def theirs() -> None:
            docs = [pycrdt.Doc() for _ in range(2)]  # type: ignore[var-annotated]
            for doc in docs:
                one = doc.get("m", type=pycrdt.Map)
                for i in range(2 * keys):
                    one[f"k{i % keys}"] = i
            for x, y in ((0, 1), (1, 0)):
                docs[y].apply_update(docs[x].get_update(docs[y].get_state()))

        found["pycrdt"] = best(theirs)
    return found


def main() -> None:
    """Measures and prints."""
    acts = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    found: dict[str, dict[str, float]] = {"operations a second on team": protocols(acts)}
    for name, rate in found["operations a second on team"].items():
        print(f"{name:24s} {rate:9.0f} operations/s")
    found["merge of 1000 lines, s"] = merges(1000)
    found["map of 1000 keys, s"] = maps(1000)
    for what in ("merge of 1000 lines, s", "map of 1000 keys, s"):
        (first, mine), *others = found[what].items()
        peers = (f"{name} {1e3 * other:.2f} ms (ours takes {mine / other:.1f} times as long)" for name, other in others)
        print(f"{what}: {first} {1e3 * mine:.2f} ms", *peers)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
