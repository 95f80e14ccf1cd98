"""PDHG in analogue memory: the matrix is written into crossbars once, and every iteration reads it twice.

M = [[0, K], [Kᵀ, 0]] is programmed, so that one array serves both products: M·(y; 0) holds Kᵀy and M·(0; x) holds Kx. Its largest
eigenvalue is K's norm, which Lanczos finds through the same noisy reads, with a margin. Step margins, averages, restarts and digitally
computed errors deal with the noise.

The symmetric matrix, programming once, the in-memory norm and the device table come from the paper. The loop of `analog_loop`, replicate
reads, error correction by a second array, and the polish are our design.

From GPUs to RRAMs: Distributed In-Memory Primal-Dual Hybrid Gradient Method for Solving Large-Scale Linear Optimization Problem. arXiv
2509.21137, 2025.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Kind, Level
from armillary.crossbar import Converters, Crossbar
from armillary.crossbar.cells import device as find_device
from armillary.parameters import parameter

from .first_order import analog_loop
from .first_order.scaled import scaled
from .first_order.sums import dot, length, top_of_tridiagonal
from .program.method import Method
from .program.problem import Array, LinearProgram, Solution

#: The largest number of Lanczos steps, and the relative bound at which they end earlier.
_LANCZOS, _CLOSE = 100, 1e-7
#: The digital methods whose iterations the arena prices on a GPU.
_ON_GPU = ("r2hpdhg", "pdlp-average", "pdhg")


@dataclass(frozen=True)
class RramPdhg(Method):
    """PDHG whose products are reads of memory arrays."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "objective_error", by=Level(at_most=1e-2), on=Kind("analog"), honest=(None, 1e-2), part=5e-2,
            says="accuracy comparable with a GPU's",
            why="the paper shows the errors of its own instances, which amount to about a hundredth of the objective",
        ),
        Claim(
            "energy_J", over=_ON_GPU, by=Gain(ratio=(1e3, None)), on=Kind("analog"), aggregate="max", honest=(300, 1e4), part=10,
            says="up to a thousand times less energy than a GPU",
            why="programming the cells counts too, once per program, and the best first-order method on the GPU is the rival; more than "
            "ten times the published figure shows that our programs are not the paper's",
        ),
        Claim(
            "latency_s", over=_ON_GPU, by=Gain(ratio=(1e3, None)), on=Kind("analog"), aggregate="max", honest=(300, 1e4), part=10,
            says="up to a thousand times faster than a GPU",
            why="programming the cells counts too, once per program, and the best first-order method on the GPU is the rival; more than "
            "ten times the published figure shows that our programs are not the paper's",
        ),
    )  # fmt: skip

    device: str = parameter("EpiRAM", "the kind of memory cell")
    tile: int = parameter(256, "the number of rows and columns of an array", range=(1, 4096))
    correct: int = parameter(1, "the number of further arrays, which hold what the first ones missed", range=(0, 2))
    verify: int = parameter(10, "the largest number of corrections of a cell when it is written", range=(0, 100))
    replicates: int = parameter(1, "the number of reads that are averaged for each product", range=(1, 64))
    converter_bits: int = parameter(8, "bits of the input and output converters; 0 means exact", range=(0, 16))
    ideal: bool = parameter(False, "whether cells have no noise and unlimited levels")
    polish: bool = parameter(False, "whether r2hpdhg finishes digitally from the point at which noise stops the method")
    tolerance: float = parameter(1e-4, "relative residuals and gap at which the method stops", range=(1e-12, 0.1))
    most: int = parameter(20_000, "the largest number of iterations", range=(1, None))
    ray_tolerance: float = parameter(1e-8, "largest violation of a proof of infeasibility, relative to its value", range=(0.0, 1.0))

    def solve(self, lp: LinearProgram, comm: Any = None) -> Solution:
        """Solves the program. With `comm` the arrays are distributed over its ranks, all of which make the call and get the same answer."""
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
        """Returns M's largest eigenvalue by Lanczos, all vectors kept orthogonal digitally."""
        q = rng.normal(size=bar.shape[0])
        basis = [q / length(q)]
        diagonal: list[float] = []
        beside: list[float] = []
        norm = short = 0.0
        for _ in range(min(_LANCZOS, bar.shape[0])):
            w = bar.multiply(basis[-1], self.replicates)
            diagonal.append(dot(w, basis[-1]))
            for known in basis:
                w = w - dot(w, known) * known
            size = length(w)
            beside.append(size)
            top, last = top_of_tridiagonal(diagonal, beside[:-1])
            bottom, _ = top_of_tridiagonal([-value for value in diagonal], beside[:-1])
            # Ritz values lie inside the spectrum, and the residual bounds by how much the largest one falls short.
            norm, short = max(bottom, top), size * last
            if short <= _CLOSE * norm:
                break
            basis.append(w / size)
        return norm + short or 1.0

    def _polished(self, lp: LinearProgram, answer: Solution) -> Solution:
        from .r2hpdhg import R2Hpdhg

        digital = R2Hpdhg(tolerance=self.tolerance).solve(lp, (answer.x, answer.y))
        answer.energy.digital(digital.iterations * (2 * lp.matrix.nnz + sum(lp.shape)))
        return replace(digital, iterations=answer.iterations + digital.iterations, energy=answer.energy, method=type(self).__name__)
