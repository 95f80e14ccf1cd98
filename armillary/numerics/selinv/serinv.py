"""Serinv does selected inversion over many ranks, each with a stretch of the chain of blocks.

Every rank eliminates the inside of its stretch alone. The first rank goes down its stretch as one process would; every other keeps its
first block too, and carries a row of fill that couples it to the block being eliminated. What is left, two blocks per rank, is a small
matrix of the same structure with 2p−1 blocks; it is factored and inverted, and each rank walks back up through its stretch to exactly the
blocks that are wanted. The tip of the arrow is the sum of the original and of every rank's update.

The paper gives the partitions, the fill, the reduced system and blocks on GPUs. Only its abstract could be had, so the nested strategy, the
balance from flop counts, and the buffers of the streaming path are our design.

Parallel Selected Inversion of Block-tridiagonal with Arrowhead Matrices. IEEE CLUSTER 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from armillary.arena import Claim, Gain, Kind
from armillary.errors import InputError
from armillary.parameters import parameter

from .blocks.block_arrow import BlockArrow
from .blocks.partitions import Part
from .inversion.factorisation import factor, selected_inverse
from .inversion.method import Answer, Method, Problem

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from armillary.comm import Communicator

_STAND_IN = "for PARDISO and MUMPS: a general sparse selected inversion on one core, without supernodes"


@dataclass(frozen=True)
class Serinv(Method):
    """Partitions of the chain, a reduced system of 2p−1 blocks, and the way back."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "seconds", over="takahashi", by=Gain(ratio=(2.6, None)), on=Kind("measured", "spatio-temporal", "cpu"),
            says="2.6 times faster than PARDISO's selected inversion on CPUs, here with 2 processes rather than 16", stand_in=_STAND_IN,
        ),
        Claim(
            "seconds", over="takahashi", by=Gain(ratio=(71.4, None)), on=Kind("gpu", "spatio-temporal"), honest=(35.0, None), part=10.0,
            says="71.4 times faster on a GPU than PARDISO's selected inversion on CPUs", stand_in=_STAND_IN,
            why="one GPU and one core stand for 16 of each",
        ),
        Claim(
            "seconds", over="solve-columns", by=Gain(ratio=(14.0, None)), on=Kind("measured", "spatio-temporal", "cpu"),
            says="14 times faster than MUMPS's selected inversion", stand_in="for MUMPS: sparse LU and solves with all unit vectors",
        ),
        Claim(
            "seconds", over="solve-columns", by=Gain(ratio=(380.9, None)), on=Kind("gpu", "spatio-temporal"),
            says="380.9 times faster on a GPU than MUMPS's selected inversion on CPUs",
            stand_in="for MUMPS: sparse LU and solves with all unit vectors",
        ),
    )  # fmt: skip

    ranks: int = parameter(0, "the number of ranks for which the chain is cut; 0 takes that of the case", range=(0, 4096))
    strategy: Literal["auto", "allgather", "gather-scatter", "nested"] = parameter("auto", "who factors the reduced system")
    balance: float = parameter(0.0, "blocks of rank 0 over blocks of another rank; 0 takes the ratio of flops", range=(0.0, 1000.0))

    def invert(self, problem: Problem) -> Answer:
        return self.on_ranks(problem, "threads")

    def on_ranks(self, problem: Problem, backend: str, **options: Any) -> Answer:
        """Inverts on ranks of a backend of `armillary.comm`; `virtual` gives simulated seconds."""
        ranks = self.ranks or problem.ranks
        if 2 * ranks - 1 > problem.blocks.n:
            raise InputError(f"found {ranks} ranks for {problem.blocks.n} blocks; expected 2·ranks − 1 ≤ blocks", where="serinv.ranks")
        if ranks == 1 and backend == "threads":
            f = factor(problem.blocks, check=False)
            return Answer(selected_inverse(f, overwrite=True).blocks(), f.logdet())
        from armillary import comm

        result = comm.run(_program, problem.blocks, self.strategy, self.balance or "auto", ranks=ranks, backend=backend, **options)
        most = max(sum(phase.bytes for phase in counters.values()) for counters in result.counters)
        parts, logdet = [part for part, _ in result.values], result.values[0][1]
        simulated = result.seconds if backend == "virtual" else None
        return Answer(_Parts(parts, problem.blocks.sizes), logdet, bytes_per_rank=most, simulated_s=simulated)


def _program(comm: Communicator, blocks: BlockArrow, strategy: str, balance: float | str) -> tuple[Part, float]:
    f = factor(blocks, comm, strategy=strategy, balance=balance, check=False)
    return selected_inverse(f, overwrite=True).part, f.logdet()


@dataclass(frozen=True)
class _Parts:
    """The blocks where the ranks left them: put together only where they are looked at."""

    parts: list[Part]
    sizes: tuple[int, ...]

    def to_sparse(self) -> csr_array:
        from armillary import arrays

        xp = arrays.namespace(self.parts[0].diagonal)
        diagonal, lower, arrow = (xp.concat([getattr(part, name) for part in self.parts]) for name in ("diagonal", "lower", "arrow"))
        return BlockArrow(diagonal, lower, arrow, self.parts[0].tip, self.sizes).to_sparse()
