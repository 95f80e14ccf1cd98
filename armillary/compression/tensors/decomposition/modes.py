"""Folds a matrix or kernel into a tensor whose train is small: the modes have about equal size and join an output and an input mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.errors import InputError

Array = np.ndarray[Any, Any]


def balanced(n: int, count: int) -> tuple[int, ...]:
    """Returns n as a product of `count` factors, as equal as its primes allow, the largest first: 4096 → (8, 8, 8, 8)."""
    factors = [1] * count
    for prime in sorted(_primes(n), reverse=True):
        factors[factors.index(min(factors))] *= prime
    return tuple(sorted(factors, reverse=True))


def _primes(n: int) -> list[int]:
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return [*found, n] if n > 1 else found


def modes_of(shape: Sequence[int], modes: Any = "auto") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns (output modes, input modes) of a weight: linear O×I folded by balanced factors, convolutions O, I·kh·kw as they are.

    `modes` may be a pair of lists instead of "auto", whose products must be O and I.
    """
    out, into = int(shape[0]), math.prod(int(n) for n in shape[1:])
    if isinstance(modes, str):
        if modes != "auto":
            raise InputError(f"modes: found {modes!r}; expected 'auto' or a pair of lists")
        if len(shape) > 2:
            return (out,), tuple(int(n) for n in shape[1:])
        count = max(1, min(4, round(math.log(max(2, min(out, into)), 8))))
        return balanced(out, count), balanced(into, count)
    first, second = (tuple(int(n) for n in side) for side in modes)
    for what, side, whole in (("output", first, out), ("input", second, into)):
        if math.prod(side) != whole:
            raise InputError(f"modes: found {what} modes {side} whose product is {math.prod(side)}; expected {whole}")
    return first, second


def fold(weight: Array, out: Sequence[int], into: Sequence[int]) -> Array:
    """Returns an O×I matrix as a tensor of modes (out_k·in_k), which `TT.matvec` takes."""
    d = len(out)
    parts = weight.reshape(*out, *into).transpose([axis for k in range(d) for axis in (k, d + k)])
    return parts.reshape([o * i for o, i in zip(out, into)])


def unfold(tensor: Array, out: Sequence[int], into: Sequence[int]) -> Array:
    """Returns the O×I matrix that `fold` took."""
    d = len(out)
    parts = tensor.reshape([n for pair in zip(out, into) for n in pair])
    return parts.transpose([2 * k for k in range(d)] + [2 * k + 1 for k in range(d)]).reshape(math.prod(out), math.prod(into))
