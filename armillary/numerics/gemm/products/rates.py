"""Which method is fastest on this device, from rates that are measured once and kept in the user's cache."""

from __future__ import annotations

import functools
import json
import os
import platform
from importlib import import_module
from pathlib import Path

from armillary import arrays
from armillary.errors import one_line
from armillary.timing import timed

from ..adp import Adp
from ..digits.digit_products import products
from ..digits.looking import look
from ..digits.slices import slices_for
from ..native import Native
from ..ozaki2 import MODULI, Ozaki2, moduli_for
from .method import Method

#: The size of the matrices that are timed, on a host and on a device.
_SIZES = {False: 512, True: 4096}


def fastest(a: arrays.Array, b: arrays.Array) -> Method:
    """Returns the method that is fastest for these matrices, from the number of bits that they need and the rates of their device."""
    wide = look(a, b) if 0 not in (*a.shape, *b.shape) else None
    if wide is None:
        return Native()
    rates = device_rates(a)
    s, moduli = slices_for(wide), moduli_for(wide, a.shape[1])
    # Seconds per unit of work m·n·k; the measured rates include slicing and recombination.
    seconds: dict[Method, float] = {Native(): 1 / rates["native"]}
    if s <= 20:
        seconds[Adp(max_slices=20)] = products(s) / products(7) / rates["adp7"]
    if moduli <= len(MODULI):
        seconds[Ozaki2()] = moduli / 15 / rates["ozaki2-15"]
    return min(seconds, key=lambda method: seconds[method])


def device_rates(like: arrays.Array) -> dict[str, float]:
    """Returns multiply-adds per second of each method on the device of `like`, at 7 slices and 15 moduli, from the user's cache or measured
    now.
    """
    return dict(_rates(arrays.kind_of(like), _device_name(like), arrays.on_accelerator(like), like))


def _device_name(x: arrays.Array) -> str:
    if not arrays.on_accelerator(x):
        return f"{platform.machine()} {platform.processor()} {os.cpu_count()}"
    if arrays.kind_of(x) == "torch":
        return str(import_module("torch").cuda.get_device_name(x.device))
    return str(import_module("cupy").cuda.runtime.getDeviceProperties(x.device.id)["name"].decode())


_known: dict[tuple[str, str], dict[str, float]] = {}


def _rates(kind: str, name: str, device: bool, like: arrays.Array) -> dict[str, float]:
    key = (kind, name)
    if key not in _known:
        stored = _read()
        label = f"{kind}: {name}"
        if label not in stored:
            stored[label] = _measure(like, _SIZES[device])
            _write(stored)
        _known[key] = stored[label]
    return _known[key]


def _measure(like: arrays.Array, n: int) -> dict[str, float]:
    xp = arrays.namespace(like)
    numbers = xp.arange(n * n, dtype=xp.float64, device=arrays.device_of(like))
    a = xp.reshape(xp.remainder(numbers * 0.6180339887, 1.0), (n, n)) + 0.5
    methods: dict[str, Method] = {"native": Native(), "adp7": Adp(slices=7), "ozaki2-15": Ozaki2(moduli=15)}
    found = {}
    for name, method in methods.items():
        work = functools.partial(method.multiply, a, a)
        work()  # Compiles and touches memory for the first time.
        found[name] = n**3 / timed(work, a, min_seconds=0, min_calls=3).median
    return found


@functools.cache
def _cache_file() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "armillary" / "gemm-rates.json"


def _read() -> dict[str, dict[str, float]]:
    try:
        stored = json.loads(_cache_file().read_text())
        return {
            str(name): {method: float(rates[method]) for method in ("native", "adp7", "ozaki2-15")}
            for name, rates in stored.items()
            if all(float(rates[method]) > 0 for method in ("native", "adp7", "ozaki2-15"))
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _write(stored: dict[str, dict[str, float]]) -> None:
    file = _cache_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}")
        part.write_text(json.dumps(stored, indent=1))
        part.replace(file)
    except OSError as error:
        import warnings

        warnings.warn(f"the rates of this device could not be kept ({one_line(str(error))})", stacklevel=2)
