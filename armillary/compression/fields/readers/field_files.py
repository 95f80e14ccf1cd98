"""Reads fields from files: raw little-endian numbers, `.npy`, HDF5 and NetCDF-4 datasets, Zarr arrays.

Raw files carry their extents in the name (`CLDHGH_1_1800_3600.f32`: the trailing integers, slowest first), or the caller gives them.
Nothing is allocated before the extents are compared with the file's size.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.extras import need
from armillary.files import check_readable, map_array
from armillary.files.opening import STREAM_BYTES

RAW = {".f32": "<f4", ".f64": "<f8", ".d64": "<f8", ".dat": "<f4"}
HDF5 = (".h5", ".hdf5", ".he5", ".nc", ".nc4")


def read_field(
    path: str | Path, shape: tuple[int, ...] | str | None = None, dataset: str | None = None, *, most_bytes: int = STREAM_BYTES
) -> np.ndarray:
    """Reads the array in a file: float32 or float64, 1 to 4 dimensions. `file.h5:/path` names a dataset, as `dataset` does.

    An array of more than `most_bytes` bytes is refused, because a small HDF5 file or Zarr folder can announce any shape.
    """
    found = open_field(path, shape, dataset)
    try:
        size = math.prod(found.shape) * np.dtype(found.dtype).itemsize
        if size > most_bytes:
            raise InputError(f"found an array of {size:,} bytes; expected at most {most_bytes:,}", where=str(path))
        return np.ascontiguousarray(found[...])
    except (OSError, RuntimeError, ValueError, MemoryError) as error:
        raise error if isinstance(error, InputError) else InputError(f"cannot be read ({one_line(str(error))})", where=str(path)) from None
    finally:
        opened = getattr(found, "file", None)
        if opened is not None:
            opened.close()


def open_field(path: str | Path, shape: tuple[int, ...] | str | None = None, dataset: str | None = None) -> Any:
    """Opens the array in a file without reading it: an object with shape, dtype and slices, for `compress_stream`."""
    text = str(path)
    if dataset is None and ":" in text and not Path(text).exists():
        text, _, dataset = text.rpartition(":")
    file = Path(text)
    check_readable(file, folder=True, where=text)
    wanted = _shape(shape, text) if shape else None
    ending = file.suffix.lower()
    if ending in RAW:
        found: Any = _raw(file, RAW[ending], wanted)
    elif ending == ".npy":
        found = map_array(file)
    elif ending in HDF5:
        found = _hdf5(file, dataset)
    elif ending == ".zarr" or file.is_dir():
        found = _zarr(file, dataset)
    else:
        raise InputError(f'found the ending "{ending}"; expected {", ".join([*RAW, ".npy", *HDF5, ".zarr"])}', where=text)
    if np.dtype(found.dtype).kind != "f" or np.dtype(found.dtype).itemsize not in (4, 8):
        raise InputError(f"found {found.dtype}; expected float32 or float64", where=text)
    if wanted is not None and tuple(found.shape) != wanted:
        if math.prod(wanted) != math.prod(found.shape):
            raise InputError(f"found {math.prod(found.shape)} values; shape {wanted} has {math.prod(wanted)}", where=text)
        found = np.asarray(found[...]).reshape(wanted)
    if not 1 <= len(found.shape) <= 4:
        raise InputError(f"found {len(found.shape)} dimensions; expected 1 to 4", where=text)
    return found


def dimensions_in_name(name: str) -> tuple[int, ...] | None:
    """Returns the trailing integers of a file's name, slowest first, leading ones left out; None where there is none."""
    found = re.search(r"(?:(?<=[_\-.x])|^)(\d+(?:[_x]\d+)*)$", Path(name).stem)
    if found is None:
        return None
    numbers = [int(n[:19]) for n in re.split(r"[_x]", found.group(1))]
    while len(numbers) > 1 and numbers[0] == 1:
        numbers = numbers[1:]
    return tuple(numbers)


def _shape(shape: tuple[int, ...] | str, where: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(n) for n in (re.split(r"[x,]", shape) if isinstance(shape, str) else shape))
    except (TypeError, ValueError):
        numbers = ()
    if not 1 <= len(numbers) <= 4 or any(n < 1 for n in numbers):
        raise InputError(f"shape: found {shape!r}; expected 1 to 4 positive integers, slowest first", where=where)
    return numbers


def _raw(file: Path, dtype: str, shape: tuple[int, ...] | None) -> np.ndarray:
    size = file.stat().st_size
    known = shape or dimensions_in_name(file.name)
    if known is None:
        known = (size // np.dtype(dtype).itemsize,)
    elif shape is None and math.prod(known) * np.dtype(dtype).itemsize != size:
        # One of the first numbers may be no extent but a time step, so the integers behind it are taken if they fit.
        known = next((known[i:] for i in range(1, len(known)) if math.prod(known[i:]) * np.dtype(dtype).itemsize == size), known)
    need = math.prod(known) * np.dtype(dtype).itemsize
    if need != size or not size:
        raise InputError(f"found {size} bytes; shape {known} of {np.dtype(dtype)} needs {need}", where=str(file))
    return np.memmap(file, np.dtype(dtype), mode="r", shape=known)


def _hdf5(file: Path, dataset: str | None) -> Any:
    h5py = need("h5py")
    try:
        opened = h5py.File(file, "r")
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise InputError(f"not an HDF5 file that can be read: {one_line(str(error))}", where=str(file)) from None
    try:
        return _dataset(h5py, opened, file, dataset)
    except BaseException as error:
        opened.close()
        if isinstance(error, OSError | RuntimeError | KeyError | ValueError) and not isinstance(error, InputError):
            raise InputError(f"not an HDF5 file that can be read: {one_line(str(error))}", where=str(file)) from None
        raise


def _dataset(h5py: Any, opened: Any, file: Path, dataset: str | None) -> Any:
    names: list[str] = []
    opened.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) and item.dtype.kind == "f" else None)
    if dataset is None:
        if len(names) != 1:
            raise InputError(
                f"found {len(names)} datasets of floats ({', '.join(names[:8])}); name one: {file.name}:/path", where=str(file)
            )
        return opened[names[0]]
    if dataset not in opened or not isinstance(opened[dataset], h5py.Dataset):
        raise InputError(f'no dataset "{dataset}"; there are {", ".join(names[:8])}', where=str(file))
    return opened[dataset]


def _zarr(file: Path, dataset: str | None) -> Any:
    zarr = need("zarr")
    try:
        found = zarr.open(str(file), mode="r", path=dataset.strip("/") if dataset else None)
    except Exception as error:
        raise InputError(f"not a Zarr array: {error}", where=str(file)) from None
    if not hasattr(found, "dtype"):
        raise InputError(f"found a group; name an array in it: {file.name}:/path", where=str(file))
    return found
