"""The layer over NCCL, on tensors in main memory: what a call means does not depend on the device. `benchmarks/gpu/comm_nccl.py` runs it on one."""

from __future__ import annotations

import pytest
import torch_programs

from armillary import comm

pytest.importorskip("torch")


def test_calls_on_tensors_equal_numpy():
    values = comm.run(torch_programs.devices, ranks=3, backend="gloo", timeout=60).values
    # A message of 96 bytes; its payload once; two blocks of 32 bytes.
    assert values == [(4, 3, 96 + 96 + 64, 2)] * 3
