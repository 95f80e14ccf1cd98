"""How a checkpoint is cut into pieces that fit the spans in which the network is idle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

FloatArray = npt.NDArray[np.float64]
#: Bytes of a chunk: a GPU buffer of 128 MiB in four parts, so that copies and sends overlap (Gemini, SOSP 2023).
CHUNK = 32 * 2.0**20


@dataclass(frozen=True)
class Chunks:
    """`sizes` [S]: the bytes that travel in each span; `exposed`: the bytes for which there is no room, sent after the backward pass."""

    sizes: FloatArray
    exposed: float
    #: The bytes for which each span has room.
    room: FloatArray


def room_of(spans: npt.ArrayLike, alpha: float, beta: float, *, gamma: float = 1.0, chunk: float = math.inf) -> FloatArray:
    """[S]: bytes for which spans of these seconds have room: (γ·τ − α)·β, with α seconds for every chunk of `chunk` bytes."""
    seconds = gamma * np.asarray(spans, np.float64)
    if math.isinf(chunk):
        return np.maximum(0.0, (seconds - alpha) * beta)
    each = alpha + chunk / beta
    whole = np.floor(seconds / each)
    return np.maximum(0.0, whole * chunk + np.maximum(0.0, (seconds - whole * each - alpha) * beta))


def plan_chunks(spans: npt.ArrayLike, total: float, alpha: float, beta: float, *, gamma: float = 0.95, chunk: float = math.inf) -> Chunks:
    """Places `total` bytes into spans, the earliest first, so that every piece fits: c_j ≤ q_j = max(0, (γ·τ_j − α)·β), Σ c_j ≤ total.

    spans: seconds in time order. alpha: seconds that a chunk costs besides its bytes. beta: bytes per second. gamma: the share of a
    span that is used. chunk: the most bytes sent at once; a span may hold several chunks. The state of the last step is whole from the
    start of the step until the update at its end, so every byte may go into any span.
    """
    seconds = np.asarray(spans, np.float64)
    if seconds.ndim != 1 or not np.isfinite(seconds).all() or (seconds < 0).any():
        raise InputError("spans: expected seconds of at least 0")
    if not (0 <= total < math.inf and 0 <= alpha < math.inf and 0 < beta < math.inf and 0 < gamma <= 1 and chunk > 0):
        found = f"total {total}, alpha {alpha}, beta {beta}, gamma {gamma}, chunk {chunk}"
        raise InputError(f"found {found}; expected bytes and seconds of at least 0, a rate above 0, and gamma of at most 1")
    room = room_of(seconds, alpha, beta, gamma=gamma, chunk=chunk)
    filled = np.minimum(np.cumsum(room), total)
    sizes = np.diff(filled, prepend=0.0)
    return Chunks(sizes, float(total - filled[-1]) if len(filled) else float(total), room)


def sending_s(size: float, alpha: float, beta: float, chunk: float) -> float:
    """Seconds that `size` bytes take on an idle network, in chunks."""
    return math.ceil(size / chunk - 1e-9) * alpha + size / beta if size > 0 else 0.0
