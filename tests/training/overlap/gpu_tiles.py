"""Kernels of virtual devices against torch, on a CUDA device where there is one and under Triton's interpreter elsewhere.

`test_overlap_arena.py` runs this in a process of its own. By hand: TRITON_INTERPRET=1 python -m pytest tests/training/overlap/gpu_tiles.py.
The interpreter runs programs one after the other, so the kernel whose communicators wait can only show there that it gives up.
"""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton", reason="Triton is not installed")
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device, and not under Triton's interpreter", allow_module_level=True)

from armillary.errors import InputError  # noqa: E402
from armillary.training.overlap.gpu.virtual_devices import Tile, gemm_ar, gemm_rs, product  # noqa: E402

SMALL = Tile(16, 16, 16, 2, 1, 1)
SHAPES = [(2, 32, 32, 32), (2, 34, 20, 17), (1, 1, 1, 1), (3, 33, 5, 40)]


def operands(devices, m, n, k):
    rng = torch.Generator().manual_seed(m + n + k)
    a, b = torch.randn(devices, m, k, generator=rng), torch.randn(devices, k, n, generator=rng)
    return a.to(DEVICE), b.to(DEVICE), torch.einsum("dmk,dkn->mn", a.double(), b.double())


@pytest.mark.parametrize(("devices", "m", "n", "k"), SHAPES)
def test_a_tile_is_the_product(devices, m, n, k):
    a, b, _ = operands(devices, m, n, k)
    torch.testing.assert_close(product(a[0], b[0], tile=SMALL), a[0] @ b[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("devices", "m", "n", "k"), SHAPES)
def test_tiles_are_added_to_their_owner(devices, m, n, k):
    a, b, exact = operands(devices, m, n, k)
    for programs in (devices, 2 * devices):
        found = gemm_rs(a, b, tile=SMALL, programs=programs)
        assert found.shape == (devices, m // devices, n)
        torch.testing.assert_close(found.flatten(0, 1).double().cpu(), exact, atol=1e-4, rtol=1e-4)


def test_a_signal_that_does_not_come_ends_the_wait_and_names_the_tile():
    a, b, _ = operands(2, 32, 32, 8)
    if DEVICE == "cuda":
        torch.testing.assert_close(gemm_ar(a, b, tile=SMALL)[1].double().cpu(), operands(2, 32, 32, 8)[2], atol=1e-4, rtol=1e-4)
    else:
        with pytest.raises(RuntimeError, match="the communicator of tile 3 gave up before it saw 2 signals"):
            gemm_ar(a, b, tile=SMALL, comm_sms=2, spins=3)


def test_programs_that_could_not_all_run_at_once_are_refused():
    a, b, _ = operands(2, 32, 32, 8)
    with pytest.raises(InputError, match="all resident"):
        gemm_ar(a, b, tile=SMALL, programs=100_000)
    with pytest.raises(InputError, match="so that some compute"):
        gemm_ar(a, b, tile=SMALL, programs=4, comm_sms=4)
    with pytest.raises(InputError, match="expected a multiple"):
        gemm_rs(a[:, :31].contiguous(), b, tile=SMALL)
    with pytest.raises(InputError, match="expected devices × M × K"):
        gemm_rs(a, b[:1], tile=SMALL)
