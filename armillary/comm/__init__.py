"""Ranks: one communicator over one process, threads, MPI, Gloo, NCCL and virtual ranks in simulated time.

A program is a plain function `program(comm, ...)`. `run(program, ..., ranks=4, backend="threads")` runs it on every rank and returns a
`Result`.

    communicator.py  run.py            the interface of every backend, and how a program is run on one
    one.py  threads/  mpi/             the backends
    torch_distributed/  virtual/
    messages/  collectives/  topology/ what the backends share
    windows.py  coordination/  jobs/
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
