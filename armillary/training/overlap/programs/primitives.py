"""The eight primitives, and what else a worker does: bring a region into shared memory, and compute.

A program's roles are generators that yield these actions. An executor decides what they mean: real data on ranks of this machine, or
seconds in the simulator. A region is one (start, stop) per axis of a layout; a tile is the name of what an SM holds in shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

Region = tuple[tuple[int, int], ...]
#: The device that stands for all: a store goes to every device through the multicast address, once up and once down to each.
ALL = -1


class DeadlockFound(Exception):
    """Workers that wait for ever, with the task and the flag that each of them waits for."""


def elements(region: Region) -> int:
    """The number of elements of a region."""
    return math.prod(stop - start for start, stop in region)


class Store(NamedTuple):
    """A tile to a region of a layout on one device, or on all; with `add`, atomically added."""

    layout: str
    device: int
    tile: str
    region: Region
    add: bool


class Reduce(NamedTuple):
    """The sum over all devices of a region, read through the fabric into the same region of `target` here, or, without, left everywhere."""

    target: str
    layout: str
    region: Region
    target_region: Region


class AllReduce(NamedTuple):
    """The sum over all devices of a region, in place on all of them."""

    layout: str
    region: Region


class Signal(NamedTuple):
    """`value` is added to a flag of one device, or of all, after everything that the worker stored before."""

    bar: str
    coord: int
    device: int
    value: int


class Wait(NamedTuple):
    """Waits until the own flag is at least `expected`."""

    bar: str
    coord: int
    expected: int


class Barrier(NamedTuple):
    """Waits until the workers with this flag on all devices are here; the flag is zero again afterwards."""

    bar: str
    coord: int


class Load(NamedTuple):
    """A region of the own memory into a tile; `rows` picks rows of the first axis instead of a range."""

    tile: str
    layout: str
    region: Region
    rows: Any


class Compute(NamedTuple):
    """`function(local)` into a tile; `flops`, and bytes that it reads and writes in the device's memory."""

    tile: str
    function: Callable[[Any], Any]
    flops: float
    reads: float
    writes: float
    attention: bool


Action = Store | Reduce | AllReduce | Signal | Wait | Barrier | Load | Compute


def store_async(layout: str, device: int, tile: str, region: Region) -> Store:
    """Stores a tile to a region of `layout` on one device, or on ALL through multicast."""
    return Store(layout, device, tile, region, False)


def store_add_async(layout: str, device: int, tile: str, region: Region) -> Store:
    """Adds a tile atomically to a region of `layout` on one device."""
    return Store(layout, device, tile, region, True)


def reduce(target: str, layout: str, region: Region, target_region: Region) -> Reduce:
    """Reads a region of all devices, added up in the fabric, into the own `target`."""
    return Reduce(target, layout, region, target_region)


def all_reduce(layout: str, region: Region) -> AllReduce:
    """Adds up a region over all devices in the fabric and stores the sum to all of them, in place."""
    return AllReduce(layout, region)


def signal(bar: str, coord: int, device: int, value: int = 1) -> Signal:
    """Adds `value` to a flag of one device, with release."""
    return Signal(bar, coord, device, value)


def signal_all(bar: str, coord: int, value: int = 1) -> Signal:
    """Adds `value` to a flag of every device, with release."""
    return Signal(bar, coord, ALL, value)


def wait(bar: str, coord: int, expected: int) -> Wait:
    """Waits until the own flag is at least `expected`, with acquire."""
    return Wait(bar, coord, expected)


def barrier(bar: str, coord: int = 0) -> Barrier:
    """Signals all, waits for all devices, and takes their signals off again."""
    return Barrier(bar, coord)


def load(tile: str, layout: str, region: Region, rows: Any = None) -> Load:
    """Brings a region of the own memory into a tile."""
    return Load(tile, layout, region, rows)


def compute(
    tile: str, function: Callable[[Any], Any], flops: float, reads: float = 0.0, writes: float = 0.0, attention: bool = False
) -> Compute:  # fmt: skip
    """Computes a tile on the tensor cores."""
    return Compute(tile, function, flops, reads, writes, attention)
