"""Buffers: how the arrays and bytes that a caller gives become contiguous bytes, without a copy wherever that is possible."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from armillary.comm.messages.layout import Layout
from armillary.comm.virtual.ghost import Ghost
from armillary.errors import InputError

Array: TypeAlias = np.ndarray[Any, Any]
#: An array, an object with the buffer protocol such as bytes, or a tuple (array, Layout).
Buffer: TypeAlias = Any
Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
#: DLPack's device types for main memory and for main memory that a GPU may read.
_MAIN_MEMORY = (1, 3)


def array_of(buffer: Buffer, what: str = "buffer") -> Array:
    """Return the array itself, or an array over the memory of a bytes-like object."""
    if isinstance(buffer, np.ndarray):
        if buffer.dtype.hasobject:
            raise InputError(f"{what}: found an array of Python objects; expected numbers or bytes")
        return buffer
    if isinstance(buffer, np.generic):
        return np.asarray(buffer)
    if isinstance(buffer, Ghost):
        return buffer  # type: ignore[return-value]
    if hasattr(buffer, "__dlpack_device__"):
        return _in_main_memory(buffer, what)
    try:
        return np.frombuffer(buffer, np.uint8)
    except (TypeError, ValueError, BufferError):
        raise InputError(f"{what}: found {type(buffer).__name__}; expected an array, bytes, or (array, Layout)") from None


def _in_main_memory(buffer: Any, what: str) -> Array:
    """Return a NumPy array over the memory of another library's array, such as a PyTorch tensor."""
    try:
        device = buffer.__dlpack_device__()[0]
    except (ValueError, RuntimeError, BufferError):
        device = None
    if device not in _MAIN_MEMORY:
        raise InputError(f"{what}: found an array on a device; expected one in main memory, because only backend nccl moves device arrays")
    try:
        if hasattr(buffer, "detach"):
            found: Array = buffer.detach().numpy()
            return found
        return np.from_dlpack(buffer)
    except (TypeError, RuntimeError, BufferError):
        kind = getattr(buffer, "dtype", type(buffer).__name__)
        raise InputError(f"{what}: found an array of {kind}; expected a strided array of a type that NumPy has") from None


def made_like(buffer: Buffer, shape: Any = None) -> Any:
    """Return an uninitialised array of the same library and type as `buffer`, with its shape or with `shape`."""
    if hasattr(buffer, "new_empty"):
        return buffer.new_empty(buffer.shape if shape is None else shape)
    return np.empty_like(array_of(buffer), shape=shape)


def flat(buffer: Buffer, what: str = "buffer", writable: bool = False) -> Array:
    """Return a one-dimensional view of a contiguous buffer, in its own type."""
    if type(buffer) is tuple:
        raise InputError(f"{what}: found a buffer with a Layout; expected a contiguous one here (Layout.pack makes one)")
    array = array_of(buffer, what)
    if isinstance(array, Ghost):
        return array.reshape(-1)
    if writable and not array.flags.writeable:
        raise InputError(f"{what}: found a read-only buffer; expected one to write into")
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.flags.f_contiguous:
        return array.T.reshape(-1)
    raise InputError(f"{what}: found an array that is not contiguous and has no Layout; expected a contiguous array or (array, Layout)")


def outgoing(buffer: Buffer) -> Bytes:
    """Return the bytes to send: a view of the buffer, or a packed copy if it has a layout."""
    if type(buffer) is tuple:
        array, layout = described(buffer)
        return layout.pack(array).view(np.uint8)
    return _real(flat(buffer, "send").view(np.uint8))


def incoming(buffer: Buffer) -> tuple[Bytes, tuple[Array, Layout] | None]:
    """Return the bytes to receive into, and the array and layout into which they are unpacked afterwards, or None."""
    if type(buffer) is tuple:
        array, layout = described(buffer)
        return np.empty(layout.nbytes(array.dtype), np.uint8), (array, layout)
    return _real(flat(buffer, "recv", writable=True).view(np.uint8)), None


def _real(found: Bytes) -> Bytes:
    if isinstance(found, Ghost):
        raise InputError("buffer: found a Ghost; expected an array, because only virtual ranks take ghosts, with payload='ghost'")
    return found


def unpack(room: Bytes, nbytes: int, described_by: tuple[Array, Layout]) -> None:
    """Put the `nbytes` bytes that arrived where the layout says. A message shorter than the layout fills the beginning of it."""
    array, layout = described_by
    dtype = np.dtype(np.uint8) if layout.kind == "struct" else array.dtype
    if nbytes < room.nbytes:
        whole = layout.pack(array).view(np.uint8)
        whole[:nbytes] = room[:nbytes]
        room = whole
    layout.unpack(room.view(dtype), array)


def described(buffer: tuple[Any, ...]) -> tuple[Array, Layout]:
    """Check a tuple (array, layout) and return its two parts."""
    if len(buffer) != 2 or not isinstance(buffer[1], Layout):
        raise InputError("buffer: found a tuple; expected an array or (array, Layout)")
    array = array_of(buffer[0])
    if not array.flags.c_contiguous:
        raise InputError("buffer: found an array that is not C-contiguous; expected the whole array that the layout describes")
    size = array.nbytes if buffer[1].kind == "struct" else array.size
    if size < buffer[1].extent:
        raise InputError(f"buffer: found {size} elements; expected the {buffer[1].extent} that the layout reaches")
    return array, buffer[1]


class Parts(list[Array]):
    """Views of one array, one for each rank, with their lengths and their positions in it."""

    def __init__(self, whole: Array, counts: list[int], starts: list[int]) -> None:
        super().__init__(whole[start : start + count] for count, start in zip(counts, starts))
        self.whole = whole
        self.counts = counts
        self.starts = starts


def cut(array: Array, counts: Any, displacements: Any, size: int, what: str) -> Parts:
    """Return one view of `array` for each rank: `counts[i]` elements from `displacements[i]` on, by default one after the other."""
    return Parts(array, *places(array.size, counts, displacements, size, what))


def places(length: int, counts: Any, displacements: Any, size: int, what: str) -> tuple[list[int], list[int]]:
    """Check the counts and displacements of `size` parts of a buffer of `length` elements, and return both as lists."""
    counts = [int(n) for n in counts]
    if len(counts) != size:
        raise InputError(f"{what}: found {len(counts)} counts; expected one for each of the {size} ranks")
    if displacements is None:
        displacements = np.concatenate(([0], np.cumsum(counts)[:-1])) if counts else []
    starts = [int(n) for n in displacements]
    if len(starts) != size:
        raise InputError(f"{what}: found {len(starts)} displacements; expected one for each of the {size} ranks")
    for count, start in zip(counts, starts):
        if count < 0 or start < 0 or (count and start + count > length):
            raise InputError(
                f"{what}: found count {count} at displacement {start}; expected them inside the {length} elements of the buffer"
            )
    return counts, starts
