"""Float32 tensors as sums of tensors of lower precision, whose products tensor cores compute."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from armillary import arrays
from armillary.arena import NotForThisCase


def float32_parts(x: Any, dtype: Any, count: int) -> list[Any]:
    """Returns x as a sum of `count` tensors, each exact in `dtype`, or in TF32 where `dtype` is None."""
    torch = import_module("torch")
    parts, rest = [], x
    for _ in range(count):
        part = rest.to(dtype) if dtype is not None else ((rest.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
        parts.append(part)
        rest = rest - part.to(torch.float32)
    return parts


def torch_of(a: arrays.Array) -> Any:
    """Returns PyTorch, for a tensor on a CUDA device; declines everything else."""
    if arrays.kind_of(a) != "torch" or a.device.type != "cuda":
        raise NotForThisCase("takes PyTorch tensors on a CUDA device")
    return import_module("torch")
