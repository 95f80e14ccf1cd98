"""Distributed training of a graph neural network: which remote vertices every minibatch of every trainer asks for.

The graph is partitioned, and each part's trainer has the training vertices of its part. Neighbours are really sampled, once per case, and
every technique replays the same sets. A trainer's *halo* are the remote vertices that its samples can reach: those within as many hops of
its training vertices as there are layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .graphs.graph import Graph, Ints
from .graphs.partitioning import Owners
from .graphs.sampling import Sampler, local_degree, reach
from .simulation.machine import Machine

Positions = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

ORDERS = ("shuffled", "stationary", "drift")
#: The share of its training vertices that a trainer with drift draws from at a time; that window moves through all of them once.
DRIFT_WINDOW = 0.25
#: Entries of all sampled sets together.
MOST_ASKED = 1 << 29


@dataclass(frozen=True)
class Trainer:
    """One trainer: its halo, and which of its vertices each minibatch asks for."""

    part: int
    #: Vertices of the halo, ascending, (halo,); the part that holds each; its degree, and how many of its neighbours this part holds.
    halo: Ints
    owner: npt.NDArray[np.int16]
    degree: Ints
    local: Ints
    #: Minibatch t asks for the halo positions asked[start[t]:start[t + 1]], ascending.
    asked: Positions
    start: Ints
    #: Seconds of computation of each minibatch.
    compute_s: Floats

    def __post_init__(self) -> None:
        halo, ends = len(self.halo), self.start
        if any(len(array) != halo for array in (self.owner, self.degree, self.local)) or (halo and int(self.owner.min()) < 0):
            raise InputError(f"part {self.part}: found owners and degrees that do not fit a halo of {halo} vertices")
        if len(ends) < 1 or ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > len(self.asked) or len(self.compute_s) != len(ends) - 1:
            raise InputError(f"part {self.part}: found minibatches that do not fit their sets")
        if len(self.asked) and not (int(self.asked.min()) >= 0 and int(self.asked.max()) < halo):
            raise InputError(f"part {self.part}: found a vertex outside the halo")

    @property
    def minibatches(self) -> int:
        """The number of minibatches."""
        return len(self.start) - 1

    def asks(self, minibatch: int) -> Positions:
        """The halo positions that a minibatch asks for, ascending."""
        return self.asked[self.start[minibatch] : self.start[minibatch + 1]]


@dataclass(frozen=True)
class PrefetchWork:
    """The minibatches of all trainers, the size of their buffers, and what a fetch costs."""

    trainers: tuple[Trainer, ...]
    machine: Machine
    #: The share of its halo that a trainer's buffer holds.
    fraction: float
    feature_bytes: int
    #: Vertices of a whole graph that each vertex stands for: bytes and operations are those of so many.
    stands_for: int = 1
    batch: int = 1000
    #: Minibatches per epoch.
    epoch: int = 1
    vertices: int = 0
    edges: int = 0

    def __post_init__(self) -> None:
        if len({trainer.minibatches for trainer in self.trainers}) != 1 or self.minibatches < 1:
            raise InputError("expected trainers with equally many minibatches, and at least one")
        if not 0 < self.fraction <= 1:
            raise InputError(f"found a buffer of {self.fraction:g} of the halo; expected a share above 0 and at most 1")

    @property
    def minibatches(self) -> int:
        """The number of minibatches of each trainer."""
        return self.trainers[0].minibatches

    @property
    def parts(self) -> int:
        """Machines that hold vertices."""
        return max(len(self.trainers), *(1 + int(trainer.owner.max(initial=0)) for trainer in self.trainers))

    def capacity(self, trainer: Trainer) -> int:
        """Vertices that a trainer's buffer holds."""
        return max(1, int(self.fraction * len(trainer.halo))) if len(trainer.halo) else 0

    def with_fraction(self, fraction: float) -> PrefetchWork:
        """The same minibatches with buffers of another size."""
        return replace(self, fraction=fraction)


def sampled_work(
    graph: Graph, owner: Owners, rng: np.random.Generator, *, machine: Machine, batch: int = 1000, fan_outs: Sequence[int] = (10, 25),
    minibatches: int = 60, order: str = "shuffled", train_share: float = 0.08, fraction: float = 0.25, feature_bytes: int = 400,
    stands_for: int = 1, compute_s: float = 0.0,
) -> PrefetchWork:  # fmt: skip
    """Samples the minibatches of one trainer per part.

    batch: seeds per minibatch and trainer. fan_outs: of the layers from the first to the last. order: `shuffled` permutes a trainer's
    training vertices for every epoch, `stationary` draws each minibatch anew from all of them, and `drift` from a quarter of them in the
    order of their numbers, which moves on. compute_s: seconds of computation per minibatch; 0 models them.
    """
    if len(owner) != graph.vertices:
        raise InputError(f"found {len(owner)} parts for {graph.vertices} vertices; expected one for each vertex")
    if min(fan_outs, default=0) < 1:
        raise InputError(f"found the fan-outs {', '.join(map(str, fan_outs)) or 'none'}; expected whole numbers above 0")
    if order not in ORDERS:
        raise InputError(f"found the order {order}; expected {', '.join(ORDERS)}")
    train = np.sort(rng.permutation(graph.vertices)[: max(1, round(train_share * graph.vertices))])
    parts = int(owner.max()) + 1
    mine = [train[owner[train] == part] for part in range(parts)]
    if min(len(seeds) for seeds in mine) < 1:
        idle = min(range(parts), key=lambda p: len(mine[p]))
        raise InputError(f"part {idle} has no training vertex; expected fewer parts or more training vertices")
    most = min(graph.vertices, batch * int(np.prod([1 + f for f in fan_outs], dtype=float)))
    if parts * minibatches * most > MOST_ASKED:
        raise InputError(f"up to {parts * minibatches * most:,} sampled vertices; expected at most {MOST_ASKED:,}: take fewer minibatches")
    epoch = max(1, -(-max(len(seeds) for seeds in mine) // batch))
    trainers = []
    for part, own in zip(range(parts), rng.spawn(parts), strict=True):
        seeds = _seeds(mine[part], min(batch, len(mine[part])), minibatches, order, own)
        costs = (machine, feature_bytes, stands_for, compute_s)
        trainers.append(_trainer(graph, owner, part, mine[part], seeds, tuple(fan_outs), own, *costs))
    return PrefetchWork(tuple(trainers), machine, fraction, feature_bytes, stands_for, batch, epoch, graph.vertices, graph.edges)


def _seeds(mine: Ints, batch: int, minibatches: int, order: str, rng: np.random.Generator) -> list[Ints]:
    """The seeds of each minibatch."""
    found: list[Ints] = []
    if order == "shuffled":
        per_epoch = max(1, len(mine) // batch)
        while len(found) < minibatches:
            found += np.split(rng.permutation(mine)[: per_epoch * batch], per_epoch)
        return found[:minibatches]
    window = len(mine) if order == "stationary" else max(batch, round(DRIFT_WINDOW * len(mine)))
    for t in range(minibatches):
        first = 0 if order == "stationary" else t * len(mine) // minibatches
        near = mine[(first + np.arange(window)) % len(mine)]
        found.append(rng.permutation(near)[:batch])
    return found


def _trainer(
    graph: Graph, owner: Owners, part: int, mine: Ints, seeds: list[Ints], fan_outs: tuple[int, ...], rng: np.random.Generator,
    machine: Machine, feature_bytes: int, stands_for: int, compute_s: float,
) -> Trainer:  # fmt: skip
    halo = np.flatnonzero(reach(graph, mine, len(fan_outs)) & (owner != part))
    position = np.full(graph.vertices, -1, np.int32)
    position[halo] = np.arange(len(halo), dtype=np.int32)
    sampler = Sampler(graph, fan_outs, int(rng.integers(1 << 63)))
    sets, seconds = [], []
    for each in seeds:
        inputs, edges = sampler.minibatch(each)
        asked = position[inputs]
        sets.append(np.sort(asked[asked >= 0]))
        seconds.append(compute_s or machine.compute_s(edges * stands_for, feature_bytes / 4))
    start = np.cumsum([0, *map(len, sets)]).astype(np.int64)
    return Trainer(
        part, halo, owner[halo], graph.degree[halo], local_degree(graph, owner, part)[halo], np.concatenate(sets), start,
        np.asarray(seconds),
    )  # fmt: skip
