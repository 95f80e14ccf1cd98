"""Training that gives the same weights whatever ran before it, in this process or another one.

No random number comes from PyTorch: weights, batches, exploration and replay are drawn from NumPy streams that depend on the seed and a
name (`armillary.streams`). Inside `deterministic()` PyTorch and BLAS run on one thread, with deterministic algorithms.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import nn

from armillary.streams import stream


@contextlib.contextmanager
def deterministic(device: str = "cpu") -> Iterator[None]:
    """One thread and deterministic algorithms, restored afterwards; on another device than the CPU nothing is promised or changed."""
    if device != "cpu":
        yield
        return
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    memory = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_num_threads(1)
    # `use_deterministic_algorithms` does the same but imports PyTorch's compiler, which takes 1.4 s.
    torch.set_deterministic_debug_mode("error")
    memory.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # Nothing here reads memory that it did not write.
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
        memory.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def initialise(module: nn.Module, seed: int) -> None:
    """Draws every parameter of a module anew, from a stream of its own that depends on the seed and the parameter's name.

    Matrices are uniform in ±1/√fan_in, norms begin as the identity, biases at zero.
    """
    for name, parameter in module.named_parameters():
        shape = tuple(parameter.shape)
        last = name.rpartition(".")[2]
        if "norm" in name:
            values = np.ones(shape) if last == "weight" else np.zeros(shape)
        elif "bias" in last or (last in ("u", "w", "empty") and len(shape) == 1):
            values = np.zeros(shape)
        else:
            fan_in = math.prod(shape[1:]) if len(shape) > 1 else shape[0]
            bound = 1 / math.sqrt(max(1, fan_in))
            values = stream(seed, "weights", name).uniform(-bound, bound, shape)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values, np.float32)))


def orthogonal(layer: nn.Linear, gain: float, seed: int, name: str) -> None:
    """Gives a linear layer an orthogonal weight times `gain` and no bias."""
    rows, columns = layer.weight.shape
    drawn = stream(seed, "weights", name).standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(drawn)
    q = q * np.sign(np.diag(r))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.ascontiguousarray(gain * (q if rows >= columns else q.T), np.float32)))
        layer.bias.zero_()
