"""The names of the collective algorithms, and the one that is used by default.

The defaults follow the classic tables of MPICH (Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in
MPICH, 2005), by bytes and ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from armillary.comm.collectives import exchanges, reductions
from armillary.errors import InputError, unknown

Algorithm = Callable[..., None]


ALGORITHMS: dict[str, dict[str, Algorithm]] = {
    "barrier": {"dissemination": reductions.dissemination},
    "bcast": {
        "binomial": exchanges.binomial_bcast,
        "scatter-allgather": exchanges.scatter_allgather,
        "linear": exchanges.linear_bcast,
    },
    "reduce": {"binomial": reductions.binomial_reduce, "linear": reductions.linear_reduce},
    "allreduce": {
        "recursive-doubling": reductions.recursive_doubling,
        "rabenseifner": reductions.rabenseifner,
        "ring": reductions.ring_allreduce,
        "reduce-bcast": reductions.reduce_then_bcast,
        "rank-order": reductions.rank_order,
    },
    "scan": {"recursive-doubling": reductions.doubling_scan, "linear": reductions.linear_scan},
    "exscan": {"recursive-doubling": reductions.doubling_exscan, "linear": reductions.linear_exscan},
    "gather": {"linear": exchanges.linear_gather},
    "scatter": {"linear": exchanges.linear_scatter},
    "allgather": {
        "bruck": exchanges.bruck_allgather,
        "recursive-doubling": exchanges.doubling_allgather,
        "ring": exchanges.ring_allgather,
    },
    "alltoall": {
        "bruck": exchanges.bruck_alltoall,
        "scattered": exchanges.scattered_alltoall,
        "pairwise": exchanges.pairwise_alltoall,
    },
    "alltoallv": {"scattered": exchanges.scattered_alltoall, "pairwise": exchanges.pairwise_alltoall},
    "reduce_scatter": {"pairwise": reductions.pairwise_reduce_scatter, "recursive-halving": reductions.halving_reduce_scatter},
}


def algorithms(collective: str | None = None) -> tuple[str, ...]:
    """Return the names of the algorithms of one collective call, or without an argument the calls that have algorithms."""
    if collective is None:
        return tuple(ALGORITHMS)
    if collective not in ALGORITHMS:
        raise unknown("collective", collective, ALGORITHMS)
    return tuple(ALGORITHMS[collective])


def default(collective: str, nbytes: int, size: int) -> Algorithm:
    """Return the default algorithm for a payload of `nbytes` bytes on `size` ranks.

    The payload is one block for alltoall and the whole answer for allgather.
    """
    power = size & (size - 1) == 0
    if collective == "bcast":
        name = "binomial" if nbytes < 12288 or size < 8 else "scatter-allgather"
    elif collective == "allreduce":
        name = "recursive-doubling" if nbytes <= 2048 else "rabenseifner"
    elif collective == "allgather":
        name = "recursive-doubling" if power and nbytes < 524288 else "bruck" if nbytes < 81920 else "ring"
    elif collective == "alltoall":
        name = "bruck" if nbytes <= 256 and size >= 8 else "scattered" if nbytes <= 32768 else "pairwise"
    elif collective == "alltoallv":
        name = "scattered"
    else:
        name = next(iter(ALGORITHMS[collective]))
    return ALGORITHMS[collective][name]


def chosen(choice: Mapping[str, str | Algorithm]) -> dict[str, Algorithm]:
    """Return the functions of the chosen algorithms. A choice is a name, or a function with the arguments of those in this package."""
    found: dict[str, Algorithm] = {}
    for collective, what in choice.items():
        known = ALGORITHMS.get(collective)
        if known is None:
            raise unknown("collective", collective, ALGORITHMS)
        if isinstance(what, str):
            if what not in known:
                raise unknown(f"algorithm of {collective}", what, known)
            found[collective] = known[what]
        elif callable(what):
            found[collective] = what
        else:
            raise InputError(f"{collective}: found {type(what).__name__}; expected the name of an algorithm, or a function")
    return found
