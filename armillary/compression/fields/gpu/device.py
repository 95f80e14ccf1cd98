"""Compresses an array on a device to the bytes of a `.fzm` file there, and restores it.

    data = gpu.compress(x, bound=1e-3, mode="rel")     # x: CUDA tensor or CuPy array; data: uint8 of the same kind
    y = gpu.decompress(data)

The bytes are those that `fields.compress` gives on the host for chunks of the same size. `default`, `quality`, `speed`, `fz-fused` and
`cuszp-fused` have kernels.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..pipeline.container import Head, read_chunk_head, read_head
from ..pipeline.pipeline import Pipeline
from ..stages.bounds import check_bound

#: Bytes read from the device at once to look at a head.
_WINDOW = 4096
_MODES = ("abs", "rel")
_KNOWN = "default, quality, speed, fz-fused or cuszp-fused"
#: Chunks of the host's size, which it reads in parallel, unless the array is large.
CHUNK_BYTES = 64 << 20


def ready(x: Any) -> bool:
    """Says whether `x` lies on a CUDA device and Triton is installed."""
    kind = type(x).__module__.partition(".")[0]
    on_device = kind == "cupy" or (kind == "torch" and x.device.type == "cuda")
    return on_device and find_spec("torch") is not None and find_spec("triton") is not None


def covers(mode: str, pipeline: Pipeline | str) -> bool:
    """Says whether there are kernels for this pipeline and mode."""
    return mode in _MODES and import_module(".chunks", __package__).coder_of(Pipeline.of(pipeline, mode)) is not None


def compress(x: Any, bound: float = 1e-3, mode: str = "rel", pipeline: Pipeline | str = "speed", *, chunk_bytes: int | None = None) -> Any:
    """Returns `x` (float32 or float64, 1 to 4 dimensions, on a device) as a `.fzm` file: uint8, of its kind and on its device.

    Chunks have 64 MiB, as the host's, or 1 GiB in arrays of more than 256 MiB (for `quality`, 128 MiB in those of more than 512 MiB),
    unless `chunk_bytes` says otherwise.
    """
    tensor, cupy = _tensor(x)
    value = check_bound(mode, bound)
    chain = Pipeline.of(pipeline, mode)
    if not covers(mode, chain):
        raise InputError(f"no kernels for mode {mode} and the pipeline {chain}; expected abs or rel and {_KNOWN}", where="gpu")
    torch, chunks = import_module("torch"), import_module(".chunks", __package__)
    dtypes = {torch.float32: "<f4", torch.float64: "<f8"}
    if tensor.dtype not in dtypes:
        raise InputError(f"found an array of {tensor.dtype}; expected float32 or float64")
    if not 1 <= tensor.ndim <= 4:
        raise InputError(f"found {tensor.ndim} dimensions; expected 1 to 4")
    if chunk_bytes is None:
        most, large = chunks.coder_of(chain).large
        chunk_bytes = large if tensor.numel() * tensor.element_size() > most else CHUNK_BYTES
    if not 1 <= chunk_bytes <= 1 << 30:
        raise InputError(f"chunk_bytes: found {chunk_bytes}; expected 1 to {1 << 30}")
    flat = tensor.detach().contiguous().reshape(-1)
    shape, dtype = tuple(tensor.shape), np.dtype(dtypes[tensor.dtype])
    plain = Head(dtype, shape, mode, value, None, chunk_bytes, chain)
    with _on(tensor):
        spans, finite = chunks.ranges(flat, plain) if plain.chunks else ([], [])
        low, high = min((s[0] for s in spans), default=np.inf), max((s[1] for s in spans), default=-np.inf)
        head = Head(dtype, shape, mode, value, (low, high) if mode == "rel" and low <= high else None, chunk_bytes, chain)
        pieces = [piece for chunk in chunks.encode_chunks(flat, head, spans, finite) for piece in chunk] if spans else []
        out = _joined([head.pack(), *pieces], tensor.device)
    return import_module("cupy").from_dlpack(out) if cupy else out


def decompress(data: Any, *, like: Any = None, where: str | None = None, most_bytes: int | None = None) -> Any:
    """Returns the array in a `.fzm` file on a device (uint8), of its kind; or in bytes of the host, of the kind and on the device of
    `like`. An array of more than `most_bytes` bytes is refused: by default 1 GiB, or a thousand times the file.
    """
    torch, chunks = import_module("torch"), import_module(".chunks", __package__)
    if isinstance(data, bytes | bytearray | memoryview):
        file: Any = memoryview(data).cast("B")
        read_head(file, where=where, most_bytes=most_bytes)
        target, cupy = _tensor(like)
        tensor = torch.frombuffer(bytearray(file), dtype=torch.uint8).to(target.device)
    else:
        tensor, cupy = _tensor(data)
        if tensor.dtype != torch.uint8 or tensor.ndim != 1:
            raise InputError(f"found {tensor.ndim} dimensions of {tensor.dtype}; expected the bytes of a file, uint8", where=where)
        tensor = tensor.contiguous()
        file = _Window(tensor)
    with _on(tensor):
        head, at = read_head(file, where=where, most_bytes=most_bytes)
        if chunks.coder_of(head.pipeline) is None:
            raise InputError(f"no kernels for the pipeline {head.pipeline}; expected {_KNOWN}", where=where)
        listed = []
        for _ in head.chunks:
            method, sections, at = read_chunk_head(file, at, where=where)
            starts = [at + sum(s.size for s in sections[:i]) for i in range(len(sections))]
            at += sum(s.size for s in sections)
            listed.append(chunks.Stored(method, tuple(zip(sections, starts, strict=True))))
        if at != len(file):
            raise InputError(f"found {len(file) - at} bytes after the last chunk; expected none", where=where)
        out = chunks.decode_chunks(tensor, head, listed, where).reshape(head.shape)
    return import_module("cupy").from_dlpack(out) if cupy else out


class _Window:
    """The bytes of a tensor as a file that heads are read from, some thousand at a time."""

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.start, self.bytes = tensor, 0, b""

    def __len__(self) -> int:
        return int(self.tensor.numel())

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(len(self))
        if start < self.start or stop > self.start + len(self.bytes):
            self.start = start
            self.bytes = self.tensor[start : max(stop, start + _WINDOW)].cpu().numpy().tobytes()
        return self.bytes[start - self.start : stop - self.start]


def _tensor(x: Any) -> tuple[Any, bool]:
    """Returns `x` as a tensor, and whether it is CuPy's."""
    interpreted = type(x).__module__ == "torch" and os.environ.get("TRITON_INTERPRET") == "1"
    if not (ready(x) or interpreted):
        raise InputError(f"found {type(x).__name__}; expected an array on a CUDA device, and Triton installed", where="gpu")
    if type(x).__module__.partition(".")[0] == "cupy":
        return import_module("torch").from_dlpack(x), True
    return x, False


def _on(tensor: Any) -> Any:
    return import_module("torch").cuda.device(tensor.device) if tensor.device.type == "cuda" else contextlib.nullcontext()


def _joined(pieces: Sequence[Any], device: Any) -> Any:
    """Joins pieces of the host and of the device to one tensor; those of the host are copied together."""
    torch = import_module("torch")
    host = torch.frombuffer(bytearray(b"".join(p for p in pieces if isinstance(p, bytes))), dtype=torch.uint8).to(device)
    out = torch.empty(sum(len(p) for p in pieces), dtype=torch.uint8, device=device)
    at = taken = 0
    for is_host, run in itertools.groupby(pieces, key=lambda p: isinstance(p, bytes)):
        for size, part in [(sum(map(len, run)), None)] if is_host else [(len(p), p) for p in run]:
            if part is None:
                part, taken = host[taken : taken + size], taken + size
            if size:
                out[at : at + size].copy_(part)
            at += size
    return out
