"""Iterations of a run without any ranges: the period with which a device's sequence of kernels repeats, by autocorrelation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..run.model import KERNEL, Run
from .lost import spans_of_device

#: Kernels that are looked at, and the share of them that must be alike one period apart.
_MOST, _ALIKE = 20_000, 0.9


def iterations(run: Run, device: int = 0) -> npt.NDArray[np.int64]:
    """The starts (ns) of the iterations of one device, of which the last entry is the end of the last one; empty where there are none.

    The period is the smallest distance at which as many kernels as at any other, less 2 %, have the same name and grid, which must be 90 %
    of them at least; and it comes at least three times.
    """
    spans = spans_of_device(run, KERNEL, device)
    order = np.argsort(spans.start, kind="stable")[:_MOST]
    kinds = np.unique(np.stack([spans.name[order], spans.more["launch"][order]]), axis=1, return_inverse=True)[1].reshape(-1)
    period = _period(kinds)
    if not period:
        return np.empty(0, np.int64)
    whole = len(spans) // period
    starts = np.sort(spans.start)[: whole * period : period]
    return np.append(starts, spans.end.max())


def _period(kinds: npt.NDArray[np.int64]) -> int:
    many = len(kinds)
    if many < 6:
        return 0
    # The number of kernels that equal the one so many places on, for all distances at once, summed over the kinds of kernels.
    size = 1 << int(2 * many - 1).bit_length()
    alike = np.zeros(size)
    for kind in np.unique(kinds).tolist()[:256]:
        spectrum = np.fft.rfft((kinds == kind).astype(float), size)
        alike += np.fft.irfft(np.abs(spectrum) ** 2, size)
    share = np.rint(alike[1 : many // 3 + 1]) / (many - np.arange(1, many // 3 + 1))
    found = np.flatnonzero(share >= max(_ALIKE, share.max() - 0.02))
    return int(found[0]) + 1 if len(found) else 0
