"""Built-in fields that resemble simulation output, made from noise with a power-law spectrum.

Each starts from white noise · |k|^(−slope/2), by FFT, at unit variance. They depend on the generator that they are given and on nothing
else.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.errors import unknown

FIELDS = ("climate-T", "climate-cloud", "cosmology", "turbulence", "hurricane", "particles", "weights")
#: Extents by scale: tiny is for tests, small has some 8 MB, large has the extents of the public sets that the fields stand for.
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "tiny": {"1": (20_000,), "2": (90, 180), "3": (24, 32, 40)},
    "small": {"1": (2_097_152,), "2": (1024, 2048), "3": (128, 128, 128)},
    "large": {"1": (280_953_867,), "2": (1800, 3600), "3": (512, 512, 512)},
}
DIMENSIONS = dict.fromkeys(FIELDS, "3") | {"climate-T": "2", "climate-cloud": "2", "weights": "2", "particles": "1"}


def shape_of(name: str, scale: str) -> tuple[int, ...]:
    """Returns the extents of a built-in field at this scale."""
    if scale == "large" and name == "hurricane":
        return (100, 500, 500)
    return SHAPES[scale][DIMENSIONS[name]]


def field(name: str, shape: tuple[int, ...], rng: np.random.Generator, dtype: type = np.float32) -> np.ndarray:
    """Returns the built-in field of that name."""
    if name not in FIELDS:
        raise unknown("field", name, FIELDS)
    return np.ascontiguousarray(_MAKE[name](shape, rng), dtype=dtype)


def spectral_noise(shape: tuple[int, ...], slope: float, rng: np.random.Generator) -> np.ndarray:
    """Returns Gaussian noise of unit variance and no mean whose power falls as |k|^−slope; float64."""
    from scipy import fft

    white = fft.rfftn(rng.standard_normal(shape), workers=-1)
    squared = np.zeros(white.shape)
    for axis, n in enumerate(shape):
        k = fft.rfftfreq(n, 1 / n) if axis == len(shape) - 1 else fft.fftfreq(n, 1 / n)
        squared += (k**2).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    squared.flat[0] = 1.0
    white *= squared ** (-slope / 4)
    white.flat[0] = 0.0
    made: np.ndarray = fft.irfftn(white, s=shape, workers=-1)
    return made / made.std()


def _climate_t(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    g, o = spectral_noise(shape, 3.0, rng), spectral_noise(shape, 2.2, rng)
    latitude = np.linspace(-math.pi / 2, math.pi / 2, shape[0])[:, None]
    return 288 - 45 * np.sin(latitude) ** 2 - 13 * np.maximum(o - 0.5, 0) + 4 * g


def _climate_cloud(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return np.clip(0.35 + 0.5 * spectral_noise(shape, 2.5, rng), 0, 1)


def _cosmology(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return np.exp(2 * spectral_noise(shape, 3.2, rng))


def _turbulence(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return 50 * spectral_noise(shape, 11 / 3, rng)


def _hurricane(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    # Wind along x of a vortex of 60 m/s at a radius that grows with height, about an axis that leans; calm inside, falling off outside.
    z, y, x = (np.linspace(0, 1, n) for n in shape)
    z, y, x = z[:, None, None], y[None, :, None], x[None, None, :]
    from_y, from_x = y - 0.5 - 0.08 * z, x - 0.5 - 0.05 * z
    distance = np.sqrt(from_x**2 + from_y**2) + 1e-9
    radius = 0.06 * (1 + z)
    speed = 60 * np.where(distance < radius, distance / radius, (radius / distance) ** 0.6)
    return -speed * from_y / distance + 3 * spectral_noise(shape, 11 / 3, rng)


def _particles(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    # Particles in lattice order, x running slowest of the three indices of the lattice, in a box of 256.
    (n,) = shape
    box = 256.0
    place = box * np.arange(n) / n + 2 * spectral_noise(shape, 3.0, rng) + 0.1 * rng.standard_normal(n)
    return place % box


def _weights(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return rng.standard_t(4, shape)


_MAKE = {
    "climate-T": _climate_t, "climate-cloud": _climate_cloud, "cosmology": _cosmology, "turbulence": _turbulence,
    "hurricane": _hurricane, "particles": _particles, "weights": _weights,
}  # fmt: skip
