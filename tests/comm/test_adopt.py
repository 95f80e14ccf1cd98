"""Communicators over what other libraries have brought together."""

from __future__ import annotations

import pytest
import torch_programs

from armillary import comm
from armillary.comm import Communicator
from armillary.errors import InputError


@pytest.mark.skipif(bool(comm.backends()["mpi"]), reason="mpi4py is not here")
def test_a_sub_communicator_of_mpi_keeps_its_order():
    library = "mpich" if any(one.name == "mpich" for one in comm.libraries()) else None
    if library is None:
        pytest.skip("mpich is not here")
    values = comm.run(torch_programs.adopts_mpi, ranks=4, backend="mpi", library=library, timeout=60).values
    # Ranks 3 and 1, 2 and 0, in this order, each pair by itself.
    assert values == [[2, 0], [3, 1], [2, 0], [3, 1]]


def test_a_group_of_torch_keeps_its_order():
    pytest.importorskip("torch")
    values = comm.run(torch_programs.adopts_torch, ranks=3, backend="gloo", timeout=60).values
    assert values == [[0, 2], None, [0, 2]]


def test_what_cannot_be_adopted():
    with pytest.raises(InputError, match=r"found list; expected an mpi4py\.MPI\.Comm"):
        Communicator.adopt([1, 2])
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="found a Tensor"):
        Communicator.adopt(torch.zeros(1))


def test_ranks_without_a_library_have_no_native():
    assert comm.run(lambda ranks: ranks.native is None, ranks=2).values == [True, True]
