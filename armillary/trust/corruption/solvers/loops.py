"""The loops that the solvers consist of. Each does its work on the real data and tells the modelled core what it did.

`m` is the state of a `Processor`; `at` holds the addresses of the arrays. Columns and pointers are proved to be in range before a loop
follows them (`matrices.csr.in_range`), after every fault too. Sums are in the order of the entries, so that all machines agree.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from armillary.kernels import kernel

from ..machine.processor import assist, branch, load, sweep, work

Array = np.ndarray[Any, Any]
#: Instructions of a loop's turn: per entry of a row (loads, product, sum, next index, test, branch), per row, per element of a vector.
ENTRY, ROW, ELEMENT = 8, 6, 5
#: The places of the branches in the program.
IN_ROW, ROWS, DONE, CLOSER, WAITING, NEW, DROPPED, NEXT = range(0x10, 0x90, 0x10)


@kernel
def product(m: Array, at: Array, values: Array, columns: Array, pointers: Array, x: Array, y: Array) -> None:
    """y = A x. at: addresses of values, columns, pointers, x, y."""
    for i in range(len(pointers) - 1):
        load(m, at[2] + 8 * (i + 1))
        total = 0.0
        turns = 0
        for k in range(pointers[i], pointers[i + 1]):
            j = columns[k]
            load(m, at[0] + 8 * k)
            load(m, at[1] + 4 * k)
            load(m, at[3] + 8 * j)
            assist(m, values[k])
            assist(m, x[j])
            total += values[k] * x[j]
            branch(m, IN_ROW, True)
            turns += 1
        branch(m, IN_ROW, False)
        load(m, at[4] + 8 * i)
        branch(m, ROWS, True)
        y[i] = total
        work(m, turns * ENTRY + ROW, 2 * turns)


@kernel
def dot(m: Array, a_at: int, a: Array, b_at: int, b: Array) -> float:
    """The sum of a[i] b[i]."""
    sweep(m, a_at, len(a), 8)
    sweep(m, b_at, len(b), 8)
    work(m, ELEMENT * len(a), 2 * len(a))
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@kernel
def combine(m: Array, a: float, x_at: int, x: Array, b: float, y_at: int, y: Array) -> None:
    """y = a x + b y."""
    sweep(m, x_at, len(x), 8)
    sweep(m, y_at, len(y), 8)
    work(m, ELEMENT * len(x), 3 * len(x))
    for i in range(len(x)):
        y[i] = a * x[i] + b * y[i]


@kernel
def correct(m: Array, at: Array, b: Array, diagonal: Array, y: Array, x: Array) -> None:
    """x += (b - y) / diagonal: Jacobi's step. at: addresses of b, diagonal, y, x."""
    for which in range(4):
        sweep(m, at[which], len(x), 8)
    work(m, 7 * len(x), 3 * len(x))
    for i in range(len(x)):
        x[i] += (b[i] - y[i]) / diagonal[i]


@kernel
def damped(m: Array, at: Array, damping: float, y: Array, jump: Array, x: Array) -> float:
    """x = damping y + (1 - damping) jump; returns the sum of the changes. at: addresses of y, jump, x."""
    for which in range(3):
        sweep(m, at[which], len(x), 8)
    work(m, 8 * len(x), 5 * len(x))
    change = 0.0
    for i in range(len(x)):
        new = damping * y[i] + (1 - damping) * jump[i]
        change += abs(new - x[i])
        x[i] = new
    return change


@kernel
def test(m: Array, done: int) -> None:
    """The branch that ends a solver."""
    work(m, 2, 0)
    branch(m, DONE, done)


@kernel
def substitute(
    m: Array, at: Array, values: Array, columns: Array, pointers: Array, b: Array, x: Array, first: int, last: int
) -> None:
    """Rows `first` to `last` of the forward substitution; the last entry of a row is its diagonal. at: values, columns, pointers, b, x."""
    for i in range(first, last):
        load(m, at[2] + 8 * (i + 1))
        load(m, at[3] + 8 * i)
        total = b[i]
        diagonal = 1.0
        turns = 0
        for k in range(pointers[i], pointers[i + 1]):
            j = columns[k]
            load(m, at[0] + 8 * k)
            load(m, at[1] + 4 * k)
            assist(m, values[k])
            # A compiler's loop ends before the diagonal: its place and not its column says which entry it is.
            if k == pointers[i + 1] - 1:
                diagonal = values[k]
            else:
                load(m, at[4] + 8 * j)
                assist(m, x[j])
                total -= values[k] * x[j]
            branch(m, IN_ROW, True)
            turns += 1
        branch(m, IN_ROW, False)
        x[i] = total / diagonal
        load(m, at[4] + 8 * i)
        branch(m, ROWS, True)
        work(m, turns * ENTRY + ROW, 2 * turns)


@kernel
def square(
    m: Array, at: Array, values: Array, columns: Array, pointers: Array, total: Array, seen: Array, listed: Array, drop: float,
    first: int, last: int, sums: Array,
) -> None:  # fmt: skip
    """Rows `first` to `last` of A A, of which entries below `drop` are left out.

    total: the row's sums; seen: the last row that had a column, -1 at first; listed: the row's columns. at: values, columns, pointers,
    total, seen, listed, output. sums: [rows, 4], to which a row adds its kept sum, its dropped sum, its kept entries, and a sum of its
    kept values weighted by column, by which two results are told apart.
    """
    kept_before = 0
    for i in range(first, last):
        found = 0
        load(m, at[2] + 8 * (i + 1))
        for k in range(pointers[i], pointers[i + 1]):
            middle = columns[k]
            load(m, at[0] + 8 * k)
            load(m, at[1] + 4 * k)
            load(m, at[2] + 8 * middle)
            load(m, at[2] + 8 * (middle + 1))
            branch(m, ROWS, True)
            turns = 0
            for e in range(pointers[middle], pointers[middle + 1]):
                j = columns[e]
                load(m, at[0] + 8 * e)
                load(m, at[1] + 4 * e)
                load(m, at[4] + 4 * j)
                load(m, at[3] + 8 * j)
                assist(m, values[k])
                assist(m, values[e])
                new = seen[j] != i
                branch(m, NEW, new)
                if new:
                    seen[j] = i
                    total[j] = 0.0
                    load(m, at[5] + 4 * found)
                    listed[found] = j
                    found += 1
                total[j] += values[k] * values[e]
                branch(m, IN_ROW, True)
                turns += 1
            branch(m, IN_ROW, False)
            work(m, turns * (ENTRY + 4) + ROW, 2 * turns)
        branch(m, ROWS, False)
        for c in range(found):
            j = listed[c]
            load(m, at[5] + 4 * c)
            load(m, at[3] + 8 * j)
            small = abs(total[j]) < drop
            branch(m, DROPPED, small)
            if small:
                sums[i, 1] += total[j]
            else:
                load(m, at[6] + 16 * (kept_before & 65535))
                kept_before += 1
                sums[i, 0] += total[j]
                sums[i, 2] += 1
                sums[i, 3] += total[j] * (1.0 + j)
        work(m, 8 * found + ROW, found)


@kernel
def relax(
    m: Array, at: Array, weights: Array, columns: Array, pointers: Array, distance: Array, front: Array, fronted: int, ahead: Array,
    waiting: Array,
) -> int:  # fmt: skip
    """One round of Bellman and Ford: the edges of the front are relaxed, and vertices that came closer are the next one.

    waiting: whether a vertex is in `ahead`. Returns the size of `ahead`. at: weights, columns, pointers, distance, front, ahead, waiting.
    """
    found = 0
    for f in range(fronted):
        i = front[f]
        load(m, at[4] + 4 * f)
        load(m, at[2] + 8 * i)
        load(m, at[2] + 8 * (i + 1))
        load(m, at[3] + 8 * i)
        here = distance[i]
        turns = 0
        for k in range(pointers[i], pointers[i + 1]):
            j = columns[k]
            load(m, at[1] + 4 * k)
            load(m, at[0] + 8 * k)
            load(m, at[3] + 8 * j)
            assist(m, weights[k])
            length = here + weights[k]
            closer = length < distance[j]
            branch(m, CLOSER, closer)
            if closer:
                distance[j] = length
                load(m, at[3] + 8 * j)
                load(m, at[6] + j)
                new = waiting[j] == 0
                branch(m, WAITING, new)
                if new:
                    waiting[j] = 1
                    load(m, at[5] + 4 * found)
                    ahead[found] = j
                    found += 1
                work(m, 5, 0)
            branch(m, IN_ROW, True)
            turns += 1
        branch(m, IN_ROW, False)
        branch(m, NEXT, True)
        work(m, turns * ENTRY + ROW, turns)
    for f in range(found):
        waiting[ahead[f]] = 0
    work(m, 2 * found, 0)
    return found


@kernel
def bad_product(sums: Array, sizes: Array, x: Array, y: Array, unit: float) -> float:
    """Column checksums: |w x - 1'y| over the rounding that is to be expected, `unit` times the sum of |a| |x|."""
    whole = size = total = 0.0
    for i in range(len(x)):
        whole += sums[i] * x[i]
        size += sizes[i] * abs(x[i])
    for i in range(len(y)):
        total += y[i]
    gap = abs(whole - total)
    # A gap that is no number is the worst of all.
    return gap / (unit * size + 1e-300) if gap == gap else math.inf
