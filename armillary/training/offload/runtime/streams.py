"""The two CUDA streams on which parameters travel, beside the one that computes.

Everything that the runtime asks of CUDA stands here, so that the tests can put streams in its place whose copies happen as late as
possible.
"""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class CudaStreams:
    """`to` carries copies to the device, `back` copies to the host; `now()` is the stream that computes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.to, self.back = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def now(self) -> Any:
        """The stream on which the caller computes."""
        return torch.cuda.current_stream(self.device)

    def event(self, stream: Any, *, timed: bool = False) -> Any:
        """An event behind everything that was put on a stream so far."""
        made = torch.cuda.Event(enable_timing=timed)
        made.record(stream)
        return made

    def copy(self, target: Tensor, source: Tensor, stream: Any) -> None:
        """Puts a copy on a stream; neither tensor's memory is given away before it is done."""
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
        self.keep(target if target.is_cuda else source, stream)

    def keep(self, tensor: Tensor, stream: Any) -> None:
        """Keeps the allocator from giving a tensor's memory away while a stream uses it."""
        tensor.record_stream(stream)

    def empty(self, shape: Any, dtype: torch.dtype) -> Tensor:
        """Uninitialised pinned memory of the host."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def synchronize(self) -> None:
        """Waits for everything on the device."""
        torch.cuda.synchronize(self.device)
