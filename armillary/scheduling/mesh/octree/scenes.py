"""The built-in meshes: a blast wave in space, vortices in a plane, and boxes whose blocks' costs are drawn independently.

A scene refines its root grid where something happens. What happens moves from step to step, and the mesh follows it every few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .mesh import Blocks, Floats, Ints

#: Cells along an edge of a block, so that blocks of both scenes have 4,096 cells.
EDGE = {2: 64, 3: 16}
#: Ghost layers, bytes per value, and values per cell (hydrodynamics in space, magnetohydrodynamics in the plane).
GHOSTS, WIDTH, VARIABLES = 4, 8, {2: 8, 3: 5}
LEVELS = 3
#: Microseconds of one block and step: 4,096 cells at two million cell updates per second and core, the order of public AMR codes (ours).
BASE_US = 2000.0
#: How much more a block costs where something happens.
HOT = 2.0
#: The coefficient of variation of the lognormal factor on every cost.
NOISE = 0.15
#: Steps between refinements.
REFINE_EVERY = 5

#: Costs are multiples of 1/1024 µs, so that sums of them are exact and no placement depends on how a CPU rounds.
PER_US = 1024.0

Criterion = Callable[[int, Floats, Floats], np.ndarray]


def face_bytes(dimensions: int) -> float:
    """Bytes of the ghost cells behind one face of a block."""
    return float(EDGE[dimensions] ** (dimensions - 1) * GHOSTS * WIDTH * VARIABLES[dimensions])


def block_bytes(dimensions: int) -> float:
    """Bytes of all cells of a block."""
    return float(EDGE[dimensions] ** dimensions * WIDTH * VARIABLES[dimensions])


def refined(roots: tuple[int, int, int], dimensions: int, criterion: Criterion) -> Blocks:
    """The leaves after every block for which `criterion(level, lower corners, upper corners)` holds is replaced by its children."""
    place = np.stack(np.meshgrid(*(np.arange(n) for n in roots), indexing="ij"), -1).reshape(-1, 3)
    child = np.stack(np.meshgrid(*(np.arange(2 if axis < dimensions else 1) for axis in range(3)), indexing="ij"), -1).reshape(-1, 3)
    levels, places = [], []
    for level in range(LEVELS):
        low, high = corners(np.full(len(place), level), place, roots[0])
        split = criterion(level, low, high) if level < LEVELS - 1 else np.zeros(len(place), bool)
        levels.append(np.full(int((~split).sum()), level))
        places.append(place[~split])
        place = (2 * place[split][:, None, :] * (np.arange(3) < dimensions) + child).reshape(-1, 3)
    return Blocks.of(np.concatenate(levels), np.concatenate(places), dimensions)


def corners(level: Ints, place: Ints, roots: int) -> tuple[Floats, Floats]:
    """Both corners of blocks; the domain has length 1 along the first axis."""
    size = 1.0 / (roots * 2.0 ** level.astype(np.float64))
    return place * size[:, None], (place + 1) * size[:, None]


@dataclass(frozen=True)
class Sedov:
    """A spherical front that expands as time to the power 2/5 through a cube of `base`³ root blocks."""

    base: int
    #: Radii at the first and at the last step, in root blocks.
    start: float
    end: float
    steps: int
    centre: tuple[float, float, float]
    dimensions: int = 3
    periodic: bool = False

    @property
    def roots(self) -> tuple[int, int, int]:
        """The root grid."""
        return self.base, self.base, self.base

    def radius(self, step: int) -> float:
        """The radius of the front, in lengths of the domain."""
        begun = (self.start / self.end) ** 2.5
        return self.end / self.base * (begun + (1 - begun) * step / max(1, self.steps)) ** 0.4

    def blocks(self, step: int) -> Blocks:
        """The mesh around the front; one level-1 block is kept between blocks that differ by two levels."""
        radius = self.radius(step)

        def near(level: int, low: Floats, high: Floats) -> np.ndarray:
            return self._touched(low, high, radius, np.sqrt(3.0) / (2 * self.base) if level == 0 else 0.0)

        return refined(self.roots, 3, near)

    def heat(self, blocks: Blocks, step: int) -> Floats:
        """1 for blocks that the front passes through, else 0."""
        low, high = corners(blocks.level, blocks.place, self.base)
        return self._touched(low, high, self.radius(step), 0.0).astype(np.float64)

    def _touched(self, low: Floats, high: Floats, radius: float, margin: float) -> np.ndarray:
        centre = np.array(self.centre)
        nearest = np.sqrt((np.maximum(np.maximum(low - centre, centre - high), 0.0) ** 2).sum(1))
        farthest = np.sqrt((np.maximum(np.abs(low - centre), np.abs(high - centre)) ** 2).sum(1))
        found: np.ndarray = (nearest - margin <= radius) & (radius <= farthest + margin)
        return found


@dataclass(frozen=True)
class Orszag:
    """Vortices that circle through a periodic square of `base`² root blocks; costs fall off smoothly around each of them."""

    base: int
    steps: int
    #: Centres of the orbits and phases, one row per vortex: x, y, angle.
    vortices: tuple[tuple[float, float, float], ...]
    #: Radii of a vortex and of its orbit, in root blocks.
    core: float = 0.96
    orbit: float = 3.0
    dimensions: int = 2
    periodic: bool = True

    @property
    def roots(self) -> tuple[int, int, int]:
        """The root grid."""
        return self.base, self.base, 1

    def centres(self, step: int) -> Floats:
        """Where the vortices are; they go half round in all steps."""
        x, y, angle = np.array(self.vortices).T
        turned = angle + np.pi * step / max(1, self.steps)
        centre: Floats = np.stack([x + self.orbit / self.base * np.cos(turned), y + self.orbit / self.base * np.sin(turned)], 1) % 1.0
        return centre

    def blocks(self, step: int) -> Blocks:
        """The mesh around the vortices."""

        def near(level: int, low: Floats, high: Floats) -> np.ndarray:
            margin = np.sqrt(2.0) / (2 * self.base) if level == 0 else 0.0
            return self._distance(low, high, step) <= self.core / self.base + margin

        return refined(self.roots, 2, near)

    def heat(self, blocks: Blocks, step: int) -> Floats:
        """exp(−(d/core)²) for blocks whose middle is d away from the nearest vortex."""
        low, high = corners(blocks.level, blocks.place, self.base)
        middle = (low + high) / 2
        found: Floats = np.exp(-((self._distance(middle, middle, step) * self.base / self.core) ** 2))
        return found

    def _distance(self, low: Floats, high: Floats, step: int) -> Floats:
        """The distance of boxes from the nearest centre, around the periodic boundary too."""
        nearest = np.full(len(low), np.inf)
        for centre in self.centres(step):
            away = np.zeros(len(low))
            for axis in range(2):
                middle, half = (low[:, axis] + high[:, axis]) / 2, (high[:, axis] - low[:, axis]) / 2
                gap = np.abs((middle - centre[axis] + 0.5) % 1.0 - 0.5) - half
                away += np.maximum(gap, 0.0) ** 2
            nearest = np.minimum(nearest, away)
        return np.sqrt(nearest)


Scene = Sedov | Orszag


def sedov(ranks: int, steps: int, rng: np.random.Generator) -> Sedov:
    """The blast wave for 128, 512 or 4,096 ranks, with two to four blocks per rank."""
    base, start, end = {128: (4, 0.3, 0.45), 512: (8, 0.7, 1.15), 4096: (16, 2.2, 3.4)}[ranks]
    x, y, z = 0.45 + 0.1 * rng.random(3)
    return Sedov(base, start, end, steps, (float(x), float(y), float(z)))


def orszag(ranks: int, steps: int, rng: np.random.Generator) -> Orszag:
    """The vortices for 128, 512 or 4,096 ranks."""
    base, count = {128: (16, 2), 512: (32, 8), 4096: (96, 32)}[ranks]
    drawn = rng.random((count, 3)) * (1, 1, 2 * np.pi)
    return Orszag(base, steps, tuple((float(x), float(y), float(angle)) for x, y, angle in drawn))


def costs(scene: Scene, blocks: Blocks, step: int, rng: np.random.Generator) -> Floats:
    """Microseconds of each block in one step: base × (1 + 2 · heat) × lognormal of mean 1."""
    sigma = np.sqrt(np.log1p(NOISE**2))
    return rounded(BASE_US * (1 + HOT * scene.heat(blocks, step)) * np.exp(sigma * rng.standard_normal(len(blocks)) - sigma * sigma / 2))


def rounded(costs: Floats) -> Floats:
    """Costs as multiples of 1/1024 µs."""
    return np.rint(costs * PER_US) / PER_US


#: Boxes of 2 to 4 blocks per rank, which the number of ranks does not divide.
BOXES = {8: (8, 5, 1), 128: (7, 7, 7), 512: (8, 7, 31), 4096: (16, 14, 62)}
DISTRIBUTIONS = ("gaussian", "exponential", "power-law", "lognormal")


def box(ranks: int) -> Blocks:
    """A mesh of one level."""
    shape = BOXES[ranks]
    place = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), -1).reshape(-1, 3)
    return Blocks.of(np.zeros(len(place), np.int64), place, 2 if shape[2] == 1 else 3)


def drawn_costs(distribution: str, count: int, rng: np.random.Generator) -> Floats:
    """Independent costs: Gaussian(10, 0.5), exponential of mean 10, density x⁻³ on [1, 100], or lognormal(3, 1) clipped to [15, 80]."""
    if distribution == "gaussian":
        return np.maximum(10 + 0.5 * rng.standard_normal(count), 0.1)
    if distribution == "exponential":
        return 10 * rng.standard_exponential(count)
    if distribution == "power-law":
        return np.minimum((1 - rng.random(count)) ** -0.5, 100.0)
    return np.clip(np.exp(3 + rng.standard_normal(count)), 15.0, 80.0)
