"""Streams of a device, and how to wait for its work: a launch returns at once, so a clock must synchronise on both sides."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .kinds import Array, device_of, kind_of, on_accelerator


def stream(x: Array) -> Any:
    """The current stream for work on `x` (CuPy's or PyTorch's object), or None if `x` is on the host."""
    if not on_accelerator(x):
        return None
    if kind_of(x) == "torch":
        return import_module(f"torch.{x.device.type}").current_stream(x.device)
    with x.device:
        return import_module("cupy").cuda.get_current_stream()


def synchronise(*arrays: Array) -> None:
    """Waits until all work that is queued on the devices of `arrays`, on any stream, is done; on the host it returns at once."""
    for x in arrays:
        device = device_of(x)
        if not on_accelerator(x):
            continue
        if kind_of(x) == "torch":
            import_module(f"torch.{device.type}").synchronize(device)
        else:
            device.synchronize()
