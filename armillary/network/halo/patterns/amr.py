"""`miniamr`: an octree of blocks of 10³ cells with 40 variables, refined where the surface of a moving sphere passes.

Leaves are balanced 2:1 across faces and dealt to ranks in Morton order. Blocks of one level exchange faces of 10 × 10 × 40 numbers
(32,000 bytes), and a coarse and a fine one a quarter of that; what goes to one rank travels as one message.
"""

from __future__ import annotations

import math

import numpy as np

from .pattern import Pattern, Table, table_of

Leaf = tuple[int, int, int, int]
SAME, COARSE_FINE = 10 * 10 * 40 * 8, 5 * 5 * 40 * 8
RADIUS = 0.25
#: Steps between two meshes, and how far the sphere moves per step, in boxes.
REMESH, SPEED = 5, 0.01


def mesh(base: int, levels: int, centre: tuple[float, float, float], radius: float = RADIUS) -> set[Leaf]:
    """Return the leaves (level, i, j, k) of base³ blocks that are refined up to `levels` levels around a sphere's surface."""
    leaves: set[Leaf] = {(0, i, j, k) for i, j, k in np.ndindex(base, base, base)}
    for level in range(levels - 1):
        for leaf in [one for one in leaves if one[0] == level and _meets(one, base, centre, radius)]:
            _split(leaves, leaf)
    return _balanced(leaves, base)


def _meets(leaf: Leaf, base: int, centre: tuple[float, float, float], radius: float) -> bool:
    """Return whether the sphere's surface passes through a block: its nearest point is inside, and its farthest outside."""
    level, *at = leaf
    size = 1.0 / (base << level)
    near = far = 0.0
    for x, c in zip(at, centre):
        low, high = x * size, (x + 1) * size
        near += max(low - c, 0.0, c - high) ** 2
        far += max(c - low, high - c) ** 2
    return near <= radius * radius <= far


def _split(leaves: set[Leaf], leaf: Leaf) -> None:
    leaves.remove(leaf)
    level, i, j, k = leaf
    leaves.update((level + 1, 2 * i + a, 2 * j + b, 2 * k + c) for a, b, c in np.ndindex(2, 2, 2))


def _balanced(leaves: set[Leaf], base: int) -> set[Leaf]:
    """Refine until blocks that share a face differ by one level at most."""
    waiting = sorted(leaves, reverse=True)
    while waiting:
        leaf = waiting.pop()
        if leaf not in leaves or leaf[0] < 2:
            continue
        for _, other in _faces(leaf, base):
            level, i, j, k = other
            # The neighbour may be a leaf of this level or of the one above; a coarser one is split.
            for up in range(2, level + 1):
                coarse = (level - up, i >> up, j >> up, k >> up)
                if coarse in leaves:
                    _split(leaves, coarse)
                    waiting.extend((leaf, *((coarse[0] + 1, 2 * coarse[1] + a, 2 * coarse[2] + b, 2 * coarse[3] + c)
                                            for a, b, c in np.ndindex(2, 2, 2))))  # fmt: skip
    return leaves


def _faces(leaf: Leaf, base: int) -> list[tuple[int, Leaf]]:
    """Return the (direction, place) of the neighbours inside the box, as blocks of the same level."""
    level, *at = leaf
    side = base << level
    found: list[tuple[int, Leaf]] = []
    for axis in range(3):
        for step in (-1, 1):
            there = list(at)
            there[axis] += step
            if 0 <= there[axis] < side:
                found.append((2 * axis + (step > 0), (level, there[0], there[1], there[2])))
    return found


def morton(leaf: Leaf, levels: int) -> int:
    """Return the place of a block on the Morton curve of the finest level."""
    level, *at = leaf
    code = 0
    for bit in range(16):
        for axis, x in enumerate(at):
            code |= (((x << (levels - 1 - level)) >> bit) & 1) << (3 * bit + 2 - axis)
    return code


def amr_table(leaves: set[Leaf], base: int, levels: int, ranks: int) -> Table:
    """Return the messages of one exchange of all faces."""
    ordered = sorted(leaves, key=lambda leaf: (morton(leaf, levels), leaf))
    owner = {leaf: number * ranks // len(ordered) for number, leaf in enumerate(ordered)}
    sent: list[dict[int, int]] = [{} for _ in range(ranks)]

    def add(of: int, to: int, nbytes: int) -> None:
        if of != to:
            sent[of][to] = sent[of].get(to, 0) + nbytes

    for leaf, mine in owner.items():
        for _, other in _faces(leaf, base):
            if other in owner:
                add(mine, owner[other], SAME)
            else:
                coarse = (other[0] - 1, other[1] >> 1, other[2] >> 1, other[3] >> 1)
                if coarse in owner:
                    add(mine, owner[coarse], COARSE_FINE)
                    add(owner[coarse], mine, COARSE_FINE)
    return table_of(sent)


def miniamr(base: int, levels: int, ranks: int, per_node: int, iterations: int, start: float = 0.4, tilt: float = 0.0) -> Pattern:
    """Return the pattern of a sphere that starts at `start` and moves along the box, in a direction that `tilt` (radians) gives."""
    tables, epochs = [], []
    for step in range(iterations):
        if step % REMESH == 0:
            way = SPEED * step
            centre = (start + way * math.cos(tilt), 0.5 + way * math.sin(tilt), 0.5)
            tables.append(amr_table(mesh(base, levels, centre), base, levels, ranks))
        epochs.append(len(tables) - 1)
    return Pattern(tuple(tables), tuple(epochs), per_node)
