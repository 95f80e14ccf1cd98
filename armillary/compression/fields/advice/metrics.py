"""Measures of a compressed field: errors, structure, spectrum, and the gain on a link."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: Links, in bytes per second, over which the gain is modelled.
LINKS = {"500MBps": 0.5e9, "5GBps": 5e9, "25GBps": 25e9}


def overall_speedup(bandwidth: float, ratio: float, compress: float, decompress: float = math.inf) -> float:
    """Returns how much sooner data are across a link with compression in the way: [(BW·CR)⁻¹ + T⁻¹]⁻¹ / BW; throughputs in bytes per
    second.

    With a `decompress` throughput, both ways are paid for.
    """
    return 1 / (1 / (bandwidth * ratio) + 1 / compress + 1 / decompress) / bandwidth


def errors(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Returns the largest |x − y|, the PSNR in dB (range of x over root mean square error) and that error over the range.

    All are float64 and over the finite values of x.
    """
    finite = np.isfinite(x)
    a, b = (
        (x[finite].astype(np.float64), y[finite].astype(np.float64)) if not finite.all() else (x.astype(np.float64), y.astype(np.float64))
    )
    if not a.size:
        return 0.0, math.inf, 0.0
    width = float(a.max() - a.min())
    np.subtract(a, b, out=b)
    largest = float(np.abs(b).max())
    rms = math.sqrt(float(np.dot(b.reshape(-1), b.reshape(-1))) / b.size)
    if rms == 0:
        return largest, math.inf, 0.0
    return largest, 20 * math.log10(width / rms) if width else -math.inf, rms / width if width else math.inf


def ssim(x: np.ndarray, y: np.ndarray, window: int = 7, slices: int = 4) -> float:
    """Returns the mean structural similarity (IEEE TIP 2004) of 2-D slices, spread evenly over the slowest axis of a 3-D field."""
    from scipy.ndimage import uniform_filter

    planes = [(x, y)] if x.ndim == 2 else [(x[i], y[i]) for i in np.linspace(0, x.shape[0] - 1, min(slices, x.shape[0])).astype(int)]
    width = float(x.max()) - float(x.min()) or 1.0
    c1, c2 = (0.01 * width) ** 2, (0.03 * width) ** 2
    found = []
    for one, two in planes:
        a, b = one.astype(np.float64), two.astype(np.float64)
        mean_a, mean_b = uniform_filter(a, window), uniform_filter(b, window)
        var_a, var_b = uniform_filter(a * a, window) - mean_a**2, uniform_filter(b * b, window) - mean_b**2
        both = uniform_filter(a * b, window) - mean_a * mean_b
        found.append(float(np.mean((2 * mean_a * mean_b + c1) * (2 * both + c2) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)))))
    return float(np.mean(found))


def radial_spectrum(x: np.ndarray) -> np.ndarray:
    """Returns the power by whole wave number |k|, from 1 to a quarter of the shortest axis."""
    from scipy import fft

    power = np.abs(fft.rfftn(x.astype(np.float32 if x.dtype == np.float32 else np.float64), workers=-1)) ** 2
    squared = np.zeros(power.shape, np.float32)
    for axis, n in enumerate(x.shape):
        k = fft.rfftfreq(n, 1 / n) if axis == x.ndim - 1 else fft.fftfreq(n, 1 / n)
        squared += (k**2).astype(np.float32).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    most = max(2, min(x.shape) // 4)
    shells = np.rint(np.sqrt(squared)).astype(np.int64).reshape(-1)
    return np.bincount(np.minimum(shells, most), weights=power.reshape(-1).astype(np.float64), minlength=most + 1)[1:most]


def spectrum_error(before: np.ndarray, after: np.ndarray) -> float:
    """Returns the largest relative error of a spectrum."""
    kept = before > 0
    return float(np.max(np.abs(after[kept] - before[kept]) / before[kept])) if kept.any() else 0.0


def peak_bytes(work: Callable[[], Any]) -> int:
    """Returns the most bytes that this process took while `work` ran, beyond what it had before, by the count of resident pages."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    work()
    return max(0, _status("VmHWM") - before)


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0
