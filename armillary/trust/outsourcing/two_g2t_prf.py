"""2G2T with shifts from a seed: the client keeps 64 bytes instead of 32 per base, and computes the shifts again for every check.

rᵢ = BLAKE2b-512(seed, i) modulo q. What a server sees of the shifts is then no longer uniformly random but only looks so, so the soundness
is computational: it rests on BLAKE2b as well as on the size of the group. Every check hashes once per term, which takes longer than
the inner product itself. A base cannot be replaced, because its shift would serve twice.

2G2T: Constant-Size, Statistically Sound MSM Outsourcing, arXiv 2602.23464, 2026; the seed and its hash are our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.arena import Claim, Gain, Kind, Level

from .delegation.shifts import SEED_BYTES, hashed
from .forging import toy
from .two_g2t import TwoG2T


@dataclass(frozen=True)
class TwoG2TPrf(TwoG2T):
    """Checks as 2g2t does, with shifts that are hashed from a seed of 32 bytes whenever they are needed."""

    seeded: ClassVar[bool] = True
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("state_bytes", by=Level(at_most=64), on=Kind("sums"), source="our design", says="the client keeps 64 bytes"),
        Claim("response_bytes", by=Level(at_most=64), on=Kind("sums"), source="our design", says="an answer has 64 bytes"),
        Claim("false_accepts", by=Level(at_most=0), on=Kind("attacks"), source="our design", says="no forged answer is accepted"),
        Claim(
            "toy_accepts", by=Level(at_most=2.0), on=Kind("toy"), source="our design",
            says="on a group of 101 elements, the best forger wins at most twice in 101",
        ),
        Claim(
            "verify_s", over=("local", "local-fixed", "local-naive", "recheck"), by=Gain(ratio=(1.0, None)),
            on=(Kind("growing"), Kind("easy")), source="our design",
            says="checking takes less than every way of computing the sum here, also for small, sparse and 0/1 scalars",
        ),
    )  # fmt: skip

    def toy_share(self, keys: int, terms: int, rng: np.random.Generator) -> float:
        """As for 2g2t, with the shifts of each key hashed from a seed of its own."""
        # One seed, and a stretch of indices for each key: the hash knows no difference between the two.
        r = (hashed(rng.bytes(SEED_BYTES), 0, keys * terms)[:, 0] % np.uint64(toy.ORDER)).astype(np.int64).reshape(keys, terms)
        return toy.forged_share(keys, terms, rng, r)
