"""Estimates from a sample which pipeline suits a field and a link, before anything is compressed.

For sizes, each candidate codes a sample of the field (1 % of it in blocks of up to 16·16·128, 128·256 or 2^14 values, at least 2^18
values; sixteen times as much where the ratio is above 30), and what it costs once (tables, heads) is not scaled up. For speeds, each
candidate is timed seven times per process on a built-in field of 2 MB. The link's gain is `metrics.overall_speedup` of both.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.timing import timed

from ..pipeline.container import extents
from ..pipeline.fz import checked_array, compress
from ..pipeline.pipeline import Pipeline
from ..stages.bounds import absolute_bound, check_bound, finite_span
from ..stages.slabs import thread_count
from ..stages.stage import Context
from .metrics import overall_speedup

CANDIDATES = {
    "default": "range -> lorenzo -> histogram -> huffman",
    "default+zstd": "range -> lorenzo -> histogram -> huffman -> zstd",
    "quality": "range -> interp(radius=2048, tune=True) -> topk-histogram(centre=2048) -> huffman -> zstd",
    "speed": "range -> lorenzo -> bitshuffle -> zero-blocks",
    "particles": "range -> none -> delta -> histogram -> huffman",
    "fixed-width": "range -> lorenzo -> fixed-width",
}
#: Calls by which a candidate's speed is measured.
CALLS = 7
OBJECTIVES = ("ratio", "throughput", "link")
SHARE, LEAST = 0.01, 1 << 18
#: From this ratio on, codes at the borders of blocks are most of a sample's bytes, so the sample is made this many times larger.
HIGH, LARGER = 30.0, 16
#: Bytes of the heads of a file with one chunk.
HEADS = 550
#: Blocks are long along x, so that runs of codes are as long as in the field, and small, so that there are many.
_BLOCKS = {1: (1, 1, 1 << 14), 2: (1, 128, 256), 3: (16, 16, 128)}
#: Steps of a low-discrepancy sequence (Roberts 2018): powers of 1/1.2207 for the three axes, the golden ratio for the batch.
_TURNS = np.array([0.6180340, 0.8191725, 0.6710436, 0.5497005])
#: Sections whose size does not grow with the field.
_ONCE = ("table", "bound", "plan", "count", "length")


@dataclass(frozen=True)
class Advice:
    """The pipeline to take and what it is expected to give; `estimates` has (ratio, bytes per second) of every candidate."""

    name: str
    pipeline: Pipeline
    ratio: float
    compress_bytes_per_s: float
    link_speedup: float | None
    estimates: dict[str, tuple[float, float]]


def auto(
    x: Any, bound: float = 1e-3, mode: str = "rel", *, objective: str = "ratio", bandwidth: float | None = None, threads: int | None = None
) -> Advice:
    """Returns the candidate with the best expected ratio, throughput, or gain over a link of `bandwidth` bytes per second."""
    if objective not in OBJECTIVES:
        raise unknown("objective", objective, OBJECTIVES)
    if (objective == "link") != (bandwidth is not None) or (bandwidth is not None and not bandwidth > 0):
        raise InputError(f"bandwidth: found {bandwidth} with objective {objective}; expected bytes per second with link only")
    check_bound(mode, bound)
    if mode not in ("abs", "rel"):
        raise InputError(f"mode: found {mode}; auto takes abs or rel")
    array, count = checked_array(x), thread_count(threads)
    if not array.size:
        raise InputError("found an array without values; expected at least one")
    eps = absolute_bound(mode, bound, finite_span(array, count))
    estimates = {
        name: (estimated_ratio(array, eps, text, count) if eps > 0 else 1.0, _speed(text, count)) for name, text in CANDIDATES.items()
    }

    def worth(name: str) -> float:
        ratio, speed = estimates[name]
        return {"ratio": ratio, "throughput": speed}.get(objective) or overall_speedup(bandwidth or math.inf, ratio, speed)

    best = max(estimates, key=worth)
    ratio, speed = estimates[best]
    gain = overall_speedup(bandwidth, ratio, speed) if bandwidth else None
    return Advice(best, Pipeline.from_string(CANDIDATES[best]), ratio, speed, gain, estimates)


def estimated_ratio(x: np.ndarray, eps: float, pipeline: str, threads: int = 1) -> float:
    """Estimates the ratio of the whole field from a sample, and from a larger one where the first says that there is little to code."""
    found = _ratio_of_sample(x, eps, pipeline, threads, 1)
    return found if found < HIGH else _ratio_of_sample(x, eps, pipeline, threads, LARGER)


def _ratio_of_sample(x: np.ndarray, eps: float, pipeline: str, threads: int, times: int) -> float:
    shape = extents(x.shape)
    blocks = _sample(Context(shape, x.dtype), x, times)
    sample = np.ascontiguousarray(blocks).reshape(-1)
    ctx = Context((blocks.shape[0], blocks.shape[1], blocks.shape[2], blocks.shape[3]), x.dtype, "abs", eps, None, threads)
    if float(sample.min()) == float(sample.max()):
        return 1e4
    sections = Pipeline.from_string(pipeline).forward(ctx, sample)
    once = sum(a.nbytes for name, a in sections.items() if name.rpartition(".")[2] in _ONCE) + HEADS
    grows = sum(a.nbytes for name, a in sections.items() if name.rpartition(".")[2] not in _ONCE)
    return x.nbytes / min(once + grows * x.size / sample.size, x.nbytes)


def _sample(ctx: Context, x: np.ndarray, times: int = 1) -> np.ndarray:
    whole = x.reshape(ctx.shape)
    block = tuple(min(b, n) for b, n in zip(_BLOCKS[ctx.dimensions], ctx.shape[1:], strict=True))
    count = math.ceil(times * max(SHARE * x.size, LEAST) / math.prod(block))
    if count * math.prod(block) >= x.size:
        return whole
    turn = np.arange(1, count + 1)[:, None] * _TURNS[None]
    room = np.array([ctx.shape[0], *(n - b + 1 for b, n in zip(block, ctx.shape[1:], strict=True))])
    return np.stack([whole[b, z : z + block[0], y : y + block[1], c : c + block[2]] for b, z, y, c in (turn % 1 * room).astype(np.int64)])


@functools.cache
def _speed(pipeline: str, threads: int) -> float:
    """Returns the bytes per second of a candidate on this machine, on turbulence at rel 1e-3.

    The lower quartile of several calls counts, which a busy moment of the machine does not change.
    """
    from ..workload import field

    x = field("turbulence", (80, 80, 80), np.random.default_rng(1))
    compress(x, 1e-3, "rel", pipeline, threads=threads)
    return x.nbytes / timed(lambda: compress(x, 1e-3, "rel", pipeline, threads=threads), min_seconds=0.0, min_calls=CALLS).lower_quartile
