"""Zstandard frames of sections that come from a device, made and read by the host's threads.

A frame depends on every byte before its end, and its bytes are those of the host's library, so this pass has no kernels. Sections travel
through pinned memory, each way in one copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..stages.lossless import Zstd, framed
from ..stages.slabs import each, thread_count
from ..stages.stage import Context

#: Sections start at multiples of these bytes.
_ALIGNED = 16


def to_host(tensors: Sequence[Any]) -> list[np.ndarray]:
    """Returns copies of the tensors on the host."""
    copies = []
    for tensor in tensors:
        copy = _room(tensor.numel(), tensor.dtype, tensor.device)
        copy.copy_(tensor, non_blocking=True)
        copies.append(copy)
    if tensors and tensors[0].device.type == "cuda":
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return [copy.numpy() for copy in copies]


def to_device(parts: Sequence[Sequence[np.ndarray]], device: Any) -> list[Any]:
    """Returns each group of byte arrays, joined, as int32 words of one memory on the device; what is left of a last word is zero."""
    sizes = [sum(array.size for array in group) for group in parts]
    starts = np.concatenate([[0], np.cumsum([-(-size // _ALIGNED) * _ALIGNED for size in sizes])]).astype(np.int64)
    room = _room(max(_ALIGNED, int(starts[-1])), torch.uint8, device)
    memory = room.numpy()

    def fill(k: int, _: int) -> None:
        at = int(starts[k])
        for array in parts[k]:
            memory[at : at + array.size] = array
            at += array.size
        memory[at : int(starts[k + 1])] = 0

    each(fill, [(k, k + 1) for k in range(len(parts))], thread_count(None))
    words = room.to(device, non_blocking=True).view(torch.int32)
    return [words[int(start) // 4 : int(start) // 4 + -(-size // 4)] for start, size in zip(starts[:-1], sizes, strict=True)]


def packed(sections: Sequence[np.ndarray], level: int) -> list[list[np.ndarray]]:
    """Returns each section as the stage `zstd` writes it, in two pieces: the byte that names its dtype, and the frame."""
    order = sorted(range(len(sections)), key=lambda k: -sections[k].nbytes)

    def part(k: int, _: int) -> list[np.ndarray]:
        kind, frame = framed(sections[order[k]], level)
        return [np.array([kind], np.uint8), np.frombuffer(frame, np.uint8)]

    made = each(part, [(k, k + 1) for k in range(len(sections))], thread_count(None))
    return [found for _, found in sorted(zip(order, made, strict=True), key=lambda pair: pair[0])]


def unpacked(chunks: Sequence[tuple[Context, Mapping[str, np.ndarray]]]) -> list[dict[str, np.ndarray]]:
    """Returns the sections of each chunk from their frames."""
    return each(lambda k, _: Zstd().inverse(chunks[k][0], **chunks[k][1]), [(k, k + 1) for k in range(len(chunks))], thread_count(None))


def _room(size: int, dtype: Any, device: Any) -> Any:
    return torch.empty(size, dtype=dtype, pin_memory=torch.device(device).type == "cuda")
