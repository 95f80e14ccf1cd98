"""Tensors of PyTorch on ranks in main memory, and arrays on a device, which they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch_programs

from armillary import comm
from armillary.errors import InputError

pytest.importorskip("torch")


@pytest.mark.parametrize("ranks", [1, 3])
def test_tensors_travel_as_arrays_do(ranks):
    values = comm.run(torch_programs.tensors, ranks=ranks).values
    assert np.array_equal(values[0], np.arange(6.0).reshape(2, 3) * ranks + ranks * (ranks - 1) / 2)


class OnDevice:
    """What CuPy's arrays say of where they are."""

    dtype = np.dtype(np.float32)

    def __dlpack__(self):
        raise BufferError("not here")

    def __dlpack_device__(self):
        return 2, 0


@pytest.mark.parametrize("call", ["send", "recv", "allreduce", "bcast"])
def test_a_device_array_is_refused_where_ranks_have_no_device(call):
    def program(ranks):
        with pytest.raises(InputError, match="on a device; expected one in main memory"):
            getattr(ranks, call)(OnDevice(), *([0] if call in ("send", "recv") else []))

    comm.run(program, ranks=2)
