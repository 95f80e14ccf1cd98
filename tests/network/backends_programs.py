"""Programs of a user, by name."""

from __future__ import annotations

import numpy as np

from armillary.comm import Coordinator
from armillary.network.backends import programs
from armillary.network.backends.measurement import alternate


def prepared(comm, count=10):
    coord = Coordinator(comm)
    send, recv = np.full(count, comm.rank + 1.0), np.zeros(count)

    def body():
        coord.allreduce(send, recv)
        return recv

    return body


def whole(comm):
    return float(comm.allreduce(np.ones(1))[0])


def fails(comm):
    raise KeyError("no such thing")


def jacobi_rows(comm, n, iterations, periodic=False):
    return programs.jacobi(comm, n, iterations, periodic)()


def cg_part(comm, grid, path=None, order=None):
    iterations, x = programs.cg(comm, grid, path, order=order)()
    return iterations, x


def all_programs(comm):
    """Bits of every program, each prepared once and run twice."""
    found = {}
    for name, options in (
        ("jacobi", {"n": 33, "iterations": 7}),
        ("jacobi", {"n": 33, "iterations": 7, "periodic": True}),
        ("cg", {"grid": 5, "order": "rank"}),
    ):
        body = getattr(programs, name)(comm, **options)
        body()
        answer = body()
        part = answer if name == "jacobi" else answer[1]
        found[f"{name} {sorted(options)}"] = part.tobytes().hex()
    return found


def every_text(comm, texts, options):
    """Two rounds of each text of each program in one job; `alternate` raises an error if texts give different bits."""
    return {p: alternate(comm, [f"{text}:{p}" for text in names], options[p], 2) for p, names in texts.items()}
