"""The same proofs in the subgroup of 101 elements of the numbers modulo 607, where a forger succeeds often enough to be counted.

The group is written multiplicatively, as modular arithmetic has it: P, T, A and B are numbers modulo 607, and k and r are modulo 101.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

MODULUS, ORDER, GENERATOR = 607, 101, 64
#: Powers of the generator, and which power a number is.
POWERS: Numbers = np.array([pow(GENERATOR, e, MODULUS) for e in range(ORDER)], np.int64)
_TABLE: Numbers = np.array([[pow(int(base), e, MODULUS) for e in range(ORDER)] for base in range(MODULUS)], np.int64)


def raised(base: Any, exponent: Any) -> Numbers:
    """base^exponent, for arrays."""
    return _TABLE[base, np.asarray(exponent) % ORDER]


def combined(bases: Numbers, x: Numbers) -> Numbers:
    """Π Pᵢ^xᵢ over the last axis: the sum of the additive notation."""
    found = np.ones(np.broadcast_shapes(bases.shape, x.shape)[:-1], np.int64)
    for i in range(x.shape[-1]):
        found = found * raised(bases[..., i], x[..., i]) % MODULUS
    return found


def shifted(bases: Numbers, k: Numbers, r: Numbers) -> Numbers:
    """Tᵢ = Pᵢ^k·g^rᵢ."""
    return raised(bases, np.asarray(k)[..., None]) * POWERS[r % ORDER] % MODULUS


def accepted(k: Numbers, r: Numbers, x: Numbers, a: Numbers, b: Numbers) -> npt.NDArray[np.bool_]:
    """Whether B = A^k·g^⟨x, r⟩."""
    return np.asarray(b == raised(a, k) * POWERS[(x * r).sum(axis=-1) % ORDER] % MODULUS)


def forged_share(keys: int, terms: int, rng: np.random.Generator, r: Numbers | None = None) -> float:
    """The share of keys under which the best forger of 2G2T is believed: a fixed D, and a guess among the multipliers that may be."""
    bases = POWERS[rng.integers(1, ORDER, terms)]
    k = rng.integers(1, ORDER, keys)
    r = rng.integers(0, ORDER, (keys, terms)) if r is None else r
    x = rng.integers(0, ORDER, (keys, terms))
    t = shifted(bases[None], k, r)
    difference = POWERS[1]
    a = combined(bases[None], x) * difference % MODULUS
    b = combined(t, x) * raised(difference, rng.integers(1, ORDER, keys)) % MODULUS
    return float(accepted(k, r, x, a, b).mean())


def half_forged_share(keys: int, terms: int, rng: np.random.Generator) -> float:
    """The same for a client that recomputes one of two random halves of the sum, when the server changes the other one or this."""
    bases = POWERS[rng.integers(1, ORDER, terms)]
    x = rng.integers(0, ORDER, (keys, terms))
    mask = rng.integers(0, 2, (keys, terms))
    halves = np.stack([combined(bases[None], x * mask), combined(bases[None], x * (1 - mask))])
    forged = halves.copy()
    changed = rng.integers(0, 2, keys)
    forged[changed, np.arange(keys)] = forged[changed, np.arange(keys)] * POWERS[1] % MODULUS
    coin = rng.integers(0, 2, keys)
    return float((forged[coin, np.arange(keys)] == halves[coin, np.arange(keys)]).mean())
