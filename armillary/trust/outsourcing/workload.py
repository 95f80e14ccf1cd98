"""The built-in work: generators from a label, and scalars of four kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import unknown

from .group.bases import Bases, Scalars, random_scalars, read_only

if TYPE_CHECKING:
    from pathlib import Path

LABEL = "armillary"
SCALAR_KINDS = ("uniform", "small", "sparse", "bits")
#: The share of scalars that are not 0 in the sparse kind.
DENSITY = 0.1


@dataclass(frozen=True)
class Sums:
    """Fixed bases, and the scalars of one query."""

    bases: Bases
    x: Scalars


def scalars_of(kind: str, count: int, rng: np.random.Generator) -> Scalars:
    """(count, 4) words: uniform below q, small (64 bits), sparse (nine of ten are 0, the others uniform), or bits (0 or 1)."""
    if kind == "uniform":
        return read_only(random_scalars(rng, count))
    if kind == "sparse":
        return read_only(random_scalars(rng, count) * (rng.random(count) < DENSITY).astype(np.uint64)[:, None])
    found = np.zeros((count, 4), np.uint64)
    if kind == "small":
        found[:, 0] = rng.integers(0, 1 << 64, count, dtype=np.uint64)
    elif kind == "bits":
        found[:, 0] = rng.integers(0, 2, count, dtype=np.uint64)
    else:
        raise unknown("kind of scalars", kind, SCALAR_KINDS)
    return read_only(found)


def labelled(count: int, kind: str, rng: np.random.Generator) -> Sums:
    """Built-in work."""
    return Sums(Bases.from_label(LABEL, count), scalars_of(kind, count, rng))


def read(path: Path, scalars: str, kind: str) -> tuple[Bases, Scalars | None]:
    """Bases, and scalars where a file of them is given."""
    from .group.bases import check_lengths
    from .readers.containers import read_bases, read_scalars

    bases = read_bases(path)
    if not scalars:
        return bases, None
    x = read_scalars(scalars)
    check_lengths(bases, x)
    return bases, x
