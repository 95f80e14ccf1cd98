"""One iteration of checkpoint traffic: chunks go out while the network is idle, and a chunk under way holds up the next collective."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import kernel

FloatArray = npt.NDArray[np.float64]


@kernel
def _send(spans, room, total, chunk, alpha, beta, committed, sent, over):  # type: ignore[no-untyped-def]
    # Invariant: sent[:j].sum() + left == total. A chunk starts only while its span lasts (unless
    # all of them are committed when it begins), and is not pre-empted.
    left = total
    each = alpha + chunk / beta
    for j in range(len(spans)):
        sent[j] = 0.0
        over[j] = 0.0
        wanted = min(left, room[j])
        if wanted <= 0.0 or spans[j] <= 0.0:
            continue
        begun = math.ceil(spans[j] / each - 1e-9)
        now = wanted if committed else min(wanted, begun * chunk)
        sent[j] = now
        left -= now
        seconds = math.ceil(now / chunk - 1e-9) * alpha + now / beta
        if seconds > spans[j] * (1.0 + 1e-12):
            over[j] = seconds - spans[j]
    return left


def send(
    spans: FloatArray, room: FloatArray, total: float, chunk: float, alpha: float, beta: float, *, committed: bool = False
) -> tuple[FloatArray, FloatArray, float]:
    """([S] bytes sent in each span, [S] seconds by which each delays the next collective, bytes left after the last).

    In span j at most `room[j]` bytes go out, in chunks of at most `chunk` bytes, each of which takes alpha + bytes / beta seconds. Training
    has priority at the boundaries of chunks, so that chunks which have not begun when the span ends wait for a later one. If they are
    `committed`, all chunks of a span are in the queue before the collective, which waits for them.
    """
    if not (chunk > 0 and beta > 0 and alpha >= 0 and total >= 0) or len(spans) != len(room):
        raise InputError("expected a chunk and a rate above 0, seconds and bytes of at least 0, and as many rooms as spans")
    # Without a limit the whole checkpoint is one chunk.
    size = min(chunk, max(total, 1.0))
    sent, over = np.empty(len(spans)), np.empty(len(spans))
    left = _send(
        np.ascontiguousarray(spans, np.float64), np.ascontiguousarray(room, np.float64), float(total), float(size), float(alpha),
        float(beta), committed, sent, over,
    )  # fmt: skip
    return sent, over, float(left)
