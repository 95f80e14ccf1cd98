"""Example graphs: factorisations, stencils, and the shapes of scientific workflows. Random ones are seeded.

Without data they only carry costs and run on virtual workers (on other executors their bodies do nothing).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError
from armillary.tasks.graph import Graph, Task

if TYPE_CHECKING:
    from armillary.tasks.data import Data, Piece


def _count(what: str, *values: int) -> None:
    for value in values:
        if not isinstance(value, int) or not 1 <= value <= 10_000_000:
            raise InputError(f"{what}: found {value!r}; expected a whole number from 1")


def cholesky(nt: int, matrix: np.ndarray | None = None, *, cost: float = 1.0, tile_bytes: int = 0) -> Graph:
    """Right-looking tiled Cholesky of nt × nt tiles: nt potrf, nt(nt−1)/2 trsm, nt(nt−1)/2 syrk, nt(nt−1)(nt−2)/6 gemm.

    With `matrix` (symmetric positive definite, with a size that is a multiple of nt) the tasks have bodies, and data "A" ends as the lower
    factor below and on the diagonal. `cost` is the seconds of each task on a virtual CPU. Priorities favour the panel of the earliest step.
    """
    _count("cholesky", nt)
    graph = Graph("cholesky")
    bodies: dict[str, Any] = dict.fromkeys(("potrf", "trsm", "syrk", "gemm"))
    tiles: dict[tuple[int, int], Data | Piece] = {}
    if matrix is not None:
        from armillary.tasks import tiles as kernels

        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] % nt:
            raise InputError(f"cholesky: found shape {matrix.shape}; expected a square whose side is a multiple of {nt}")
        bodies = {name: getattr(kernels, name) for name in bodies}
        side = len(matrix) // nt
        whole = graph.data("A", matrix)
        tiles = {(i, j): whole[i * side : (i + 1) * side, j * side : (j + 1) * side] for i in range(nt) for j in range(i + 1)}
    else:
        tiles = {(i, j): graph.data(f"A{i},{j}", nbytes=tile_bytes) for i in range(nt) for j in range(i + 1)}

    def add(name: str, key: str, priority: int, *touched: tuple[int, int]) -> None:
        pieces = [tiles[t] for t in touched]
        graph.add(
            bodies[name], *(pieces if matrix is not None else ()), reads=pieces[:-1], updates=pieces[-1:],
            name=name, key=key, priority=priority, cost=cost,
        )  # fmt: skip

    for k in range(nt):
        add("potrf", f"potrf/{k}", 3 * (nt - k), (k, k))
        for i in range(k + 1, nt):
            add("trsm", f"trsm/{i},{k}", 3 * (nt - k) - 1, (k, k), (i, k))
        for i in range(k + 1, nt):
            add("syrk", f"syrk/{i},{k}", 3 * (nt - k) - 2, (i, k), (i, i))
            for j in range(k + 1, i):
                add("gemm", f"gemm/{i},{j},{k}", 3 * (nt - k) - 2, (i, k), (j, k), (i, j))
    return graph


def lu(nt: int, *, cost: float = 1.0, tile_bytes: int = 0) -> Graph:
    """Tiled LU without pivoting: nt getrf, nt(nt−1) trsm, nt(nt−1)(2nt−1)/6 gemm."""
    _count("lu", nt)
    graph = Graph("lu")
    a = {(i, j): graph.data(f"A{i},{j}", nbytes=tile_bytes) for i in range(nt) for j in range(nt)}
    for k in range(nt):
        graph.add(None, updates=[a[k, k]], name="getrf", cost=cost)
        for i in range(k + 1, nt):
            graph.add(None, reads=[a[k, k]], updates=[a[i, k]], name="trsm", cost=cost)
            graph.add(None, reads=[a[k, k]], updates=[a[k, i]], name="trsm", cost=cost)
        for i in range(k + 1, nt):
            for j in range(k + 1, nt):
                graph.add(None, reads=[a[i, k], a[k, j]], updates=[a[i, j]], name="gemm", cost=cost)
    return graph


def qr(nt: int, *, cost: float = 1.0, tile_bytes: int = 0) -> Graph:
    """Tiled QR with a flat tree: geqrt, ormqr, tsqrt, tsmqr."""
    _count("qr", nt)
    graph = Graph("qr")
    a = {(i, j): graph.data(f"A{i},{j}", nbytes=tile_bytes) for i in range(nt) for j in range(nt)}
    for k in range(nt):
        graph.add(None, updates=[a[k, k]], name="geqrt", cost=cost)
        for j in range(k + 1, nt):
            graph.add(None, reads=[a[k, k]], updates=[a[k, j]], name="ormqr", cost=cost)
        for i in range(k + 1, nt):
            graph.add(None, updates=[a[k, k], a[i, k]], name="tsqrt", cost=cost)
            for j in range(k + 1, nt):
                graph.add(None, reads=[a[i, k]], updates=[a[k, j], a[i, j]], name="tsmqr", cost=cost)
    return graph


def chain(length: int, *, cost: float = 1.0, call: Any = None) -> Graph:
    """A chain of tasks."""
    _count("chain", length)
    graph = Graph("chain")
    last: list[Task] = []
    for _ in range(length):
        last = [graph.add(call, after=last, name="link", cost=cost)]
    return graph


def fork_join(width: int, *, cost: float = 1.0, call: Any = None) -> Graph:
    """One task, `width` tasks that wait for it, and one task that waits for them."""
    _count("fork_join", width)
    graph = Graph("fork-join")
    first = graph.add(call, name="fork", cost=cost)
    middle = [graph.add(call, after=[first], name="work", cost=cost) for _ in range(width)]
    graph.add(call, after=middle, name="join", cost=cost)
    return graph


def stencil(nx: int, ny: int, steps: int, *, cost: float = 1.0, call: Any = None) -> Graph:
    """A grid of nx × ny cells over `steps` steps, where each cell waits for itself and its four neighbours in the previous step."""
    _count("stencil", nx, ny, steps)
    graph = Graph("stencil")
    before: dict[tuple[int, int], Task] = {}
    for _ in range(steps):
        now = {}
        for x in range(nx):
            for y in range(ny):
                near = [(x, y), (x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)]
                now[x, y] = graph.add(call, after=[before[n] for n in near if n in before], name="cell", cost=cost)
        before = now
    return graph


def wavefront(nx: int, ny: int, *, cost: float = 1.0, call: Any = None) -> Graph:
    """A grid in which each cell waits for the cells to its left and above it."""
    _count("wavefront", nx, ny)
    graph = Graph("wavefront")
    tasks = graph.tasks
    for x in range(nx):
        for y in range(ny):
            at = x * ny + y
            graph.add(call, after=[tasks[n] for n, ok in ((at - ny, x), (at - 1, y)) if ok], name="cell", cost=cost)
    return graph


def fft(levels: int, *, cost: float = 1.0) -> Graph:
    """Butterflies over 2**levels points, with one task per point in each of the `levels` stages."""
    _count("fft", levels)
    if levels > 20:
        raise InputError(f"fft: found {levels} levels; expected at most 20")
    graph = Graph("fft")
    row = [graph.add(None, name="point", cost=cost) for _ in range(2**levels)]
    for level in range(levels):
        row = [graph.add(None, after=[row[i], row[i ^ (1 << level)]], name="butterfly", cost=cost) for i in range(2**levels)]
    return graph


def mapreduce(maps: int, reduces: int, *, cost: float = 1.0) -> Graph:
    """Map tasks, and reduce tasks that wait for all of them."""
    _count("mapreduce", maps, reduces)
    graph = Graph("mapreduce")
    first = [graph.add(None, name="map", cost=cost) for _ in range(maps)]
    for _ in range(reduces):
        graph.add(None, after=first, name="reduce", cost=cost)
    return graph


def random_layered(layers: int, width: int, *, degree: int = 2, seed: int = 0, spread: float = 0.5) -> Graph:
    """Layers of `width` tasks, each of which waits for `degree` random ones of the previous layer; costs are log-normal with median 1 s and
    sigma `spread`.
    """
    _count("random_layered", layers, width, degree)
    draws = np.random.default_rng(seed)
    graph = Graph("random-layered")
    row: list[Task] = []
    for _ in range(layers):
        seconds = np.exp(draws.normal(0.0, spread, width))
        picks: Sequence[Any] = _distinct(draws, width, min(degree, width)).tolist() if row else [()] * width
        row = [graph.add(None, after=[row[p] for p in picks[i]], name="work", cost=float(seconds[i])) for i in range(width)]
    return graph


def _distinct(draws: np.random.Generator, count: int, each: int) -> np.ndarray:
    """`count` rows of `each` distinct numbers below `count`, sorted; every choice is equally likely."""
    picks = np.empty((count, 0), np.int64)
    for taken in range(each):
        # A number among the remaining ones, shifted past the taken numbers below it.
        number = draws.integers(0, count - taken, count)
        for column in range(taken):
            number += number >= picks[:, column]
        picks = np.sort(np.column_stack((picks, number)), axis=1)
    return picks


def _fan(graph: Graph, name: str, count: int, after: Sequence[Task], cost: float) -> list[Task]:
    return [graph.add(None, after=after, name=name, cost=cost) for _ in range(count)]


def montage(images: int, *, cost: float = 1.0) -> Graph:
    """The shape of Montage mosaics: it projects each image, fits each pair of neighbours, models once,
    corrects each image, and adds them.
    """
    _count("montage", images)
    graph = Graph("montage")
    projected = _fan(graph, "mProject", images, [], cost)
    fits = [graph.add(None, after=[a, b], name="mDiffFit", cost=cost) for a, b in itertools.pairwise(projected)] or projected
    concat = graph.add(None, after=fits, name="mConcatFit", cost=cost)
    model = graph.add(None, after=[concat], name="mBgModel", cost=cost)
    corrected = [graph.add(None, after=[model, p], name="mBackground", cost=cost) for p in projected]
    table = graph.add(None, after=corrected, name="mImgtbl", cost=cost)
    add = graph.add(None, after=[table, *corrected], name="mAdd", cost=cost)
    graph.add(None, after=[add], name="mViewer", cost=cost)
    return graph


def epigenomics(lanes: int, chunks: int, *, cost: float = 1.0) -> Graph:
    """The shape of Epigenomics: lanes are split into chunks, with a chain of four tasks per chunk and a merge per lane, followed by one
    chain.
    """
    _count("epigenomics", lanes, chunks)
    graph = Graph("epigenomics")
    merged = []
    for _ in range(lanes):
        split = graph.add(None, name="fastqSplit", cost=cost)
        ends = []
        for _ in range(chunks):
            last = split
            for name in ("filterContams", "sol2sanger", "fastq2bfq", "map"):
                last = graph.add(None, after=[last], name=name, cost=cost)
            ends.append(last)
        merged.append(graph.add(None, after=ends, name="mapMerge", cost=cost))
    last = graph.add(None, after=merged, name="mapMergeAll", cost=cost)
    for name in ("maqIndex", "pileup"):
        last = graph.add(None, after=[last], name=name, cost=cost)
    return graph


def cybershake(sites: int, syntheses: int, *, cost: float = 1.0) -> Graph:
    """The shape of CyberShake: strain tensors are extracted per site, with many syntheses per tensor and a peak per synthesis, and two
    collections.
    """
    _count("cybershake", sites, syntheses)
    graph = Graph("cybershake")
    seismograms, peaks = [], []
    for extract in _fan(graph, "ExtractSGT", sites, [], cost):
        for synthesis in _fan(graph, "SeismogramSynthesis", syntheses, [extract], cost):
            seismograms.append(synthesis)
            peaks.append(graph.add(None, after=[synthesis], name="PeakValCalc", cost=cost))
    graph.add(None, after=seismograms, name="ZipSeis", cost=cost)
    graph.add(None, after=peaks, name="ZipPSA", cost=cost)
    return graph
