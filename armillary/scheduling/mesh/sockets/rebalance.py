"""A running MPI job balances its own blocks: costs are gathered, chunks are solved on the first ranks, and everyone learns the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.comm import Communicator
from armillary.scheduling.mesh.cdp import chunks, solve_chunk
from armillary.scheduling.mesh.cplx import Cplx, rebalanced
from armillary.scheduling.mesh.octree.mesh import Ints
from armillary.scheduling.mesh.placement.policy import checked


def rebalance(comm: Any, my_costs: npt.ArrayLike, policy: Cplx | None = None) -> Ints:
    """The new rank of every block of the job, on every rank; each rank calls it with the costs of its own blocks.

    comm: an mpi4py communicator, or one of `armillary.comm`. The blocks of rank 0 come first on the curve, then those of rank 1, and so on
    (give every rank its piece of the curve, in order). CDP's chunks are solved on ranks 0 to c − 1; the answer equals that of `place`.
    """
    how = policy or Cplx()
    ranks: Any = comm if isinstance(comm, Communicator) else Communicator.adopt(comm)
    mine = np.ascontiguousarray(my_costs, np.float64).reshape(-1)
    costs = checked(ranks.allgatherv(mine), ranks.size)
    sizes, bounds = chunks(costs, ranks.size, how.chunk)
    piece = np.empty(0, np.int64)
    if ranks.rank < len(sizes):
        q = ranks.rank
        begin, end = int(bounds[q]), int(bounds[q + 1])
        whole = np.empty(len(costs), np.int64)
        prefix = np.concatenate([[0.0], np.cumsum(costs)])
        solve_chunk(costs, prefix, begin, end - begin, int(sizes[:q].sum()), int(sizes[q]), how.even == "equal", whole)
        piece = np.ascontiguousarray(whole[begin:end])
    placement: Ints = ranks.allgatherv(piece)
    if ranks.rank == 0:
        placement = rebalanced(costs, placement, ranks.size, how.x, how.threshold, how.alternatives)
    ranks.bcast(placement)
    return placement
