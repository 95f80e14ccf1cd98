"""KV memory in blocks: one pool per replica, in which a block is found by the chained hash of its content.

A block is in use by one sequence or by several with the same prefix, or it is free. Free blocks form a list in the order in which they
became free; a block that still holds a named prefix keeps its name until it is taken, so that it can be found and used again. A sequence
refers to its last block, and each block to the one before it; because a name stands for a whole chain, shared blocks share the chain before
them. The first index of every array is the replica.
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
    """The place of a name in the table, or the empty place where it would be."""
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
    """Registers a block under its name; the first block of a name keeps it."""
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
    """Takes the block that has been free longest and appends it to block `last` of a sequence; one must be free."""
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
    """(the number of leading names of names[first : first + most] that are present, the number of blocks at their end that are free)."""
    count = 0
    while count < most and find(s, r, names[first + count]) != NOTHING:
        count += 1
    free = 0
    while free < count and s.blocks[r, find(s, r, names[first + count - 1 - free]), USERS] == 0:
        free += 1
    return count, free


@part
def share(s, r, names, first, count, free):
    """Another sequence takes the blocks that `hits` found: the chain of the last one that is in use, and after it the free ones.

    The block of one name need not precede the block of the next name, because two sequences may have computed the same prefix at the same
    time. If a block is in use, its whole chain is in use.
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
    """Frees the `count` blocks of a sequence, the last one first, so that the ends of prefixes are forgotten before their beginnings."""
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
