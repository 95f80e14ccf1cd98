"""torch.distributed, as all parts of this package use it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
import torch.distributed.distributed_c10d

from armillary.comm.failures import Aborted

#: The library without its types, which differ from version to version.
dist: Any = torch.distributed
cuda: Any = torch.cuda
#: The library's reductions by their names here.
OPS: dict[str, Any] = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


def lost(error: Exception) -> Aborted:
    """Return the error of a rank whose library reports that another process has gone."""
    return Aborted(f"another rank failed ({str(error).partition(chr(10))[0]})")


def reduction(options: Any, op: str) -> Any:
    """Return these options of a call of the library, with the operation set."""
    options.reduceOp = OPS[op]
    return options
