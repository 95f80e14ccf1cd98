"""CFseq's first module, text similarity enhancement, orders the fields by their entropies and by how much they tell about each other.

    H_i = -Σ p log2 p,   H(j | i) = H(i, j) - H(i),   a_ij = 1 - H(j | i) / H_j

A field with as many values as lines "explains" every other one in a sample, so affinities are corrected for chance: with a⁰ the affinity
after the values of j have been shuffled, (a - a⁰) / (1 - a⁰), and 0 where a⁰ is near 1. The correction and the chaining of the groups are
our design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop

from ..records.sample import Sample
from ..records.split import intern

CONSTANT, REDUNDANT, MEDIUM, NOISE = "constant", "redundant", "medium", "noise"
#: Bits of entropy below which a field is constant, bits below which it is redundant, and the share of distinct values that makes it noise.
CONSTANT_BITS, REDUNDANT_BITS, NOISE_SHARE = 0.05, 4.0, 0.8
DERIVED, GLUED = 0.9, 0.95
#: The number of lines on which pairs of fields are judged.
PAIR_LINES = 8192


def entropy(ids: np.ndarray) -> float:
    """Returns the entropy of a sequence of values in bits."""
    if not len(ids):
        return 0.0
    shares = np.unique(ids, return_counts=True)[1] / len(ids)
    return float(max(0.0, -(shares * np.log2(shares)).sum()))


def conditional_entropy(ids: np.ndarray, given: np.ndarray) -> float:
    """Returns the bits of `ids` once `given` is known: H(given, ids) - H(given)."""
    joint = given.astype(np.int64) * (int(ids.max(initial=0)) + 1) + ids
    return max(0.0, entropy(joint) - entropy(given))


@dataclass(frozen=True)
class Similarity:
    """Statistics of the fields of a sample, one entry per field; `affinity[i, j]` is the share of field j that field i determines."""

    entropy: np.ndarray
    #: Bits once the same field of the previous line is known.
    entropy_after_previous: np.ndarray
    mean_bytes: np.ndarray
    distinct_share: np.ndarray
    affinity: np.ndarray
    #: Mean length of the common prefix, and of the common suffix, of fields i and j of one line, in bytes.
    shared_prefix: np.ndarray
    shared_suffix: np.ndarray
    #: Mean length of the prefix, and of the suffix, that a field shares with the previous line, in bytes.
    previous_prefix: np.ndarray
    previous_suffix: np.ndarray
    group: tuple[str, ...]

    @property
    def bits_per_byte(self) -> np.ndarray:
        """Entropy over mean length, by which fields are ranked."""
        return np.asarray(self.entropy / np.maximum(1.0, self.mean_bytes))


def similarity(sample: Sample) -> Similarity:
    """Computes the entropies, affinities, shared prefixes and suffixes, and groups of all fields of a sample."""
    starts, ends = sample.records()
    lines, fields = starts.shape
    ids = np.empty((fields, lines), np.int64)
    for field in range(fields):
        ids[field], _ = intern(sample.data, np.ascontiguousarray(starts[:, field]), np.ascontiguousarray(ends[:, field]))
    bits = np.array([entropy(row) for row in ids])
    after = np.array([conditional_entropy(row[1:], row[:-1]) if lines > 1 else 0.0 for row in ids])
    distinct = np.array([len(np.unique(row)) for row in ids]) / lines
    lengths = (ends - starts).mean(axis=0)
    group = tuple(
        CONSTANT if h < CONSTANT_BITS else NOISE if share > NOISE_SHARE and lines > 1 else REDUNDANT if h < REDUNDANT_BITS else MEDIUM
        for h, share in zip(bits, distinct, strict=True)
    )
    some = slice(0, min(lines, PAIR_LINES))
    prefix, suffix, previous_prefix, previous_suffix = _alike(sample.data, starts[some], ends[some])
    return Similarity(
        bits, after, lengths, distinct, _affinity(ids[:, some]), prefix, suffix, previous_prefix, previous_suffix, group
    )  # fmt: skip


def _affinity(ids: np.ndarray) -> np.ndarray:
    fields, lines = ids.shape
    dense = [np.unique(row, return_inverse=True)[1] for row in ids]
    shuffled = np.random.Generator(np.random.PCG64(lines)).permutation(lines)
    bits = [entropy(row) for row in dense]
    found = np.zeros((fields, fields))
    for i in range(fields):
        for j in range(fields):
            if i == j or bits[j] < CONSTANT_BITS or bits[i] < CONSTANT_BITS:
                continue
            plain = 1 - conditional_entropy(dense[j], dense[i]) / bits[j]
            chance = 1 - conditional_entropy(dense[j][shuffled], dense[i]) / bits[j]
            found[i, j] = max(0.0, (plain - chance) / (1 - chance)) if chance < 0.95 else 0.0
    return found


@loop
def _alike(data, starts, ends):
    lines, fields = starts.shape
    prefix = np.zeros((fields, fields))
    suffix = np.zeros((fields, fields))
    previous_prefix = np.zeros(fields)
    previous_suffix = np.zeros(fields)
    for line in range(lines):
        for i in range(fields):
            for j in range(fields + 1):
                other = line if j < fields else line - 1
                field = j if j < fields else i
                if other < 0 or (other == line and field == i):
                    continue
                most = min(ends[line, i] - starts[line, i], ends[other, field] - starts[other, field])
                same = 0
                while same < most and data[starts[line, i] + same] == data[starts[other, field] + same]:
                    same += 1
                tail = 0
                while tail < most and data[ends[line, i] - 1 - tail] == data[ends[other, field] - 1 - tail]:
                    tail += 1
                if j < fields:
                    prefix[i, j] += same
                    suffix[i, j] += tail
                else:
                    previous_prefix[i] += same
                    previous_suffix[i] += tail
    return prefix / lines, suffix / lines, previous_prefix / lines, previous_suffix / lines


def entropy_order(found: Similarity) -> tuple[int, ...]:
    """Sorts the fields by ascending entropy per byte, without chaining."""
    return tuple(int(i) for i in np.argsort(found.bits_per_byte, kind="stable"))


def start_order(found: Similarity) -> tuple[int, ...]:
    """Chains constant and redundant fields by affinity, then come medium fields, then noise.

    A field that another one determines stands right behind it.
    """
    rank = {field: place for place, field in enumerate(entropy_order(found))}
    close = np.maximum(found.affinity, found.shared_prefix / np.maximum(1.0, found.mean_bytes)[None, :])
    low = sorted((i for i, g in enumerate(found.group) if g in (CONSTANT, REDUNDANT)), key=lambda i: (found.group[i] != CONSTANT, rank[i]))
    chain: list[int] = []
    while low:
        # Constants first, as they are alike to everything; then whatever is nearest to the last.
        nearest = low[0] if not chain or found.group[low[0]] == CONSTANT else max(low, key=lambda i: (close[chain[-1], i], -rank[i]))
        chain.append(nearest)
        low.remove(nearest)
    rest = [i for g in (MEDIUM, NOISE) for i in sorted((i for i, own in enumerate(found.group) if own == g), key=rank.__getitem__)]
    order = list(chain)
    for field in rest:
        parents = [i for i in order if found.affinity[i, field] > DERIVED and found.group[i] in (MEDIUM, NOISE)]
        if parents:
            order.insert(order.index(max(parents, key=lambda i: found.affinity[i, field])) + 1, field)
        else:
            order.append(field)
    return tuple(order)


def blocks(found: Similarity, order: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups the fields of this order into blocks: all constants are one, and a field stands with the one that determines it."""
    made: list[list[int]] = []
    constants = [field for field in order if found.group[field] == CONSTANT]
    if constants:
        made.append(constants)
    for field in order:
        if found.group[field] == CONSTANT:
            continue
        home = next(
            (b for b in made for other in b if found.group[other] not in (CONSTANT, NOISE) and found.affinity[other, field] > GLUED), None
        )
        if home is None:
            made.append([field])
        else:
            home.append(field)
    return tuple(tuple(block) for block in made)
