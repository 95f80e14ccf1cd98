"""What cannot be adopted; `test_mpi` and `test_torch_gloo` adopt what can."""

from __future__ import annotations

import pytest

from armillary import comm
from armillary.comm import Communicator
from armillary.errors import InputError


def test_what_cannot_be_adopted():
    with pytest.raises(InputError, match=r"found list; expected an mpi4py\.MPI\.Comm"):
        Communicator.adopt([1, 2])
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="found a Tensor"):
        Communicator.adopt(torch.zeros(1))


def test_ranks_without_a_library_have_no_native():
    assert comm.run(lambda ranks: ranks.native is None, ranks=2).values == [True, True]
