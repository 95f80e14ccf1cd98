"""Adoption: communicators over ranks that another library has already brought together."""

from __future__ import annotations

from typing import Any

from armillary.comm.communicator import Communicator
from armillary.errors import InputError


def adopted(native: Any, seed: int = 0) -> Communicator:
    """Return a communicator over the ranks of one of mpi4py, torch.distributed or CuPy's NCCL; see `Communicator.adopt`."""
    origin = {kind.__module__.partition(".")[0] for kind in type(native).__mro__}
    if "mpi4py" in origin:
        from armillary.comm.mpi.ranks import ranks_of as of_mpi

        return of_mpi(native, seed)
    if "torch" in origin:
        from armillary.comm.torch_distributed.adoption import ranks_of as of_torch

        return of_torch(native, seed)
    if origin & {"cupy", "cupy_backends"}:
        from armillary.comm.torch_distributed.adoption import ranks_of_cupy

        return ranks_of_cupy(native, seed)
    raise InputError(
        f"adopt: found {type(native).__name__}; expected an mpi4py.MPI.Comm, a torch.distributed.ProcessGroup or a "
        "cupy.cuda.nccl.NcclCommunicator"
    )
