"""KV memory in blocks: a pool for each replica, found again by the chained hash of what a block holds.

A block is in use by one sequence or by several with the same prefix, or it is free. The free ones stand in a list from the one that
was free longest; one that still holds a named prefix keeps its name until it is taken, so that it can be found and used again. The
blocks of a sequence are held by its last one: each knows the one before it, and since a name stands for the whole chain, shared
blocks have one chain behind them. Everything is indexed by replica first.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import part

from .state import (
    FREE,
    NOTHING,
    OLDER,
    USERS,
    YOUNGER,
)  # fmt: skip


@part
def _place(key, value, r, name):
    """Where a name is, or the empty place where it would be."""
    mask = key.shape[1] - 1
    at = np.int64((name * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while value[r, at] != NOTHING and key[r, at] != name:
        at = (at + 1) & mask
    return at


@part
def find(s, r, name):
    """The block of that name, or NOTHING."""
    return s.value[r, _place(s.key, s.value, r, name)]


@part
def give_name(s, r, block, name):
    """Lets a block be found by its name; the first block of a name keeps it."""
    at = _place(s.key, s.value, r, name)
    if s.value[r, at] == NOTHING:
        s.key[r, at] = name
        s.value[r, at] = block
        s.name[r, block] = name


@part
def _forget(s, r, block):
    mask = s.key.shape[1] - 1
    hole = _place(s.key, s.value, r, s.name[r, block])
    s.name[r, block] = 0
    at = (hole + 1) & mask
    while s.value[r, at] != NOTHING:
        wish = np.int64((s.key[r, at] * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
        if ((at - wish) & mask) >= ((at - hole) & mask):
            s.key[r, hole] = s.key[r, at]
            s.value[r, hole] = s.value[r, at]
            hole = at
        at = (at + 1) & mask
    s.value[r, hole] = NOTHING


@part
def _unlink(s, r, block):
    older, younger = s.blocks[r, block, OLDER], s.blocks[r, block, YOUNGER]
    s.blocks[r, older, YOUNGER] = younger
    s.blocks[r, younger, OLDER] = older
    s.eng[r, FREE] -= 1


@part
def take(s, r, last):
    """The block that was free longest, put behind `last` of a sequence; there must be one."""
    gate = s.blocks.shape[1] - 1
    block = s.blocks[r, gate, YOUNGER]
    _unlink(s, r, block)
    if s.name[r, block] != 0:
        _forget(s, r, block)
    s.blocks[r, block, USERS] = 1
    s.blocks[r, block, OLDER] = last
    return block


@part
def hits(s, r, names, first, most):
    """(how many of names[first : first + most] are there, one after the other; how many of their last ones are free)."""
    count = 0
    while count < most and find(s, r, names[first + count]) != NOTHING:
        count += 1
    free = 0
    while free < count and s.blocks[r, find(s, r, names[first + count - 1 - free]), USERS] == 0:
        free += 1
    return count, free


@part
def share(s, r, names, first, count, free):
    """Another sequence takes the blocks that `hits` found: the chain of the last one in use, and behind it the free ones.

    The block of a name need not be the one before the block of the next name: two sequences may have computed the same
    beginning at once. The chain of a block in use is in use whole.
    """
    last = np.int64(NOTHING)
    if free < count:
        last = find(s, r, names[first + count - free - 1])
        block = last
        for _ in range(count - free):
            s.blocks[r, block, USERS] += 1
            block = s.blocks[r, block, OLDER]
    for i in range(count - free, count):
        block = find(s, r, names[first + i])
        _unlink(s, r, block)
        s.blocks[r, block, USERS] = 1
        s.blocks[r, block, OLDER] = last
        last = block
    return last


@part
def release(s, r, last, count):
    """A sequence gives its `count` blocks back, the last one first: ends of prefixes are forgotten before their beginnings."""
    gate = s.blocks.shape[1] - 1
    block = last
    for _ in range(count):
        previous = s.blocks[r, block, OLDER]
        s.blocks[r, block, USERS] -= 1
        if s.blocks[r, block, USERS] == 0:
            youngest = s.blocks[r, gate, OLDER]
            s.blocks[r, youngest, YOUNGER] = block
            s.blocks[r, block, OLDER] = youngest
            s.blocks[r, block, YOUNGER] = gate
            s.blocks[r, gate, OLDER] = block
            s.eng[r, FREE] += 1
        block = previous
