"""What a mesh looks like to an assembler: 36 numbers and two small pictures, cheap beside one assembly.

One pass over the cells counts valences and collects the elements at some 500 nodes; what needs neighbours (row lengths, boundary, profile)
is taken from those, what needs pairs of nodes from some 4,000 elements spread over the mesh. Row lengths are exact for these nodes, the
largest valence and the counts for all. The last four numbers tell the order of nodes and elements apart, which decides what stays in a
cache: how many elements pass between two uses of a node, how many between its first and its last, and how many nodes and cache lines of
nodes a run of 512 elements touches. Features and pictures are our design, after the published outline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop

from ..assembling.strategy import Problem
from ..coloured import colour
from ..elements.elements import MASS, flops_per_element

#: Raised whenever a feature changes its meaning: weights of another version are refused.
VERSION = 2
NAMES = (
    "nodes", "elements", "nodes per element", "unknowns per node", "dimension", "valence mean", "valence deviation", "valence most",
    "valence p95", "row mean", "row deviation", "row most", "row gini", "bandwidth", "distance mean", "profile", "gap", "in one line",
    "in one page", "colours of a sample", "volume ratio", "boundary share", "components", "unused share", "points of integration",
    "matrix bytes", "map bytes", "flops per element", "threads", "distance mean absolute", "at hubs", "colours over valence",
    "reuse distance", "use span", "nodes in a run", "lines in a run",
)  # fmt: skip
SIDE = 64
_NODES, _ELEMENTS, _COLOURED, _WINDOW = 512, 4096, 10_000, 128
#: Elements of a run, and how many numbers of nodes share a cache line of 64 bytes in an array of float64.
_RUN, _LINE = 512, 8


@dataclass(frozen=True)
class Features:
    """`numbers` float64[36], log-scaled, in the order of NAMES; `pictures` float32[2, 64, 64]: the whole pattern and within windows."""

    numbers: np.ndarray
    pictures: np.ndarray

    def __getitem__(self, name: str) -> float:
        return float(self.numbers[NAMES.index(name)])


def features(problem: Problem) -> Features:
    """Computes the features of a problem; they are deterministic and need no symbolic phase."""
    import numba

    work, nodes, elements, a = problem.work, problem.nodes, problem.elements, problem.element.nodes
    valence = _valences(work.cells, nodes)
    used = valence[valence > 0]
    hub = int(valence.argmax())
    sample = np.unique(np.append(np.linspace(0, nodes - 1, min(_NODES, nodes)).astype(np.int64), hub))
    sample = sample[valence[sample] > 0]
    # A hub's elements say nothing about the other rows; its row is counted, its faces are not.
    lengths, spans, boundary, reuse, extents = _neighbourhoods(work.cells, nodes, sample, valence, problem.element.dimension)
    step = max(1, elements // _ELEMENTS)
    some = work.cells[::step][:_ELEMENTS]
    low, high = some.min(axis=1), some.max(axis=1)
    gaps = np.abs(np.diff(work.cells[: _ELEMENTS * 4].min(axis=1).astype(np.int64)))
    far = np.abs(some[:, :, None].astype(np.int64) - some[:, None, :]).mean()
    colours = _sampled_colours(work.cells, nodes)
    volumes = _volumes(work.points, some, problem.element.dimension)
    ordinary = sample != hub if len(sample) > 1 else np.ones(1, np.bool_)
    rows = lengths[ordinary]
    most_row = float(lengths.max())
    dofs = work.dofs
    entries = float(rows.mean()) * len(used)
    mean = float(used.mean())
    log = np.log1p
    numbers = [
        log(nodes), log(elements), a, dofs, problem.element.dimension, log(mean), log(float(used.std())), log(float(used.max())),
        log(float(np.percentile(used[:: max(1, len(used) // 20_000)], 95))), log(float(rows.mean())), log(float(rows.std())), log(most_row),
        _gini(lengths), log(float((high - low).max())), far / nodes, float(spans.mean()) / nodes,
        log(float(gaps.mean()) if len(gaps) else 0.0),
        float((low // 16 == high // 16).mean()), float((low // 512 == high // 512).mean()), log(colours),
        log(float(volumes.max() / max(np.median(volumes), 1e-300))), float(boundary.mean()), log(_components(work.cells, nodes)),
        1 - len(used) / nodes, log(work.slope.shape[0]) + (1.0 if work.form & MASS else 0.0), log(entries * 8 * dofs * dofs),
        log(elements * a * a * 4.0), log(flops_per_element(problem.element, work.form)), numba.get_num_threads(), log(far),
        float((valence[some] > 4 * mean).any(axis=1).mean()), colours / float(used.max()), float(reuse[ordinary].mean()),
        float(extents[ordinary].mean()), *_in_a_run(work.cells),
    ]  # fmt: skip
    return Features(np.array(numbers, np.float64), pictures(work.cells, nodes))


def pictures(cells: np.ndarray, nodes: int) -> np.ndarray:
    """Returns where the pattern's entries lie, float32[2, 64, 64]: over the whole matrix, and relative to windows of 128 elements; log
    scale.
    """
    counts = np.zeros((2, SIDE, SIDE))
    step = max(1, len(cells) // _ELEMENTS)
    _histogram(cells[::step], 0, nodes, counts[0])
    windows = np.unique(np.linspace(0, max(0, len(cells) - _WINDOW), 32).astype(np.int64))
    for start in windows:
        block = cells[start : start + _WINDOW]
        first = int(block.min())
        _histogram(block, first, int(block.max()) - first + 1, counts[1])
    top = counts.max(axis=(1, 2), keepdims=True)
    return (np.log1p(counts) / np.log1p(np.maximum(top, 1))).astype(np.float32)


def _in_a_run(cells: np.ndarray) -> tuple[float, float]:
    """Returns the nodes, and the cache lines of nodes, per element of a run of 512 elements, as a mean over eight runs."""
    starts = np.unique(np.linspace(0, max(0, len(cells) - _RUN), 8).astype(np.int64))
    runs = [np.unique(cells[start : start + _RUN]) for start in starts]
    nodes, lines = sum(map(len, runs)), sum(1 + int(np.count_nonzero(np.diff(run // _LINE))) for run in runs)
    elements = len(starts) * min(_RUN, len(cells))
    return nodes / elements, lines / elements


def _gini(values: np.ndarray) -> float:
    ordered = np.sort(values.astype(np.float64))
    n = len(ordered)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * ordered.sum())) if n and ordered.sum() > 0 else 0.0


def _sampled_colours(cells: np.ndarray, nodes: int) -> int:
    """Colours that the first few thousand elements need: as many as in 1/20 of the mesh, 10,000 at most."""
    count = min(_COLOURED, max(500, len(cells) // 20), len(cells))
    local, used = _compact(cells[:count], nodes)
    return int(colour(local, used, balance=False).max()) + 1


def _volumes(points: np.ndarray, cells: np.ndarray, d: int) -> np.ndarray:
    corners = points[:, cells[:, [0, 1, 2, 3]] if d == 3 and cells.shape[1] != 8 else cells[:, [0, 1, 3, 4]] if d == 3 else cells[:, :3]]
    edges = (corners[:, :, 1:] - corners[:, :, :1]).transpose(1, 0, 2)
    return np.abs(np.linalg.det(edges))


@loop
def _valences(cells, nodes):
    count = np.zeros(nodes, np.int32)
    for e in range(cells.shape[0]):
        for a in range(cells.shape[1]):
            count[cells[e, a]] += 1
    return count


@loop
def _compact(cells, nodes):
    new = np.full(nodes, -1, np.int32)
    local = np.empty(cells.shape, np.int32)
    used = 0
    for e in range(cells.shape[0]):
        for a in range(cells.shape[1]):
            i = cells[e, a]
            if new[i] < 0:
                new[i] = used
                used += 1
            local[e, a] = new[i]
    return local, used


@loop
def _histogram(cells, first, span, counts):
    side = counts.shape[0]
    for e in range(cells.shape[0]):
        for a in range(cells.shape[1]):
            r = (cells[e, a] - first) * side // span
            for b in range(cells.shape[1]):
                counts[r, (cells[e, b] - first) * side // span] += 1


@loop
def _neighbourhoods(cells, nodes, sample, valence, d):
    """Returns, for the sampled nodes, row lengths, i - smallest column, whether a face is on one element only, the mean logarithm of the
    elements between two uses, and that of the elements between the first and the last use.
    """
    a = cells.shape[1]
    slot = np.full(nodes, -1, np.int32)
    start = np.zeros(len(sample) + 1, np.int64)
    for k in range(len(sample)):
        slot[sample[k]] = k
        start[k + 1] = start[k] + valence[sample[k]]
    at, found = start[:-1].copy(), np.empty(start[-1], np.int64)
    for e in range(cells.shape[0]):
        for b in range(a):
            k = slot[cells[e, b]]
            if k >= 0:
                found[at[k]] = e
                at[k] += 1
    lengths, spans = np.zeros(len(sample), np.int64), np.zeros(len(sample), np.int64)
    boundary = np.zeros(len(sample), np.int64)
    reuse, extents = np.zeros(len(sample)), np.zeros(len(sample))
    seen = np.full(nodes, -1, np.int32)
    corners = d + 1 if a != 2**d else a
    for k in range(len(sample)):
        low = sample[k]
        shared = 0
        for t in range(start[k], start[k + 1]):
            for b in range(a):
                j = cells[found[t], b]
                if seen[j] != k:
                    seen[j] = k
                    lengths[k] += 1
                low = min(low, j)
            if t - start[k] < 64 and start[k + 1] - start[k] <= 64:
                # Faces at the node that two of its elements have, each pair once.
                for u in range(start[k], t):
                    common = 0
                    for b in range(corners):
                        for c in range(corners):
                            if cells[found[t], b] == cells[found[u], c]:
                                common += 1
                    if common >= (d if a != 2**d else 2 ** (d - 1)) and common < corners:
                        shared += 1
        spans[k] = sample[k] - low
        own = start[k + 1] - start[k]
        for t in range(start[k] + 1, start[k + 1]):
            reuse[k] += np.log1p(found[t] - found[t - 1]) / (own - 1)
        extents[k] = np.log1p(found[start[k + 1] - 1] - found[start[k]])
        # A corner of a simplex is on d of its faces (of a box too); inside, each is shared by two.
        boundary[k] = 1 if own <= 64 and 2 * shared < d * own else 0
    return lengths, spans, boundary, reuse, extents


@loop
def _components(cells, nodes):
    parent = np.arange(nodes).astype(np.int32)
    used = np.zeros(nodes, np.bool_)
    joins = 0
    for e in range(cells.shape[0]):
        x = cells[e, 0]
        used[x] = True
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        for a in range(1, cells.shape[1]):
            y = cells[e, a]
            used[y] = True
            while parent[y] != y:
                parent[y] = parent[parent[y]]
                y = parent[y]
            if x != y:
                joins += 1
                if x < y:
                    parent[y] = x
                else:
                    parent[x] = y
                    x = y
    return used.sum() - joins
