"""Reads weights and tensors from files, and writes trains to files. Pickles are refused."""

from __future__ import annotations

import fnmatch
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.extras import need
from armillary.files import check_readable, map_array, read_arrays
from armillary.files.opening import STREAM_BYTES

from ..decomposition.tensor_train import TT

Array = np.ndarray[Any, Any]


def read_tensors(path: str | os.PathLike[str], layers: str = "*") -> dict[str, Array]:
    """Reads the float tensors of at least two modes in a `.safetensors`, `.npz` or `.npy` file whose names match a pattern (`layer3.*`).

    A PyTorch file (`.pt`, `.pth`) is read with `weights_only=True`: nothing in it is run.
    """
    path = Path(path)
    check_readable(path)
    ending = path.suffix.lower()
    readers = {".safetensors": _safetensors, ".npz": _npz, ".npy": _npy, ".pt": _torch, ".pth": _torch}
    if ending in (".pkl", ".pickle"):
        raise InputError("found a pickle, which could run anything; expected safetensors (convert it)", where=str(path))
    if ending not in readers:
        raise InputError(f"found {path.name}; expected .safetensors, .npz, .npy, .pt or .pth", where=str(path))
    found = {name: a for name, a in readers[ending](path).items() if fnmatch.fnmatch(name, layers) and a.ndim > 1 and a.dtype.kind == "f"}
    if not found:
        raise InputError(f'found no float tensor of two modes or more named "{layers}"; expected one', where=str(path))
    for name, a in found.items():
        if not np.isfinite(a).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(a))[0])
            raise InputError(f"{name}: found {a[at]} at {at}; expected finite numbers", where=str(path))
        found[name] = a if a.dtype in (np.float32, np.float64) else a.astype(np.float32)
    return found


def _safetensors(path: Path, most_bytes: int = STREAM_BYTES) -> dict[str, Array]:
    load_file = need("safetensors.numpy").load_file
    # A safetensors file holds its tensors unpacked, so it is as large as they are.
    if check_readable(path).st_size > most_bytes:
        raise InputError(f"found {path.stat().st_size:,} bytes; expected at most {most_bytes:,}", where=str(path))
    try:
        return dict(load_file(path))
    except Exception as error:
        raise InputError(f"not a safetensors file: {one_line(str(error))}", where=str(path)) from None


def _npz(path: Path) -> dict[str, Array]:
    return read_arrays(path, limit=STREAM_BYTES)


def _npy(path: Path) -> dict[str, Array]:
    try:
        return {path.stem: map_array(path)}
    except InputError as error:
        # NumPy's own message would advise to load what it takes for a pickle.
        if "pickle" in str(error):
            raise InputError("not an array of numbers: a pickle, or nothing that NumPy wrote", where=str(path)) from None
        raise


def _torch(path: Path) -> dict[str, Array]:
    torch = need("torch")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {str(name): value.detach().float().numpy() for name, value in state.items() if hasattr(value, "detach")}
    except Exception as error:
        said = one_line(str(error))[:120]
        raise InputError(f"not a state dict of tensors alone (convert it to safetensors): {said}", where=str(path)) from None


def to_safetensors(trains: dict[str, TT], path: str | os.PathLike[str]) -> None:
    """Writes the cores of named trains to one file, as `name/0`, `name/1`, …"""
    save_file = need("safetensors.numpy").save_file
    cores = {f"{name}/{k}": np.ascontiguousarray(core) for name, train in trains.items() for k, core in enumerate(train.cores)}
    counts = json.dumps({name: len(train.cores) for name, train in trains.items()})
    save_file(cores, str(path), metadata={"format": "armillary.tt", "trains": counts})


def from_safetensors(path: str | os.PathLike[str], *, most_bytes: int = STREAM_BYTES) -> dict[str, TT]:
    """Reads the trains that `to_safetensors` wrote, from a file of at most `most_bytes` bytes."""
    found = _safetensors(Path(path), most_bytes)
    counts: dict[str, int] = {}
    for name in found:
        train, _, k = name.rpartition("/")
        if not train or not re.fullmatch(r"[0-9]{1,6}", k):
            raise InputError(f'found the tensor "{one_line(name, 60)}"; expected cores named train/0, train/1, …', where=str(path))
        counts[train] = max(counts.get(train, 0), int(k) + 1)
    try:
        return {train: TT(tuple(found[f"{train}/{k}"] for k in range(count))) for train, count in counts.items()}
    except KeyError as error:
        raise InputError(f"found no core {error}; expected all of a train", where=str(path)) from None
