"""Trees: values are combined along a fixed binary tree of the ranks, and divided on the way back.

In round k = 0, 1, ... every rank r that is a multiple of 2^(k+1) takes the value of rank r + 2^k, if there is one, and calls
`combine(own, theirs)`. The answer is at rank 0. The tree depends only on the number of ranks, and so do the bits. Tall-skinny QR and
tournament pivoting are such reductions. `tree_down` walks the rounds in reverse, so `expand` can pop from a stack what `combine` pushed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.comm.messages.buffers import Array
from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator

#: The tags of the length of a value and of the value itself, on the shadow.
_LENGTH, _VALUE = 1, 2


def tree_reduce(comm: Communicator, value: Any, combine: Callable[[Any, Any], Any], broadcast: bool = False) -> Any:
    """Combine the values of all ranks, which are arrays or tuples of arrays of any shape.

    Returns the result at rank 0 and None elsewhere, or the result on every rank with `broadcast`.
    """
    comm._count(0)
    distance = 1
    given = False
    while distance < comm.size and not given:
        if comm.rank & distance:
            _send(comm, value, comm.rank - distance)
            given = True
        elif comm.rank + distance < comm.size:
            value = combine(value, _recv(comm, comm.rank + distance))
        distance *= 2
    if not broadcast:
        return None if given else value
    return tree_down(comm, value if comm.rank == 0 else None, lambda whole: (whole, whole))


def tree_down(comm: Communicator, value: Any, expand: Callable[[Any], tuple[Any, Any]]) -> Any:
    """Divide a value from rank 0 down: each node of the tree calls `expand(value) -> (own, theirs)`. Returns this rank's piece."""
    comm._count(0)
    distance = 1
    while distance < comm.size:
        distance *= 2
    top = comm.rank == 0
    while distance > 1:
        half = distance // 2
        if not top and comm.rank % distance == half:
            value = _recv(comm, comm.rank - half)
            top = True
        elif comm.rank % distance == 0 and comm.rank + half < comm.size:
            value, theirs = expand(value)
            _send(comm, theirs, comm.rank + half)
        distance = half
    return value


def _send(comm: Communicator, value: Any, dest: int) -> None:
    arrays = [np.asarray(a, order="C") for a in (value if isinstance(value, tuple) else (value,))]
    for array in arrays:
        if array.dtype.hasobject:
            raise InputError("tree: found Python objects; expected an array or a tuple of arrays")
    head = json.dumps([isinstance(value, tuple), [[a.dtype.str, list(a.shape)] for a in arrays]]).encode()
    body = [np.frombuffer(head, np.uint8), *(a.reshape(-1).view(np.uint8) for a in arrays)]
    whole = np.concatenate(body)
    shadow = comm._shadow
    shadow.send(np.array([len(head), whole.size], np.int64), dest, _LENGTH)
    shadow.send(whole, dest, _VALUE)
    counters = comm._tally.now
    counters.messages += 1
    counters.bytes += whole.size - len(head)


def _recv(comm: Communicator, source: int) -> Any:
    lengths = np.empty(2, np.int64)
    comm._shadow.recv(lengths, source, _LENGTH)
    whole = np.empty(int(lengths[1]), np.uint8)
    comm._shadow.recv(whole, source, _VALUE)
    several, shapes = json.loads(whole[: lengths[0]].tobytes())
    arrays: list[Array] = []
    at = int(lengths[0])
    for dtype, shape in shapes:
        array = np.empty(shape, np.dtype(dtype))
        array.reshape(-1).view(np.uint8)[...] = whole[at : at + array.nbytes]
        at += array.nbytes
        arrays.append(array)
    return tuple(arrays) if several else arrays[0]
