"""A time step of CloverLeaf as a table: which kernel is launched on which arrays, and which halos are exchanged between them.

Every way to run the code follows this table: compiled loops or whole arrays, one rank or many, real GPUs or simulated ones. A step makes
six exchanges: two before the time step is known and one after the predictor, with one layer of halo, and three in the remap, with two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .block import HALO, Block

Rect = tuple[int, int, int, int]
#: The cells on each side that neighbours read, nodes included; launches that are split compute them first.
FRAME = 3


@dataclass(frozen=True)
class Launch:
    """A kernel on arrays. `over` says which rectangle: cells, nodes, or the faces, lines and nodes of a sweep.

    `scalars` come before the arrays: of `clock`, `size` (dx, dy), `along`, `first`. `splits` marks a launch that can be made in two parts
    because no cell reads what the launch writes at another one.
    """

    kernel: str
    over: str
    scalars: tuple[str, ...]
    arrays: tuple[str, ...]
    along: int = 1
    first: bool = True
    splits: bool = False


@dataclass(frozen=True)
class Exchange:
    """Halos of some fields, `depth` layers deep. `after` are the launches before it that are split around it."""

    number: int
    fields: tuple[str, ...]
    depth: int
    after: tuple[Launch, ...] = field(default=())


@dataclass(frozen=True)
class Reduce:
    """The least time step of all ranks, and the clock's advance."""


Stage = Launch | Exchange | Reduce

_SIZE = ("size",)
_DONE = ("density1", "energy1", "xvel1", "yvel1", "mass_flux_x", "mass_flux_y")


def _gas(time: int) -> Launch:
    return Launch("ideal_gas", "cells", (), (f"density{time}", f"energy{time}", "pressure", "soundspeed"), splits=True)


def _remap(axis: str, first: bool, number: int) -> list[Stage]:
    along = int(axis == "x")
    flux, cross = ("vol_flux_x", "vol_flux_y") if along else ("vol_flux_y", "vol_flux_x")
    mass = f"mass_flux_{axis}"
    cells = ("density1", "energy1", flux, cross, mass, "energy_flux")
    momenta = ("momentum_x", "momentum_y")
    sweep = ("along", "first", "size")
    update = Launch("cell_update", "cells", sweep, cells, along, first, splits=True)
    return [
        Launch("cell_flux", "faces", sweep, cells, along, first),
        Exchange(number, _DONE, 2, (update,)),
        Launch("node_masses", "lines", sweep, ("density1", cross, mass, "node_flux", "mass_post", "mass_pre"), along, first),
        Launch("momentum_flux", "between", ("along", "size"), ("xvel1", "yvel1", "node_flux", "mass_pre", *momenta), along, first),
        Launch("momentum_update", "nodes", ("along",), ("xvel1", "yvel1", "mass_post", "mass_pre", *momenta), along, first),
    ]


def table(parity: int) -> list[Stage]:
    """Return the stages of an even (0) or odd (1) step; the sweeps of odd steps go along y first."""
    before = ("density0", "energy0", "pressure", "viscosity", "xvel0", "yvel0")
    predict = Launch("pdv_predict", "cells", ("clock", "size"), (*before, "density1", "energy1"))
    correct = Launch("pdv_correct", "cells", ("clock", "size"), (*before, "xvel1", "yvel1", "density1", "energy1"), splits=True)
    velocities = ("xvel0", "yvel0", "xvel1", "yvel1")
    flux = Launch("fluxes", "nodes", ("clock", "size"), (*velocities, "vol_flux_x", "vol_flux_y"), splits=True)
    axes = "xy" if parity % 2 == 0 else "yx"
    return [
        Exchange(0, ("pressure", "energy0", "density0", "xvel0", "yvel0"), 1, (_gas(0),)),
        Exchange(
            1, ("viscosity",), 1,
            (Launch("viscosity", "cells", _SIZE, ("density0", "pressure", "viscosity", "xvel0", "yvel0"), splits=True),),
        ),
        Launch("time_step", "cells", _SIZE, ("density0", "soundspeed", "viscosity", "xvel0", "yvel0", "clock")),
        Reduce(),
        predict,
        Exchange(2, ("pressure",), 1, (_gas(1),)),
        Launch("revert", "cells", (), ("density0", "energy0", "density1", "energy1")),
        Launch("accelerate", "nodes", ("clock", "size"), ("density0", "pressure", "viscosity", *velocities)),
        Exchange(3, ("energy1", "density1", "vol_flux_x", "vol_flux_y"), 2, (correct, flux)),
        *_remap(axes[0], True, 4),
        *_remap(axes[1], False, 5),
        Launch("reset", "nodes", (), ("density0", "energy0", "xvel0", "yvel0", "density1", "energy1", "xvel1", "yvel1")),
    ]  # fmt: skip


#: The depth of halo and the fields of each of the six exchanges.
EXCHANGES = tuple((one.fields, one.depth) for one in table(0) if isinstance(one, Exchange))


def extent(block: Block, over: str, along: int) -> Rect:
    """Return the rectangle of a launch on a block, in the coordinates of its arrays."""
    top, left = HALO + block.rows, HALO + block.columns
    across, up = (1, 0) if along else (0, 1)
    return {
        "cells": (HALO, top, HALO, left),
        "nodes": (HALO, top + 1, HALO, left + 1),
        # Faces on both sides of each cell.
        "faces": (HALO, top + up, HALO, left + across),
        # Nodes, and along the sweep two lines before the first and one after the last.
        "lines": (HALO - 2 * up, top + 1 + up, HALO - 2 * across, left + 1 + across),
        # Nodes, and along the sweep one line before the first.
        "between": (HALO - up, top + 1, HALO - across, left + 1),
    }[over]


def divided(rect: Rect) -> tuple[list[Rect], list[Rect]]:
    """Return the frame of a rectangle, which neighbours read, and its inside; the inside is empty where there is no room for it."""
    low, high, left, right = rect
    inner = (low + FRAME, high - FRAME, left + FRAME, right - FRAME)
    if inner[0] >= inner[1] or inner[2] >= inner[3]:
        return [rect], []
    return [
        (low, inner[0], left, right), (inner[1], high, left, right),
        (inner[0], inner[1], left, inner[2]), (inner[0], inner[1], inner[3], right),
    ], [inner]  # fmt: skip
