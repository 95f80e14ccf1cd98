"""IEB identifies, exchanges and builds: a permutation moves every entry once, so every entry is sent once.

Each rank works out where each of its entries goes: the index vectors, dealt over all ranks, are inverted by one all-to-all and brought to
the grid rows and columns that need them. Two passes without locks pack the entries by destination, one all-to-all moves them, and each
rank builds its new block from what came. Extraction and assignment identify differently and share the rest. The multiplication route
broadcasts blocks of the matrix and of the permutations in √p stages, twice.

The paper's abstract gives the three steps and the two passes without synchronisation. In our design, pairs go straight to the rank that
answers for an index inside the grid row that needs it, so that inversion, the check and the first half of the allgather are one exchange,
and short columns are sorted by ranks instead of insertion.

Distributed-memory Algorithms for Sparse Matrix Permutation, Extraction, and Assignment. arXiv 2509.20776, 2025 (HipPerm, HipExtract,
HipAssign).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from armillary.arena import Claim, Exponent, Gain, Kind
from armillary.parameters import parameter

from .rearranging.method import Method, Operation

if TYPE_CHECKING:
    from scipy.sparse import csc_array

    from armillary.comm.communicator import Communicator

    from .distribution.distributed import DistributedMatrix

_WHY = "the paper gives no single number; twice is what the counts of words lead to expect"


@dataclass(frozen=True)
class Ieb(Method):
    """Sends every entry to its new owner in one all-to-all, on a grid that is as square as the ranks allow."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "bytes_per_rank", over="spgemm", by=Gain(ratio=(2.0, None)), on=(Kind("moved", "p16"), Kind("moved", "p64")), part=1.0,
            says="reduces communication compared to SpGEMM-based methods, on 16 ranks and on 64", why=_WHY,
        ),
        Claim(
            "bytes_per_rank", by=Exponent("ranks", at_most=-0.5), on=Kind("moved"),
            says="sends less the more ranks there are, falling faster than the 1/√p of SpGEMM-based methods",
        ),
        Claim(
            "seconds", over="spgemm", by=Gain(ratio=(2.0, None)), on=Kind("measured"), part=1.0,
            says="substantially better performance than CombBLAS, for every operation",
            why="the paper gives no figure, and CombBLAS's method uses SciPy's products here",
        ),
        Claim(
            "seconds", over="row-blocks", by=Gain(ratio=(1.2, None)), on=Kind("measured", "rmat"), part=1.0,
            says="substantially better performance than PETSc, on graphs with heavy rows",
            why="PETSc's distribution runs here with the same kernels, so that nothing else differs",
        ),
        Claim(
            "simulated_seconds", over="spgemm", by=Gain(ratio=(1.0, None)), on=Kind("simulated", "many"), scale="large",
            says="scales to many ranks, where it is still faster than SpGEMM-based methods (1,024 ranks)",
        ),
    )  # fmt: skip

    threads: int = parameter(1, "the number of threads per rank", range=(1, 64))
    max_message_bytes: int = parameter(1 << 30, "the largest send buffer of one round, in bytes", range=(1, 1 << 40))

    def _grid(self, p: int) -> tuple[int, int] | None:
        return None

    def deal(self, matrix: csc_array, comm: Communicator) -> DistributedMatrix:
        from .distribution.distributed import DistributedMatrix

        return DistributedMatrix.from_scipy(matrix, comm, self._grid(comm.size))

    def apply(self, dealt: DistributedMatrix, operation: Operation, batches: list[Any]) -> DistributedMatrix:
        from .distribution.distributed import DistributedMatrix
        from .rearranging.operations import assign, extract, permute

        how: dict[str, Any] = {"threads": self.threads, "max_message_bytes": self.max_message_bytes}
        if operation.name == "permute":
            return permute(dealt, operation.rows, operation.cols, **how)
        if operation.name == "extract":
            return extract(dealt, operation.rows, operation.cols, **how)
        for (rows, cols, _), batch in zip(operation.batches, batches):
            # The batch stands on the same ranks in a grid of its own.
            here = DistributedMatrix(dealt.grid, batch.shape, batch.block)
            dealt = assign(dealt, rows, cols, here, **how)
        return dealt

    def entries(self, dealt: DistributedMatrix) -> int:
        return dealt.block.nnz

    def collect(self, dealt: DistributedMatrix) -> csc_array | None:
        return dealt.to_scipy(root=0)
