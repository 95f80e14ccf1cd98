"""PDHG in analogue memory: the matrix is written into crossbars once, and every iteration reads it twice.

M = [[0, K], [Kᵀ, 0]] is programmed, so that one array serves both products: M·(y; 0) holds Kᵀy and M·(0; x) holds Kx. Its largest
eigenvalue is K's norm and is found by Lanczos through the same noisy reads, with a margin. Noise is met by step margins, averages,
restarts and errors that are taken digitally.

From the paper: the symmetric matrix, programming once, in-memory norm, the device table. Our design: the loop of `analog_loop`, replicate
reads, error correction by a second array, and the polish.

From GPUs to RRAMs: Distributed In-Memory Primal-Dual Hybrid Gradient Method for Solving Large-Scale Linear Optimization Problem. arXiv
2509.21137, 2025.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Kind, Level
from armillary.crossbar import Converters, Crossbar
from armillary.crossbar.cells import device as find_device

from . import analog_loop
from .method import Method
from .problem import Array, LinearProgram, Solution
from .scaled import scaled

#: Most steps of Lanczos, and how close its bound must come to end it earlier.
_LANCZOS, _CLOSE = 100, 1e-7


@dataclass(frozen=True)
class RramPdhg(Method):
    """PDHG whose products are reads of memory arrays."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "objective_error", by=Level(at_most=1e-2), on=Kind("analog"), honest=(None, 1e-2), part=5e-2,
            says="accuracy comparable with a GPU's",
            why="the paper shows errors of its own instances; a hundredth of the objective is what its figures come to",
        ),
        Claim(
            "energy_J", over="r2hpdhg", by=Gain(ratio=(1e3, None)), on=Kind("analog"), aggregate="max", honest=(300, None), part=10,
            says="up to a thousand times less energy than a GPU", why="programming counts too, once, on programs of hundreds of rows",
        ),
        Claim(
            "energy_J", over=("highs-simplex", "highs-ipm"), by=Gain(ratio=(1.0, None)), on=Kind("analog"),
            says="less energy than one core of a CPU that runs the better of HiGHS's methods (ours: at these sizes the harder rival)",
        ),
        Claim(
            "latency_s", over="r2hpdhg", by=Gain(ratio=(1e3, None)), on=Kind("analog"), aggregate="max", honest=(300, None), part=10,
            says="up to a thousand times faster than a GPU", why="programming counts too, once, on programs of hundreds of rows",
        ),
    )  # fmt: skip

    device: str = field(default="EpiRAM", metadata={"doc": "kind of cell"})
    tile: int = field(default=256, metadata={"doc": "rows and columns of an array", "range": (1, 4096)})
    correct: int = field(default=1, metadata={"doc": "further arrays that hold what the first ones missed", "range": (0, 2)})
    verify: int = field(default=10, metadata={"doc": "most corrections of a cell when writing", "range": (0, 100)})
    replicates: int = field(default=1, metadata={"doc": "reads averaged for each product", "range": (1, 64)})
    converter_bits: int = field(default=8, metadata={"doc": "bits of the converters in and out; 0 is exact", "range": (0, 16)})
    ideal: bool = field(default=False, metadata={"doc": "cells without noise and with unlimited levels"})
    polish: bool = field(default=False, metadata={"doc": "finish digitally by r2hpdhg from where noise stops it"})
    tolerance: float = field(default=1e-4, metadata={"doc": "relative residuals and gap that end it", "range": (1e-12, 0.1)})
    most: int = field(default=20_000, metadata={"doc": "most iterations", "range": (1, None)})
    ray_tolerance: float = field(
        default=1e-8, metadata={"doc": "what a proof of infeasibility may lack, of its value", "range": (0.0, 1.0)}
    )

    def solve(self, lp: LinearProgram, comm: Any = None) -> Solution:
        """The solution; with `comm` the arrays are dealt over its ranks, and all ranks call together and get the same."""
        start = time.perf_counter()
        quick = self.without_rows_or_columns(lp)
        if quick is not None:
            return quick
        p = scaled(lp, norms=False)
        m, n = p.matrix.shape
        symmetric = np.zeros((m + n, m + n))
        symmetric[:m, m:] = p.matrix.toarray()
        symmetric[m:, :m] = symmetric[:m, m:].T
        seed = self.rng.integers(2**31, size=1)
        if comm is not None:
            # All ranks must take the same steps.
            seed = comm.bcast(seed)
        rng = np.random.default_rng(int(seed[0]))
        kind = find_device(self.device)
        bits = self.converter_bits or None
        bar = Crossbar(
            symmetric, kind.ideal() if self.ideal else kind, self.tile, Converters(bits, bits), self.correct, self.verify,
            int(seed[0]), comm=comm,
        )  # fmt: skip
        noise = 0.0 if self.ideal else kind.read_noise
        norm = self._norm(bar, rng) * (1.05 * (1 + 3 * noise) if not self.ideal else 1.001)

        def forward(x: Array) -> Array:
            return bar.multiply(np.concatenate([np.zeros(m), x]), self.replicates)[:m]

        def backward(y: Array) -> Array:
            bar.bill.digital(2 * (m + n))
            return bar.multiply(np.concatenate([y, np.zeros(n)]), self.replicates)[m:]

        found = analog_loop.run(lp, p, forward, backward, norm, self.tolerance, self.most, self.ray_tolerance, stall=True)
        bar.bill.digital(2 * p.matrix.nnz * max(1, len(found.history)))
        answer = self.solution(lp, found.status, found.x, found.y, found.errors, found.iterations, start, found.ray, found.history)
        answer = replace(answer, energy=bar.bill)
        return self._polished(lp, answer) if self.polish and answer.status in ("noise floor", "limit") else answer

    def _norm(self, bar: Crossbar, rng: np.random.Generator) -> float:
        """M's largest eigenvalue by Lanczos, all vectors kept orthogonal digitally."""
        q = rng.normal(size=bar.shape[0])
        basis = [q / np.linalg.norm(q)]
        diagonal: list[float] = []
        beside: list[float] = []
        norm = short = 0.0
        for _ in range(min(_LANCZOS, bar.shape[0])):
            w = bar.multiply(basis[-1], self.replicates)
            diagonal.append(float(w @ basis[-1]))
            for known in basis:
                w = w - (w @ known) * known
            size = float(np.linalg.norm(w))
            beside.append(size)
            k = len(diagonal)
            values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside[: k - 1], 1) + np.diag(beside[: k - 1], -1))
            # Ritz values lie inside the spectrum; the residual says by how much the largest may fall short.
            norm, short = float(max(-values[0], values[-1])), size * float(abs(vectors[-1, -1]))
            if short <= _CLOSE * norm:
                break
            basis.append(w / size)
        return norm + short or 1.0

    def _polished(self, lp: LinearProgram, answer: Solution) -> Solution:
        from .r2hpdhg import R2Hpdhg

        digital = R2Hpdhg(tolerance=self.tolerance).solve(lp, (answer.x, answer.y))
        answer.energy.digital(digital.iterations * (2 * lp.matrix.nnz + sum(lp.shape)))
        return replace(digital, iterations=answer.iterations + digital.iterations, energy=answer.energy, method=type(self).__name__)
