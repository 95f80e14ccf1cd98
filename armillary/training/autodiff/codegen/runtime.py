"""The few loops that generated functions call: a meter for memory, tapes that grow, and outer products.

`meter` holds bytes in use, the most there were, and the limit (0 for none); it counts what tapes, snapshots and buffers really take.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop
from armillary.kernels.exponential import exp, exp32


@loop
def take(meter, nbytes):  # type: ignore[no-untyped-def]
    """Counts bytes that were allocated."""
    meter[0] += nbytes
    if meter[0] > meter[1]:
        meter[1] = meter[0]
    if meter[2] > 0 and meter[0] > meter[2]:
        raise MemoryError("a tape passes the limit")


@loop
def grown(tape, length, meter):  # type: ignore[no-untyped-def]
    """A longer tape with the same content; both exist while it is copied."""
    longer = max(length, 2 * tape.size, 16)
    take(meter, longer * tape.itemsize)
    made = np.empty(longer, tape.dtype)
    made[: tape.size] = tape
    meter[0] -= tape.size * tape.itemsize
    return made


@loop(error_model="numpy")
def add_outer(total, x, y):  # type: ignore[no-untyped-def]
    """Adds x yᵀ to a matrix, row by row."""
    for i in range(x.size):
        for j in range(y.size):
            total[i, j] += x[i] * y[j]


@loop(error_model="numpy")
def set_outer(total, x, y):  # type: ignore[no-untyped-def]
    """Sets a matrix to x yᵀ, row by row."""
    for i in range(x.size):
        for j in range(y.size):
            total[i, j] = x[i] * y[j]


@loop(error_model="numpy")
def add(total, part):  # type: ignore[no-untyped-def]
    """Adds an array to another one of the same size, in the order of memory."""
    a, b = total.reshape(total.size), part.reshape(part.size)
    for i in range(a.size):
        a[i] += b[i]


@loop
def save(kept, number, array):  # type: ignore[no-untyped-def]
    """Copies an array into snapshot `number`."""
    flat = array.reshape(array.size)
    begin = number * flat.size
    for i in range(flat.size):
        kept[begin + i] = flat[i]


@loop
def restore(kept, number, array):  # type: ignore[no-untyped-def]
    """Copies snapshot `number` back into an array."""
    flat = array.reshape(array.size)
    begin = number * flat.size
    for i in range(flat.size):
        flat[i] = kept[begin + i]


@loop
def tape_float64(meter, length):  # type: ignore[no-untyped-def]
    """A counted tape."""
    take(meter, 8 * length)
    return np.empty(length, np.float64)


@loop
def tape_float32(meter, length):  # type: ignore[no-untyped-def]
    """A counted tape."""
    take(meter, 4 * length)
    return np.empty(length, np.float32)


@loop
def tape_int64(meter, length):  # type: ignore[no-untyped-def]
    """A counted tape."""
    take(meter, 8 * length)
    return np.empty(length, np.int64)


@loop
def tape_int32(meter, length):  # type: ignore[no-untyped-def]
    """A counted tape."""
    take(meter, 4 * length)
    return np.empty(length, np.int32)


@loop
def tape_uint8(meter, length):  # type: ignore[no-untyped-def]
    """A counted tape."""
    take(meter, length)
    return np.empty(length, np.uint8)


#: What generated functions may call.
RUNTIME = {
    "take": take, "grown": grown, "add": add, "add_outer": add_outer, "set_outer": set_outer, "save": save, "restore": restore,
    "exp": exp, "exp32": exp32, "tape_float64": tape_float64,
    "tape_float32": tape_float32, "tape_int64": tape_int64, "tape_int32": tape_int32, "tape_uint8": tape_uint8,
}  # fmt: skip
