"""Which object is asked for: Zipf's law over n objects, exactly or for very many, and popularity that shifts.

Ranks count from 0, the most popular first. To give ranks to objects at random, use `rng.permutation(n)[ranks]`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .checks import Floats, Ints, count

#: From this many draws on, and from as many as there are objects, a table of first guesses pays for itself.
_MANY = 1 << 14


def zipf_shares(n: int, exponent: float) -> Floats:
    """The share of the requests for each of n objects: r^-exponent / Σ, for ranks r = 1 … n.

    Web requests have exponents of 0.64 to 0.83 (Breslau and others, Web caching and Zipf-like distributions, 1999); 0 is uniform.
    """
    if not 0 <= exponent <= 100:
        raise InputError(f"exponent: found {exponent}; expected 0 to 100")
    weights = np.arange(1, count("n", n, 1) + 1, dtype=np.float64) ** -float(exponent)
    return weights / weights.sum()


def cumulative(shares: npt.ArrayLike) -> Floats:
    """The cumulative shares, of which the last is 1, for `draw`; `shares` need not sum to 1."""
    weights = np.asarray(shares, np.float64)
    if weights.ndim != 1 or not len(weights) or not np.isfinite(weights).all() or weights.min() < 0 or weights.sum() <= 0:
        raise InputError("shares: expected numbers of at least 0, not all 0")
    below = np.cumsum(weights)
    return below / below[-1]


def draw(rng: np.random.Generator, below: Floats, size: int, *, side: Literal["left", "right"] = "right") -> Ints:
    """`size` ranks by inversion of the cumulative shares `below`: the first rank whose cumulative share exceeds u, u uniform in [0, 1).

    The draws are `rng.random(size)`, and the result is that of `np.searchsorted(below, u, side)`, cut at the last rank. Long draws
    begin their search from a table of first guesses, which takes constant time on average. `side="left"` accepts a share equal to u too.

    Chen and Asau, On generating random variates from an empirical distribution, 1974.
    """
    u = rng.random(count("size", size))
    if size < max(_MANY, len(below)) or side == "left":
        return np.minimum(np.searchsorted(below, u, side), len(below) - 1).astype(np.int64)
    from .guided import guided_search

    return guided_search(below, u)


def zipf(rng: np.random.Generator, n: int, exponent: float, size: int) -> Ints:
    """`size` independent ranks of n objects, rank r − 1 with a probability proportional to r^-exponent; exact.

    The draws are `rng.random(size)`. Memory is 8 bytes per object; see `zipf_approximate` for billions of them.
    """
    return draw(rng, cumulative(zipf_shares(n, exponent)), size)


def zipf_approximate(rng: np.random.Generator, n: int, exponent: float, size: int) -> Ints:
    """Ranks as from `zipf` in constant memory, by inversion of the continuous law x^-exponent on [1/2, n + 1/2], rounded.

    The shares of the first few ranks differ from Zipf's by some percent, those beyond the tenth by less than a thousandth. The draws
    are `rng.random(size)`. The exponent may not be 1, where the inverse has another form.
    """
    power = 1 - float(exponent)
    if not 0 <= exponent <= 100 or power == 0:
        raise InputError(f"exponent: found {exponent}; expected 0 to 100 without 1")
    top, bottom = (count("n", n, 1) + 0.5) ** power, 0.5**power
    ranks = (bottom + rng.random(count("size", size)) * (top - bottom)) ** (1 / power)
    return np.clip(np.round(ranks).astype(np.int64) - 1, 0, max(0, n - 1))


def shifted(ranks: npt.NDArray[np.integer], turns: npt.NDArray[np.integer], n: int, *, every: int, step: int) -> Ints:
    """Objects of n whose popularity shifts: object = (rank + step·⌊turn / every⌋) mod n.

    turns: the place of each request in the whole sequence. Each time that `every` requests have passed, what was coldest becomes
    hottest and the rest slides down by `step` objects.
    """
    return np.asarray((ranks + count("step", step) * (turns // count("every", every, 1))) % count("n", n, 1), np.int64)
