"""Memory cells: how pulses change their conductance, and how close writing and verifying come to a target.

A cell is at one of `levels` evenly spaced conductances from `g_min` to `g_max`. A pulse moves it by about one level along a curve that
flattens: after P of L pulses up, G = g_min + (g_max − g_min)·(1 − exp(−ν·P/L)) / (1 − exp(−ν)), with ν the nonlinearity of the device;
pulses down follow the same curve from the top. Every pulse adds noise of `cycle_noise` relative to the whole range, and ν varies between
cells by `cell_noise` relative to itself. The devices and their figures come from MELISO+ (arXiv 2509.21137); that ν is the exponent of the
curve is our interpretation of its nonlinearity label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.kernels import kernel

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Device:
    """A kind of cell, with conductances in siemens, voltages in volts and times in seconds."""

    name: str
    g_max: float
    g_min: float
    levels: int
    write_up: float
    write_down: float
    pulse: float
    curve_up: float
    curve_down: float
    #: Standard deviations of a pulse (relative to the range), of a cell's curve (relative to itself), and of a read (relative to each
    #: cell's current).
    cycle_noise: float
    cell_noise: float = 0.0
    read_noise: float = 0.005
    read_voltage: float = 0.5
    read_time: float = 5e-9

    def __post_init__(self) -> None:
        if self.levels < 2:
            raise InputError(f"levels: found {self.levels}; expected at least 2")
        if not 0 < self.g_min < self.g_max:
            raise InputError(f"conductances: found {self.g_min:g} to {self.g_max:g} S; expected 0 < g_min < g_max")
        if min(self.cycle_noise, self.cell_noise, self.read_noise) < 0 or min(self.pulse, self.read_time) <= 0:
            raise InputError("found negative noise, or a time that is not positive; expected noise from 0 and positive times")

    @property
    def step(self) -> float:
        """Siemens between two levels."""
        return (self.g_max - self.g_min) / (self.levels - 1)

    def ideal(self) -> Device:
        """The same cell without noise, with as many levels as float64 can distinguish."""
        return replace(self, levels=1 << 53, cycle_noise=0.0, cell_noise=0.0, read_noise=0.0, curve_up=0.0, curve_down=0.0)


_DEVICES = {
    device.name: device
    for device in (
        Device("EpiRAM", 1.2346e-5, 2.459e-7, 256, 5.0, -3.0, 5e-6, 0.5, -0.5, 0.02),
        Device("TaOx-HfOx", 1e-5, 1e-6, 128, 1.6, 1.6, 50e-9, 0.04, -0.63, 0.037),
        Device("Ag-aSi", 3.846e-8, 3.077e-9, 97, 3.2, -2.8, 300e-6, 2.4, -4.88, 0.035),
        Device("AlOx-HfO2", 5.917e-5, 1.3357e-5, 40, 0.9, -1.0, 100e-6, 1.94, -0.61, 0.05),
    )
}


def devices() -> tuple[str, ...]:
    """The names of the devices with published figures."""
    return tuple(_DEVICES)


def device(name: str | Device) -> Device:
    """A device by its name."""
    if isinstance(name, Device):
        return name
    if name not in _DEVICES:
        raise unknown("device", str(name), _DEVICES)
    return _DEVICES[name]


@dataclass(frozen=True)
class Programmed:
    """Cells after writing: their conductances, and the pulses (up, down) that each took."""

    conductance: Array
    up: Array
    down: Array


def program(kind: Device, wanted: Array, rng: np.random.Generator, verify: int = 10) -> Programmed:
    """Writes cells, which are all at `g_min` before, to the levels nearest to `wanted` (in siemens).

    After the first pulses, each cell is read and corrected while it is off by more than half a level, at most `verify` times. Pulses add
    noise, so a correction goes only as far as it is expected to help: if e levels are missing and each pulse has noise of s levels, n
    pulses leave an expected square error of (e − n)² + n·s², which is least for n = e − s²/2.
    """
    low, high, step = kind.g_min, kind.g_max, kind.step
    if wanted.size and (wanted.min() < low * (1 - 1e-12) or wanted.max() > high * (1 + 1e-12)):
        raise InputError(f"wanted: found conductances outside {low:g} to {high:g} S; expected conductances inside the range")
    target = low + np.rint((wanted - low) / step) * step
    if kind.levels >= 1 << 50:
        # The levels are finer than the steps of float64, so the target itself is the level.
        target = np.clip(wanted, low, high)
    held = np.full(wanted.shape, low)
    up, down = np.zeros(wanted.shape, np.int64), np.zeros(wanted.shape, np.int64)
    spread: Array = np.ones(wanted.shape)
    if kind.cell_noise:
        spread = 1.0 + kind.cell_noise * np.asarray(rng.normal(size=wanted.shape))
    undone = (kind.cycle_noise * (kind.levels - 1)) ** 2 / 2
    for _ in range(verify + 1):
        missing = (target - held) / step
        pulses = np.rint(np.sign(missing) * np.maximum(np.abs(missing) - undone, 0.0))
        if kind.cycle_noise == 0.0 and kind.curve_up == 0.0 and kind.curve_down == 0.0:
            return Programmed(target, up + np.maximum(pulses, 0).astype(np.int64), down + np.maximum(-pulses, 0).astype(np.int64))
        moving = pulses != 0
        if not moving.any():
            break
        up += np.maximum(pulses, 0).astype(np.int64)
        down += np.maximum(-pulses, 0).astype(np.int64)
        drawn = np.asarray(rng.normal(size=wanted.shape))[moving]
        noise = kind.cycle_noise * (high - low) * np.sqrt(np.abs(pulses[moving])) * drawn
        # Few cells move after the first pulses, and only those are computed.
        rising, falling = pulses > 0, pulses < 0
        moved = held.copy()
        moved[rising] = _pushed(kind, held[rising], pulses[rising], kind.curve_up * spread[rising])
        moved[falling] = _pulled(kind, held[falling], -pulses[falling], -kind.curve_down * spread[falling])
        held[moving] = np.clip(moved[moving] + noise, low, high)
    return Programmed(held, up, down)


def _pushed(kind: Device, held: Array, pulses: Array, curve: Any) -> Array:
    """The conductance after pulses up, from the cell's position on its curve."""
    share = (held - kind.g_min) / (kind.g_max - kind.g_min)
    return kind.g_min + (kind.g_max - kind.g_min) * _further(share, pulses / (kind.levels - 1), curve)


def _pulled(kind: Device, held: Array, pulses: Array, curve: Any) -> Array:
    """The conductance after pulses down."""
    share = (kind.g_max - held) / (kind.g_max - kind.g_min)
    return kind.g_max - (kind.g_max - kind.g_min) * _further(share, pulses / (kind.levels - 1), curve)


def _further(share: Array, more: Array, curve: Any) -> Array:
    """The position that `more` of all pulses reach from a given position, on the curve (1 − e^(−νp)) / (1 − e^(−ν)), which is straight for
    ν = 0.
    """
    reached = np.empty(share.shape)
    curves = np.ascontiguousarray(np.broadcast_to(np.asarray(curve, np.float64), share.shape))
    _along(share.reshape(-1), more.reshape(-1), curves.reshape(-1), reached.reshape(-1))
    return reached


@kernel
def _along(share: Array, more: Array, curve: Array, reached: Array) -> None:
    # A loop, because NumPy's vector functions have other last bits on other processors.
    for i in range(share.shape[0]):
        if abs(curve[i]) > 1e-9:
            whole = -math.expm1(-curve[i])
            place = -math.log1p(-min(share[i] * whole, 1 - 1e-15)) / curve[i]
            reached[i] = -math.expm1(-curve[i] * min(place + more[i], 1.0)) / whole
        else:
            reached[i] = min(share[i] + more[i], 1.0)
