"""Random numbers inside compiled loops (xoshiro256++), and the pairs of agents that meet."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from armillary.kernels import kernel, part

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int32]
LOW = np.uint64(0xFFFFFFFF)


def words(rng: np.random.Generator) -> Words:
    """The four words of a generator's state."""
    return rng.integers(1, 2**64 - 1, 4, np.uint64)


@part
def next_word(state):  # type: ignore[no-untyped-def]
    """64 random bits."""
    found = state[0] + state[3]
    found = ((found << np.uint64(23)) | (found >> np.uint64(41))) + state[0]
    mixed = state[1] << np.uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= mixed
    state[3] = (state[3] << np.uint64(45)) | (state[3] >> np.uint64(19))
    return found


@part
def below(state, bound):  # type: ignore[no-untyped-def]
    """A number from 0 to bound − 1, all equally likely; bound is at most 2**62."""
    size = np.uint64(bound)
    # Numbers above the last whole multiple of the bound are drawn again.
    most = np.uint64(0xFFFFFFFFFFFFFFFF) - (np.uint64(0xFFFFFFFFFFFFFFFF) % size + np.uint64(1)) % size
    found = next_word(state)
    while found > most:
        found = next_word(state)
    return np.int64(found % size)


@part
def _below32(state, bound):  # type: ignore[no-untyped-def]
    """The same for bounds below 2**32, without a division in most cases."""
    size = np.uint64(bound)
    product = (next_word(state) >> np.uint64(32)) * size
    if product & LOW < size:
        least = (LOW + np.uint64(1) - size) % size
        while product & LOW < least:
            product = (next_word(state) >> np.uint64(32)) * size
    return np.int64(product >> np.uint64(32))


@kernel
def draw_pairs(state, agents, first, second):  # type: ignore[no-untyped-def]
    """Fills the pairs (initiator, responder) that meet, each ordered pair of two agents being equally likely."""
    for k in range(len(first)):
        u = _below32(state, agents)
        v = _below32(state, agents - 1)
        first[k] = u
        second[k] = v + (v >= u)
