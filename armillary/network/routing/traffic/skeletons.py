"""What applications send, with dependencies, after the skeletons that interconnects are judged with.

| name | each rank |
|---|---|
| `halo3d26` | exchanges with its 26 neighbours in a 3-D grid: faces of 64 KiB, edges of 2 KiB, corners of 64 B |
| `fft-alltoall` | sends 2 KiB to every rank of its row of a 2-D grid, then to every rank of its column |
| `sweep3d` | passes wavefronts on, from all four corners of a 2-D grid, in blocks of 8 KiB |
| `multigrid` | exchanges faces of 64 KiB on the finest level, a quarter per level, in a V-cycle; fewer ranks take part on coarser ones |
| `crystal-router` | exchanges 16 KiB with the rank whose number differs in one bit, bit after bit |
| `many-to-few` | sends 16 KiB to one of few servers (one for 32 ranks) and waits for 2 KiB |

A step starts when everything of the step before has reached the rank, after a pause of compute cycles. The pause makes the rank send for
the share `load` of the time if the network held nothing back. Sizes beyond those of `halo3d26` are ours.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

from armillary.errors import InputError, unknown

from ..fabric.network import Network
from .messages import Messages

SKELETONS = ("halo3d26", "fft-alltoall", "sweep3d", "multigrid", "crystal-router", "many-to-few")
PLACEMENTS = ("block", "random", "random-group")
KIB = 1024
FACE, EDGE, CORNER = 64 * KIB, 2 * KIB, 64
TRANSPOSE, WAVE, ROUTE, REQUEST, REPLY = 2 * KIB, 8 * KIB, 16 * KIB, 16 * KIB, 2 * KIB
SERVED = 32


@dataclass
class _Builder:
    """Collects messages of ranks, and joins: messages without flits, which end when a rank has everything that it waits for."""

    flit_bytes: int
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def send(self, source: int, target: int, nbytes: int, after: int = -1, pause: int = 0) -> int:
        """A message; returns its number."""
        self.rows.append((source, target, -(-nbytes // self.flit_bytes), pause))
        number = len(self.rows) - 1
        if after >= 0:
            self.pairs.append((after, number))
        return number

    def join(self, rank: int, arrived: list[int], pause: int = 0) -> int:
        """The moment `pause` after these messages have arrived."""
        self.rows.append((rank, rank, 0, pause))
        number = len(self.rows) - 1
        self.pairs += [(one, number) for one in arrived]
        return number

    def exchange(self, steps: list[int], partners: list[list[tuple[int, int]]], load: float) -> list[int]:
        """Every rank sends (partner, bytes) after its step and a pause; returns the joins that end the exchange."""
        arrived: list[list[int]] = [[] for _ in steps]
        for rank, targets in enumerate(partners):
            flits = sum(-(-nbytes // self.flit_bytes) for _, nbytes in targets)
            start = self.join(rank, [steps[rank]] if steps[rank] >= 0 else [], int(flits * (1 / load - 1)))
            for target, nbytes in targets:
                arrived[target].append(self.send(rank, target, nbytes, start))
            arrived[rank].append(start)
        return [self.join(rank, one) for rank, one in enumerate(arrived)]


def skeleton(
    name: str, net: Network, *, placement: str = "block", load: float = 0.3, iterations: int = 2, flit_bytes: int = 64,
    rng: np.random.Generator | None = None,
) -> Messages:  # fmt: skip
    """The messages of an application that runs on all nodes."""
    if name not in SKELETONS:
        raise unknown("skeleton", name, SKELETONS)
    if placement not in PLACEMENTS:
        raise unknown("placement", placement, PLACEMENTS)
    if not 0 < load <= 1:
        raise InputError(f"found {load}; expected the share of time that a rank sends, above 0 and at most 1", where="load")
    if not 1 <= iterations <= 1000 or not 1 <= flit_bytes <= 1 << 20:
        raise InputError(f"found {iterations} iterations and {flit_bytes} bytes per flit; expected 1 to 1,000 and 1 to {1 << 20:,}")
    build = _Builder(flit_bytes)
    _MAKERS[name](build, net.nodes, iterations, load)
    where = placed(net, placement, rng or np.random.default_rng(0))
    rows = np.array(build.rows, np.int64).reshape(-1, 4)
    if not rows[:, 2].any():
        raise InputError(f"{name} on {net.nodes} nodes sends nothing; expected more nodes")
    pairs = np.array(build.pairs, np.int64).reshape(-1, 2)
    return Messages(where[rows[:, 0]], where[rows[:, 1]], rows[:, 2], rows[:, 3], pairs[:, 0], pairs[:, 1], name=name)


def placed(net: Network, placement: str, rng: np.random.Generator) -> np.ndarray:
    """The node of each rank."""
    if placement == "random":
        return rng.permutation(net.nodes)
    order = np.argsort(net.group[net.node_router], kind="stable")
    if placement == "random-group":
        place = rng.permutation(net.groups)[net.group[net.node_router]]
        order = np.argsort(place, kind="stable")
    return order


def factors(ranks: int, dimensions: int) -> tuple[int, ...]:
    """The most cubic grid of exactly so many ranks."""
    if dimensions == 1:
        return (ranks,)
    best: tuple[int, ...] = (ranks,) + (1,) * (dimensions - 1)
    for one in range(1, math.isqrt(ranks) + 1 if dimensions == 2 else round(ranks ** (1 / 3)) + 1):
        if ranks % one == 0:
            found = tuple(sorted((one, *factors(ranks // one, dimensions - 1))))
            if max(found) - min(found) < max(best) - min(best):
                best = found
    return best


def _neighbours(dims: tuple[int, ...], at: tuple[int, ...], stride: int = 1, corners: bool = True) -> list[tuple[int, int]]:
    """(rank, dimensions in which it differs) of neighbours in an open grid."""
    found = []
    for step in itertools.product((-1, 0, 1), repeat=len(dims)):
        differs = sum(map(abs, step))
        there = tuple(a + stride * d for a, d in zip(at, step))
        if differs and (corners or differs == 1) and all(0 <= x < n for x, n in zip(there, dims)):
            found.append((int(np.ravel_multi_index(there, dims)), differs))
    return found


def _halo(build: _Builder, ranks: int, iterations: int, load: float) -> None:
    dims = factors(ranks, 3)
    size = {1: FACE, 2: EDGE, 3: CORNER}
    partners = [[(rank, size[k]) for rank, k in _neighbours(dims, at)] for at in np.ndindex(*dims)]
    steps = [-1] * ranks
    for _ in range(iterations):
        steps = build.exchange(steps, partners, load)


def _fft(build: _Builder, ranks: int, iterations: int, load: float) -> None:
    rows, columns = factors(ranks, 2)
    along = [[(r - r % columns + c, TRANSPOSE) for c in range(columns) if c != r % columns] for r in range(ranks)]
    across = [[(r % columns + q * columns, TRANSPOSE) for q in range(rows) if q != r // columns] for r in range(ranks)]
    for partners in (along, across):
        for rank, targets in enumerate(partners):
            # Each rank begins with the one after it, so that not all send to the first.
            partners[rank] = sorted(targets, key=lambda one: (one[0] - rank) % ranks)
    steps = [-1] * ranks
    for _ in range(iterations):
        steps = build.exchange(build.exchange(steps, along, load), across, load)


def _sweep(build: _Builder, ranks: int, iterations: int, load: float) -> None:
    rows, columns = factors(ranks, 2)
    blocks = 2 * iterations
    pause = int(2 * WAVE / build.flit_bytes * (1 / load - 1) / 2)
    before = [-1] * ranks
    for down, right in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        for _ in range(blocks):
            incoming: list[list[int]] = [[one] if one >= 0 else [] for one in before]
            for i in range(rows)[:: 1 if down > 0 else -1]:
                for j in range(columns)[:: 1 if right > 0 else -1]:
                    rank = i * columns + j
                    before[rank] = build.join(rank, incoming[rank], pause)
                    for there in ((i + down, j), (i, j + right)):
                        if 0 <= there[0] < rows and 0 <= there[1] < columns:
                            target = there[0] * columns + there[1]
                            incoming[target].append(build.send(rank, target, WAVE, before[rank]))


def _multigrid(build: _Builder, ranks: int, iterations: int, load: float) -> None:
    dims = factors(ranks, 3)
    levels = max(1, max(dims).bit_length())
    steps = [-1] * ranks
    cycle = [*range(levels), *range(levels - 2, -1, -1)]
    for _ in range(iterations):
        for level in cycle:
            stride, nbytes = 1 << level, max(64, FACE >> 2 * level)
            partners = []
            for at in np.ndindex(*dims):
                takes_part = all(x % stride == 0 for x in at)
                near = _neighbours(dims, at, stride, corners=False) if takes_part else []
                partners.append([(rank, nbytes) for rank, _ in near])
            steps = build.exchange(steps, partners, load)


def _crystal(build: _Builder, ranks: int, iterations: int, load: float) -> None:
    bits = ranks.bit_length() - 1
    steps = [-1] * ranks
    for _ in range(iterations):
        for bit in range(bits):
            steps = build.exchange(steps, [[(rank ^ 1 << bit, ROUTE)] if rank < 1 << bits else [] for rank in range(ranks)], load)


def _many_to_few(build: _Builder, ranks: int, iterations: int, load: float) -> None:
    # Servers are spread over the ranks, and their clients are every so many ranks.
    servers = max(1, ranks // SERVED)
    homes = [server * ranks // servers for server in range(servers)]
    pause = int(REQUEST / build.flit_bytes * (1 / load - 1))
    for client in range(ranks):
        server, got = homes[client % servers], -1
        if client == server:
            continue
        for _ in range(2 * iterations):
            asked = build.send(client, server, REQUEST, got, pause * SERVED)
            got = build.send(server, client, REPLY, asked)


_MAKERS = {
    "halo3d26": _halo, "fft-alltoall": _fft, "sweep3d": _sweep, "multigrid": _multigrid, "crystal-router": _crystal,
    "many-to-few": _many_to_few,
}  # fmt: skip
