"""Makes pairs of matrices that are easy, hard or treacherous for products in fixed point."""

from __future__ import annotations

import numpy as np

from armillary.errors import unknown

Pair = tuple[np.ndarray, np.ndarray]


def pair(family: str, n: int, rng: np.random.Generator) -> Pair:
    """Returns two n×n matrices of a family:

    `uniform` in (−1, 1); `wide-φ`: (U − ½)·exp(φ·N(0, 1)), the usual test of Ozaki schemes; `graded-d`: uniform A·D and D⁻¹·B with D of
    powers of two up to 2^±d, which leaves the product as it is; `rows`: rows of A and columns of B scaled by powers of two up to 2^±40;
    `cancelling`: A and a B whose products nearly cancel; `hilbert`; `zeros`: rows, columns and half of the entries are zero, of both signs;
    `subnormal`: products below float64's normal range; `infinite` and `not-a-number`: one such entry; `integers`: whole numbers of 26 bits.
    """
    name, _, number = family.partition("-")
    a, b = rng.uniform(-1, 1, (n, n)), rng.uniform(-1, 1, (n, n))
    if family == "uniform":
        return a, b
    if name == "wide":
        phi = float(number)
        return tuple((rng.uniform(size=(n, n)) - 0.5) * np.exp(phi * rng.normal(size=(n, n))) for _ in range(2))  # type: ignore[return-value]
    if name == "graded":
        grades = 2.0 ** rng.integers(-int(number), int(number) + 1, n)
        return a * grades, b / grades[:, None]
    if family == "rows":
        return a * 2.0 ** rng.integers(-40, 41, (n, 1)), b * 2.0 ** rng.integers(-40, 41, n)
    if family == "cancelling":
        half = n // 2
        b[half : 2 * half] = -b[:half] * (1 + 2.0**-40 * rng.uniform(-1, 1, (half, n)))
        a[:, half : 2 * half] = a[:, :half]
        return a, b
    if family == "hilbert":
        hilbert = 1 / (np.arange(n)[:, None] + np.arange(n)[None, :] + 1.0)
        return hilbert, hilbert.copy()
    if family == "zeros":
        a[rng.uniform(size=(n, n)) < 0.5] = 0.0
        b[rng.uniform(size=(n, n)) < 0.5] = -0.0
        a[n // 3], b[:, n // 4] = 0.0, 0.0
        return a, b
    if family == "subnormal":
        return a * 2.0**-540, b * 2.0**-530
    if family in ("infinite", "not-a-number"):
        a[n // 2, n // 3] = np.inf if family == "infinite" else np.nan
        return a, b
    if family == "integers":
        return tuple(rng.integers(-(2**26) + 1, 2**26, (n, n)).astype(np.float64) for _ in range(2))  # type: ignore[return-value]
    raise unknown("family", family, FAMILIES)


#: The families by name; numbers are parts of it.
FAMILIES = (
    "uniform", "wide-0", "wide-0.5", "wide-1", "wide-2", "wide-4", "graded-5", "graded-10", "graded-20", "graded-40", "graded-200",
    "rows", "cancelling", "hilbert", "zeros", "subnormal", "infinite", "not-a-number", "integers",
)  # fmt: skip
