"""The kind and the device of an array, and a count of the bytes that have left a device."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Literal, TypeAlias

import array_api_compat
import numpy as np

from ..errors import InputError

#: A NumPy or CuPy array or a PyTorch tensor. They have no common type, so the checks below run when a function is called.
Array: TypeAlias = Any
Kind = Literal["numpy", "cupy", "torch"]
REAL = ("float32", "float64")
FLOATING = (*REAL, "complex64", "complex128")

_lock = threading.Lock()
_copied = 0


def kind_of(*arrays: Array) -> Kind:
    """The common kind of all `arrays`: "numpy", "cupy" or "torch"."""
    if not arrays:
        raise InputError("no array was given; expected at least one", where="arrays")
    kinds = {_kind(x) for x in arrays}
    if len(kinds) > 1:
        raise InputError(f"found {' and '.join(sorted(kinds))} arrays together; expected one kind", where="arrays")
    return kinds.pop()


def _kind(x: Array) -> Kind:
    if isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray | np.matrix):
        return "numpy"
    if array_api_compat.is_cupy_array(x):
        return "cupy"
    if array_api_compat.is_torch_array(x):
        return "torch"
    raise InputError(f"found {type(x).__name__}; expected a NumPy, CuPy or PyTorch array", where="arrays")


def namespace(*arrays: Array) -> Any:
    """The array API namespace of `arrays`, which must be of one kind (`array_api_compat.array_namespace`)."""
    kind_of(*arrays)
    return array_api_compat.array_namespace(*arrays)


def device_of(*arrays: Array) -> Any:
    """The common device of all `arrays`, as their library names it: "cpu" for NumPy, a `Device` for CuPy, a `torch.device`."""
    kind_of(*arrays)
    devices = [array_api_compat.device(x) for x in arrays]
    if any(device != devices[0] for device in devices):
        found = " and ".join(sorted({str(device) for device in devices}))
        raise InputError(f"found arrays on {found}; expected one device (nothing is moved silently)", where="arrays")
    return devices[0]


def on_accelerator(x: Array) -> bool:
    """Whether reading `x` from Python copies it from a device to the host."""
    return kind_of(x) == "cupy" or (kind_of(x) == "torch" and x.device.type != "cpu")


def to_host(x: Array) -> np.ndarray:
    """`x` as a NumPy array: itself or a view if it is already on the host, and otherwise a copy that `copied_bytes` counts.

    A PyTorch tensor is detached from its gradient first.
    """
    kind = kind_of(x)
    if kind == "numpy":
        return x
    if kind == "torch" and str(x.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
        raise InputError(f"found {x.dtype}, which NumPy lacks; expected another dtype (convert it first)", where="to_host")
    if on_accelerator(x):
        count_copied(int(x.nbytes))
    if kind == "cupy":
        return import_module("cupy").asnumpy(x)
    return x.detach().resolve_conj().resolve_neg().cpu().numpy()


def copied_bytes() -> int:
    """The bytes that this package has copied from a device to the host since the process began, in all threads."""
    return _copied


def count_copied(nbytes: int) -> None:
    """Adds `nbytes` to `copied_bytes`."""
    global _copied
    with _lock:
        _copied += nbytes


def checked(where: str, dtypes: Iterable[str], dimensions: Iterable[int] | None = None, **arrays: Array) -> Kind:
    """Checks that the kind, device, dtype and, if given, number of dimensions of `arrays` are what `where` accepts; returns their kind."""
    device_of(*arrays.values())
    for name, x in arrays.items():
        found = dtype_name(x)
        if found not in dtypes:
            raise InputError(f"found dtype {found}; expected {' or '.join(dtypes)}", where=f"{where}: {name}")
        if dimensions is not None and x.ndim not in dimensions:
            expected = " or ".join(str(d) for d in dimensions)
            raise InputError(f"found {x.ndim} dimensions; expected {expected}", where=f"{where}: {name}")
    if len(found_all := {dtype_name(x) for x in arrays.values()}) > 1:
        raise InputError(f"found {' and '.join(sorted(found_all))} together; expected one dtype", where=where)
    return kind_of(*arrays.values())


def dtype_name(x: Array) -> str:
    """The name of `x`'s dtype, the same for the three kinds."""
    return str(x.dtype).removeprefix("torch.")
