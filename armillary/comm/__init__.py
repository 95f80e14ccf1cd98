"""Ranks: one communicator over one process, threads and MPI.

A program is a plain function `program(comm, ...)`; `run(program, ..., ranks=4, backend="threads")` runs it on every rank and gives a
`Result`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
