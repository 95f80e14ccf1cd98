"""Compresses arrays to bytes within an error bound, and restores them.

    data = compress(x, bound=1e-3, mode="rel", pipeline="quality")
    y = decompress(data)                         # |x − y| ≤ 1e-3·(max − min) for every value; NaN and infinities bit for bit

FZModules: A Heterogeneous Computing Framework for Customizable Scientific Data Compression Pipelines, arXiv:2509.20563.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from armillary.errors import InputError

from .. import gpu
from ..stages.bounds import absolute_bound, check_bound, finite_span
from ..stages.slabs import thread_count
from ..stages.stage import Context
from .container import Head, extents, pack_chunk, read_chunk, read_head
from .pipeline import Pipeline

CHUNK_BYTES = 64 << 20
SAMPLE = 0.02
TRIALS = 8


def compress(
    x: Any,
    bound: float = 1e-3,
    mode: str = "rel",
    pipeline: Pipeline | str = "default",
    *,
    threads: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> bytes:
    """Returns `x` (float32 or float64, 1 to 4 dimensions; NumPy, CuPy or PyTorch) as the bytes of a `.fzm` file.

    mode abs: |x − x'| ≤ bound; rel: ≤ bound·(max − min) of the finite values; pw_rel: ≤ bound·|x|; psnr: the bound is a PSNR in dB
    to reach.
    `pipeline` is a name (default, quality, speed), a string of stages or a `Pipeline`. An array on a CUDA device is compressed there
    where `gpu` has kernels for the pipeline, to the same bytes; else it is copied to the host first.
    """
    if gpu.ready(x) and gpu.covers(mode, pipeline):
        return bytes(import_module("armillary.arrays").to_host(gpu.compress(x, bound, mode, pipeline, chunk_bytes=chunk_bytes)).data)
    array = checked_array(x)
    count = thread_count(threads)
    head, spans = _plan(array, bound, mode, pipeline, count, chunk_bytes)
    flat = array.reshape(-1)
    parts = [head.pack()]
    for (start, shape), own in zip(head.chunks, spans, strict=True):
        parts.append(encode_chunk(head, flat[start : start + math.prod(shape)], shape, own, count))
    return b"".join(parts)


def decompress(
    data: bytes | bytearray | memoryview,
    *,
    like: Any = None,
    threads: int | None = None,
    where: str | None = None,
    most_bytes: int | None = None,
) -> Any:
    """Returns the array in the bytes of a `.fzm` file: NumPy, or of the kind and on the device of `like`.

    A damaged file is an InputError, and so is an array of more than `most_bytes` bytes: by default 1 GiB, or a thousand times the file.
    """
    buffer = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
    head, at = read_head(buffer, where=where, most_bytes=most_bytes)
    if gpu.ready(like) and gpu.covers(head.mode, head.pipeline):
        return gpu.decompress(buffer, like=like, where=where, most_bytes=most_bytes)
    count = thread_count(threads)
    out = np.empty(math.prod(head.shape), head.dtype)
    for start, shape in head.chunks:
        method, sections, at = read_chunk(buffer, at, where=where)
        decode_chunk(head, method, sections, shape, out[start : start + math.prod(shape)], count)
    if at != len(buffer):
        raise InputError(f"found {len(buffer) - at} bytes after the last chunk; expected none", where=where)
    return _as_kind(out.reshape(head.shape), like)


def compress_stream(
    source: Any,
    target: str | Path | BinaryIO,
    bound: float = 1e-3,
    mode: str = "rel",
    pipeline: Pipeline | str = "default",
    *,
    threads: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> int:
    """Compresses what need not fit in memory: `source` is anything with shape, dtype and slices along its first axis (a memory map,
    an HDF5 or Zarr array).

    Chunks are read, compressed and written at the same time; three are in memory at once. The file is the one `compress` gives.
    Returns its bytes.
    """
    from armillary import tasks

    dtype, shape = _checked_kind(source)
    count = thread_count(threads)
    plan = Head(dtype, shape, "abs", 1.0, None, chunk_bytes, Pipeline.named("default")).chunks
    read = _reader(source, dtype)
    value = check_bound(mode, bound)
    chain = Pipeline.of(pipeline, mode)
    spans = [finite_span(read(start, math.prod(cut)), count) for start, cut in plan] if mode in ("rel", "psnr") else None
    span = _joined(spans) if spans else None
    if mode == "psnr":
        if span is None:
            mode, value = "abs", 1.0
        else:
            start, cut = plan[len(plan) // 2]
            mode, value = "abs", bound_for_psnr(read(start, math.prod(cut)).reshape(cut), value, chain, span, count)
    chain.check_mode(mode)
    head = Head(dtype, shape, mode, value, span, chunk_bytes, chain)
    file: BinaryIO = Path(target).open("wb") if isinstance(target, str | Path) else target  # noqa: SIM115
    written = [0]

    def write(data: bytes) -> None:
        file.write(data)
        written[0] += len(data)

    try:
        write(head.pack())
        graph = tasks.Graph("compress")
        slots: list[Any] = [None, None, None]
        handles = [graph.data(f"slot {i}") for i in range(len(slots))]
        on_disk = graph.data("file")
        for number, (start, cut) in enumerate(plan):
            k = number % len(slots)

            def fetch(k: int = k, start: int = start, cut: tuple[int, ...] = cut) -> None:
                slots[k] = read(start, math.prod(cut))

            def encode(k: int = k, cut: tuple[int, int, int, int] = cut) -> None:
                own = finite_span(slots[k], count)
                slots[k] = encode_chunk(head, slots[k], cut, own, count)

            def flush(k: int = k) -> None:
                write(slots[k])

            graph.add(fetch, writes=[handles[k]], name=f"read {number}")
            graph.add(encode, updates=[handles[k]], name=f"compress {number}")
            graph.add(flush, reads=[handles[k]], updates=[on_disk], name=f"write {number}")
        graph.run(tasks.Threads(3)).raise_first()
    finally:
        if isinstance(target, str | Path):
            file.close()
    return written[0]


def encode_chunk(head: Head, data: np.ndarray, shape: tuple[int, int, int, int], own: tuple[float, float], threads: int) -> bytes:
    """Returns one chunk as bytes: constant, by the pipeline, or stored where that would be no smaller."""
    if own[0] == own[1] and bool(np.all(data == data[0])):
        return pack_chunk("constant", {"value": data[:1]})
    eps = absolute_bound(head.mode, head.bound, head.span or own)
    if not eps > 0 or own[0] > own[1]:
        return pack_chunk("store", {"raw": data})
    ctx = Context(shape, head.dtype, head.mode, head.bound, head.span, threads, own)
    sections = head.pipeline.forward(ctx, data)
    if not head.pipeline.keeps_bound:
        back = head.pipeline.inverse(ctx, sections).astype(head.dtype, copy=False)
        index = violators(data, back, head.mode, head.bound if head.mode == "pw_rel" else eps)
        sections |= {"patch_index": index, "patch": data[index]}
    if sum(array.nbytes for array in sections.values()) >= data.nbytes:
        return pack_chunk("store", {"raw": data})
    return pack_chunk("pipeline", sections)


def decode_chunk(
    head: Head, method: str, sections: dict[str, np.ndarray], shape: tuple[int, int, int, int], out: np.ndarray, threads: int
) -> None:
    """Fills `out` with the chunk's values."""
    if method in ("constant", "store"):
        name, size = ("value", 1) if method == "constant" else ("raw", out.size)
        if set(sections) != {name} or sections[name].dtype != head.dtype or sections[name].size != size:
            raise InputError(f"{method} chunk: expected {size} values of {head.dtype}")
        out[:] = sections[name]
        return
    ctx = Context(shape, head.dtype, head.mode, head.bound, head.span, threads)
    index, patch = sections.pop("patch_index", None), sections.pop("patch", None)
    if (index is None) != head.pipeline.keeps_bound or (index is None) != (patch is None):
        raise InputError("chunk: patches and pipeline do not go together")
    found = head.pipeline.inverse(ctx, sections)
    if found.size != out.size:
        raise InputError(f"chunk: found {found.size} values; expected {out.size}")
    with np.errstate(over="ignore"):
        out[:] = found
    if index is not None and patch is not None:
        if (
            index.dtype != np.uint32
            or patch.dtype != head.dtype
            or index.size != patch.size
            or (index.size and int(index.max()) >= out.size)
        ):
            raise InputError(f"chunk: found {patch.size} patches at {index.size} places; expected as many, below {out.size}")
        out[index] = patch


def violators(x: np.ndarray, back: np.ndarray, mode: str, eps: float) -> np.ndarray:
    """Returns places (uint32) where `back` is not within the bound of `x` in float64, or differs in a bit where x is not finite."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        allowed = eps * np.abs(wide) if mode == "pw_rel" else eps
        near = np.abs(wide - back.astype(np.float64)) <= allowed
    bits = f"u{x.dtype.itemsize}"
    good = np.where(np.isfinite(x), near, x.view(bits) == back.view(bits))
    return np.flatnonzero(~good).astype(np.uint32)


def bound_for_psnr(x: np.ndarray, target: float, pipeline: Pipeline, span: tuple[float, float], threads: int = 1) -> float:
    """Returns the absolute bound that reaches `target` dB, by at most eight trials on a sample of 2 % of the slowest axis.

    Starts from a uniform error, whose mean square is ε²/3, and halves an interval of two octaves around it; the largest bound that
    kept the target is taken.
    """
    width = span[1] - span[0]
    if not (math.isfinite(width) and width > 0):
        return 1.0
    shape = extents(x.shape)
    sample = _sample(x, shape)
    guess = math.sqrt(3) * width * 10 ** (-target / 20)
    low, high, best = guess / 2, guess * 2, guess / 2
    for _ in range(TRIALS):
        middle = math.sqrt(low * high)
        head = Head(sample.dtype, sample.shape, "abs", middle, None, CHUNK_BYTES, pipeline)
        flat = sample.reshape(-1)
        packed = encode_chunk(head, flat, extents(sample.shape), finite_span(flat), threads)
        method, sections, _ = read_chunk(memoryview(packed), 0)
        out = np.empty_like(flat)
        decode_chunk(head, method, sections, extents(sample.shape), out, threads)
        finite = np.isfinite(flat)
        error = float(np.mean((flat[finite].astype(np.float64) - out[finite]) ** 2)) if finite.any() else 0.0
        reached = math.inf if error == 0 else 20 * math.log10(width) - 10 * math.log10(error)
        if reached >= target:
            low = best = middle
        else:
            high = middle
    return best


def checked_array(x: Any) -> np.ndarray:
    """Returns `x` on the host, contiguous and little-endian, or an InputError that says what it is instead."""
    from armillary.arrays import kind_of, to_host

    array = x if isinstance(x, np.ndarray) else to_host(x) if kind_of(x) != "numpy" else np.asarray(x)
    _checked_kind(array)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def _checked_kind(x: Any) -> tuple[np.dtype, tuple[int, ...]]:
    dtype, shape = np.dtype(getattr(x, "dtype", np.int8)), tuple(getattr(x, "shape", ()))
    if dtype.kind != "f" or dtype.itemsize not in (4, 8):
        raise InputError(f"found an array of {dtype}; expected float32 or float64")
    if not 1 <= len(shape) <= 4:
        raise InputError(f"found {len(shape)} dimensions; expected 1 to 4")
    return dtype.newbyteorder("<"), shape


def _plan(
    x: np.ndarray, bound: float, mode: str, pipeline: Pipeline | str, threads: int, chunk_bytes: int
) -> tuple[Head, list[tuple[float, float]]]:
    value = check_bound(mode, bound)
    chain = Pipeline.of(pipeline, mode)
    if not 1 <= chunk_bytes <= 1 << 30:
        raise InputError(f"chunk_bytes: found {chunk_bytes}; expected 1 to {1 << 30}")
    flat = x.reshape(-1)
    plan = Head(x.dtype, x.shape, "abs", 1.0, None, chunk_bytes, chain).chunks
    spans = [finite_span(flat[start : start + math.prod(cut)], threads) for start, cut in plan]
    span = _joined(spans)
    if mode == "psnr":
        mode, value = "abs", 1.0 if span is None else bound_for_psnr(x, value, chain, span, threads)
    chain.check_mode(mode)
    return Head(x.dtype, x.shape, mode, value, span if mode == "rel" else None, chunk_bytes, chain), spans


def _joined(spans: list[tuple[float, float]]) -> tuple[float, float] | None:
    low, high = min((s[0] for s in spans), default=math.inf), max((s[1] for s in spans), default=-math.inf)
    return (low, high) if low <= high else None


def _sample(x: np.ndarray, shape: tuple[int, int, int, int]) -> np.ndarray:
    # The sample is three runs of neighbouring slices of the slowest axis, so that prediction works as on the whole.
    axis = next((i for i, n in enumerate(shape) if n > 1), 3)
    slices = x.reshape(shape[axis], -1)
    run = max(1, math.ceil(slices.shape[0] * SAMPLE / 3), min(slices.shape[0], 9) if axis < 3 else min(slices.shape[0], 4096))
    starts = sorted({0, max(0, (slices.shape[0] - run) // 2), max(0, slices.shape[0] - run)})
    return np.ascontiguousarray(np.concatenate([slices[s : s + run] for s in starts])).reshape(-1, *shape[axis + 1 :])


def _reader(source: Any, dtype: np.dtype) -> Callable[[int, int], np.ndarray]:
    # Chunks start and end at whole slices of the first axis, or inside one batch of a 4-D array.
    shape = tuple(source.shape)
    inner = math.prod(shape[1:])

    def read(start: int, size: int) -> np.ndarray:
        first, last = start // inner, -(-(start + size) // inner)
        if start % inner or size % inner:
            part = math.prod(shape[2:])
            skip = (start - first * inner) // part
            values = source[first, skip : skip + size // part]
        else:
            values = source[first:last]
        return np.ascontiguousarray(values, dtype=dtype).reshape(-1)

    return read


def _as_kind(out: np.ndarray, like: Any) -> Any:
    if like is None or isinstance(like, np.ndarray):
        return out
    from armillary.arrays import kind_of

    if kind_of(like) == "torch":
        return import_module("torch").from_numpy(out).to(like.device)
    return import_module("cupy").asarray(out)
