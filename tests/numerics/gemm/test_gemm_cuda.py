"""Recorded products: which are recorded, how many are kept, and that a replay gives the bits of the launches."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from armillary.numerics.gemm import Ozaki2  # noqa: E402
from armillary.numerics.gemm.digits import cuda_residues as kernels  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_recorded():
    kernels._recordings.clear()
    yield
    kernels._recordings.clear()


def asked(n: int, count: int = 15):
    a = torch.zeros((n, n), dtype=torch.float64)
    return kernels._recording(a, a, tuple(range(count)), None, 60.0, 0.5)


def test_the_third_product_of_a_kind_is_recorded(monkeypatch):
    monkeypatch.setattr(kernels, "_Recording", lambda a, b, *others: (a.shape, *others))
    assert [asked(3) for _ in range(2)] == [None, None]
    assert asked(4) is None
    assert asked(3, count=14) is None
    first = asked(3)
    assert first is not None
    assert asked(3) is first


def test_few_recordings_are_kept_and_the_oldest_goes(monkeypatch):
    monkeypatch.setattr(kernels, "_Recording", lambda a, b, *others: (a.shape, *others))
    for n in (1, 2, 3, 4):
        asked(n), asked(n), asked(n)
    one = asked(1)
    assert one is not None
    assert asked(5) is None
    assert len(kernels._recordings) == 4
    assert asked(1) is one
    assert asked(2) is None


def test_a_device_without_room_goes_on_without_a_recording(monkeypatch):
    def full(*arguments):
        raise torch.cuda.OutOfMemoryError("no room")

    monkeypatch.setattr(kernels, "_Recording", full)
    assert [asked(3) for _ in range(6)] == [None] * 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("m", "k", "n"), [(200, 300, 100), (33, 17, 65), (512, 512, 512)])
def test_a_replay_gives_the_bits_of_the_launches(monkeypatch, m, k, n):
    method = Ozaki2(moduli=15)
    factors = [
        (torch.rand(m, k, dtype=torch.float64, device="cuda"), torch.rand(k, n, dtype=torch.float64, device="cuda")) for _ in range(4)
    ]
    recorded = [method.multiply(a, b)[0] for a, b in factors]
    assert not all(isinstance(found, int) for found in kernels._recordings.values())
    monkeypatch.setattr(kernels, "RECORDED", 0)
    for (a, b), product in zip(factors, recorded):
        assert torch.equal(method.multiply(a, b)[0], product)
    a = factors[0][0].clone()
    a[0, 0] = float("nan")
    monkeypatch.undo()
    assert method.multiply(a, factors[0][1])[1].fallback
