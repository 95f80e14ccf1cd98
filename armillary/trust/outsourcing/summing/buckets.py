"""Pippenger's sums: each digit's bases go into the digit's bucket, and the buckets are added up from the top.

Scalars are public, so these loops branch on digits and are not constant in time.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from armillary.kernels import kernel
from armillary.trust.outsourcing.group.multiples import ROOM, fill_multiples, point_of_ready
from armillary.trust.outsourcing.group.points import (
    IDENTITY,
    added,
    added_affine,
    doubled_often,
    keep_point,
    made_ready,
    opposite,
    point_at,
    ready_at,
    taken_affine,
)  # fmt: skip


@kernel
def pass_sums(bases, digits, passes, first, step, buckets, used, sums):
    """The sums of passes first, first + step, …, each over the windows j·passes + its number with the j-th copies of all bases.

    bases: (copies, n, 15). digits: (windows, n). buckets: room of (2^(width − 1), 20), and `used` that of one byte per bucket.
    """
    for number in range(first, passes, step):
        used[:] = 0
        for copy in range(bases.shape[0]):
            window = copy * passes + number
            if window >= digits.shape[0]:
                continue
            for i in range(digits.shape[1]):
                digit = digits[window, i]
                if digit > 0:
                    at = digit - 1
                    p = point_at(buckets, at) if used[at] else IDENTITY
                    used[at] = 1
                    keep_point(buckets, at, added_affine(p, ready_at(bases[copy], i)))
                elif digit < 0:
                    at = -digit - 1
                    p = point_at(buckets, at) if used[at] else IDENTITY
                    used[at] = 1
                    keep_point(buckets, at, taken_affine(p, ready_at(bases[copy], i)))
        running, total, begun = IDENTITY, IDENTITY, False
        for at in range(len(used) - 1, -1, -1):
            if used[at]:
                running = added(running, made_ready(point_at(buckets, at)))
                begun = True
            if begun:
                total = added(total, made_ready(running))
        keep_point(sums, number, total)


@kernel
def joined(sums, width, found):
    """The sum over passes of 2^(width · pass) times its sum, in the first row of `found`."""
    total = IDENTITY
    for number in range(len(sums) - 1, -1, -1):
        total = added(doubled_often(total, width), made_ready(point_at(sums, number)))
    keep_point(found, 0, total)


@kernel
def few(bases, digits, tables, found):
    """The sum of few terms on one chain of doublings (Straus), from digits of four bits; tables: room of (n, 8, 20)."""
    for i in range(digits.shape[1]):
        fill_multiples(point_of_ready(ready_at(bases, i)), tables[i])
    total = IDENTITY
    for w in range(digits.shape[0] - 1, -1, -1):
        total = doubled_often(total, 4)
        for i in range(digits.shape[1]):
            digit = digits[w, i]
            if digit > 0:
                total = added(total, point_at(tables[i], digit - 1))
            elif digit < 0:
                total = added(total, opposite(point_at(tables[i], -digit - 1)))
    keep_point(found, 0, total)


#: Rows of a table of `few`.
TABLE_ROWS = ROOM
