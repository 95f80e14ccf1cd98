"""The kernels of CloverLeaf on whole arrays, for NumPy, PyTorch and CuPy: the reference of the compiled loops, and the code for GPUs.

The signatures are those of `loops` and `sweeps`. Everything stays on the device of the arrays, the time step included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.arrays import namespace

from .deck import BIG, SMALL

SIXTH = 1.0 / 6.0
Array = Any
Rects = Sequence[Sequence[int]]


def _at(a: Array, rect: Sequence[int], k: int = 0, j: int = 0) -> Array:
    """The part of an array that is a rectangle moved by k rows and j columns."""
    return a[rect[0] + k : rect[1] + k, rect[2] + j : rect[3] + j]


def ideal_gas(rects: Rects, density: Array, energy: Array, pressure: Array, soundspeed: Array) -> None:
    """Pressure and speed of sound of a gas with a ratio of heats of 1.4."""
    xp = namespace(density)
    for rect in rects:
        d = _at(density, rect)
        v = 1.0 / d
        p = 0.4 * d * _at(energy, rect)
        _at(pressure, rect)[...] = p
        _at(soundspeed, rect)[...] = xp.sqrt(v * v * (p * (0.4 * d) - (0.0 - d * p)))


def viscosity(rects: Rects, dx: float, dy: float, density: Array, pressure: Array, out: Array, xvel: Array, yvel: Array) -> None:
    """The artificial viscosity, which is zero where the gas expands."""
    xp = namespace(density)
    for rect in rects:
        u00, u01, u10, u11 = (_at(xvel, rect, k, j) for k in (0, 1) for j in (0, 1))
        v00, v01, v10, v11 = (_at(yvel, rect, k, j) for k in (0, 1) for j in (0, 1))
        ugrad, vgrad = (u01 + u11) - (u00 + u10), (v10 + v11) - (v00 + v01)
        div = dx * ugrad + dy * vgrad
        strain = 0.5 * (u10 + u11 - u00 - u01) / dy + 0.5 * (v01 + v11 - v00 - v10) / dx
        px = (_at(pressure, rect, 0, 1) - _at(pressure, rect, 0, -1)) / (dx + dx)
        py = (_at(pressure, rect, 1) - _at(pressure, rect, -1)) / (dy + dy)
        px2, py2 = px * px, py * py
        squares = px2 + py2
        limiter = ((0.5 * ugrad / dx) * px2 + (0.5 * vgrad / dy) * py2 + strain * px * py) / xp.where(squares > SMALL, squares, SMALL)
        px, py = abs(px), abs(py)
        px, py = xp.where(px > SMALL, px, SMALL), xp.where(py > SMALL, py, SMALL)
        steep = xp.sqrt(px * px + py * py)
        width = xp.minimum(dx * steep / px, dy * steep / py)
        found = 2.0 * _at(density, rect) * (width * width) * limiter * limiter
        _at(out, rect)[...] = xp.where((limiter > 0.0) | (div >= 0.0), 0.0, found)


def time_step(
    rects: Rects, dx: float, dy: float, density: Array, soundspeed: Array, viscosity: Array, xvel: Array, yvel: Array, clock: Array
) -> None:
    """The longest stable step of the cells, as `clock[2]`."""
    xp, volume = namespace(density), dx * dy
    clock[2] = BIG
    for rect in rects:
        c = _at(soundspeed, rect) * _at(soundspeed, rect) + 2.0 * _at(viscosity, rect) / _at(density, rect)
        root = xp.sqrt(c)
        least = 0.7 * min(dx, dy) / xp.where(root > SMALL, root, SMALL)
        a, b = (_at(xvel, rect, 0, j) + _at(xvel, rect, 1, j) for j in (0, 1))
        a, b = a * dy, b * dy
        div = b - a
        least = xp.minimum(least, _crossing(xp, a, b, volume))
        a, b = (_at(yvel, rect, k, 0) + _at(yvel, rect, k, 1) for k in (0, 1))
        a, b = a * dx, b * dx
        least = xp.minimum(least, _crossing(xp, a, b, volume))
        div = (div + (b - a)) / (2.0 * volume)
        shrinks = div < -SMALL
        least = xp.minimum(least, xp.where(shrinks, 0.7 * (-1.0 / xp.where(shrinks, div, -1.0)), BIG))
        clock[2:3] = xp.minimum(clock[2:3], xp.min(least))


def _crossing(xp: Any, a: Array, b: Array, volume: float) -> Array:
    fastest = xp.maximum(abs(a), abs(b))
    return 0.5 * 2.0 * volume / xp.where(fastest > SMALL * volume, fastest, SMALL * volume)


def advance(clock: Array, rise: float, most: float) -> None:
    """The time step from the limit of all ranks, at most `rise` times the last one and at most `most`; and the time after it."""
    xp = namespace(clock)
    before = clock[0:1] * rise
    clock[0:1] = xp.minimum(clock[2:3], xp.where(before < most, before, most))
    clock[1:2] += clock[0:1]


def pdv_predict(
    rects: Rects, clock: Array, dx: float, dy: float, density0: Array, energy0: Array, pressure: Array, viscosity: Array,
    xvel0: Array, yvel0: Array, density1: Array, energy1: Array,
) -> None:  # fmt: skip
    """Density and energy after half a step, from the work of pressure on the faces of the cell."""
    dt = clock[0:1]
    for rect in rects:
        u00, u01, u10, u11 = (_at(xvel0, rect, k, j) for k in (0, 1) for j in (0, 1))
        v00, v01, v10, v11 = (_at(yvel0, rect, k, j) for k in (0, 1) for j in (0, 1))
        left, right = dy * (2.0 * (u00 + u10)) * 0.25 * dt * 0.5, dy * (2.0 * (u01 + u11)) * 0.25 * dt * 0.5
        below, above = dx * (2.0 * (v00 + v01)) * 0.25 * dt * 0.5, dx * (2.0 * (v10 + v11)) * 0.25 * dt * 0.5
        _worked(rect, (right - left) + (above - below), dx * dy, density0, energy0, pressure, viscosity, density1, energy1)


def pdv_correct(
    rects: Rects, clock: Array, dx: float, dy: float, density0: Array, energy0: Array, pressure: Array, viscosity: Array,
    xvel0: Array, yvel0: Array, xvel1: Array, yvel1: Array, density1: Array, energy1: Array,
) -> None:  # fmt: skip
    """Density and energy after the whole step, with the mean of the old and the new velocities."""
    dt = clock[0:1]
    for rect in rects:
        left, right = (
            dy * ((_at(xvel0, rect, 0, j) + _at(xvel0, rect, 1, j)) + (_at(xvel1, rect, 0, j) + _at(xvel1, rect, 1, j))) * 0.25 * dt
            for j in (0, 1)
        )
        below, above = (
            dx * ((_at(yvel0, rect, k, 0) + _at(yvel0, rect, k, 1)) + (_at(yvel1, rect, k, 0) + _at(yvel1, rect, k, 1))) * 0.25 * dt
            for k in (0, 1)
        )
        _worked(rect, (right - left) + (above - below), dx * dy, density0, energy0, pressure, viscosity, density1, energy1)


def _worked(
    rect: Sequence[int], total: Array, volume: float, density0: Array, energy0: Array, pressure: Array, viscosity: Array,
    density1: Array, energy1: Array,
) -> None:  # fmt: skip
    d = _at(density0, rect)
    energy = _at(energy0, rect) - (_at(pressure, rect) / d + _at(viscosity, rect) / d) * total * (1.0 / volume)
    _at(energy1, rect)[...] = energy
    _at(density1, rect)[...] = d * (volume / (volume + total))


def revert(rects: Rects, density0: Array, energy0: Array, density1: Array, energy1: Array) -> None:
    """Takes the prediction back."""
    for rect in rects:
        _at(density1, rect)[...] = _at(density0, rect)
        _at(energy1, rect)[...] = _at(energy0, rect)


def accelerate(
    rects: Rects, clock: Array, dx: float, dy: float, density: Array, pressure: Array, viscosity: Array,
    xvel0: Array, yvel0: Array, xvel1: Array, yvel1: Array,
) -> None:  # fmt: skip
    """Velocities of nodes, from the pressure and viscosity of the four cells around each."""
    volume, dt = dx * dy, clock[0:1]
    for rect in rects:
        d00, d0m, dm0, dmm = (_at(density, rect, k, j) for k in (0, -1) for j in (0, -1))
        step = 0.5 * dt / (((dmm + d00) + (dm0 + d0m)) * volume * 0.25)
        across, along = _pushes(pressure, rect, dx, dy)
        more_across, more_along = _pushes(viscosity, rect, dx, dy)
        _at(xvel1, rect)[...] = (_at(xvel0, rect) - step * across) - step * more_across
        _at(yvel1, rect)[...] = (_at(yvel0, rect) - step * along) - step * more_along


def _pushes(of: Array, rect: Sequence[int], dx: float, dy: float) -> tuple[Array, Array]:
    p00, p0m, pm0, pmm = (_at(of, rect, k, j) for k in (0, -1) for j in (0, -1))
    return dy * (p00 - p0m) + dy * (pm0 - pmm), dx * (p00 - pm0) + dx * (p0m - pmm)


def fluxes(
    rects: Rects, clock: Array, dx: float, dy: float, xvel0: Array, yvel0: Array, xvel1: Array, yvel1: Array,
    vol_flux_x: Array, vol_flux_y: Array,
) -> None:  # fmt: skip
    """The volumes that pass faces in a step."""
    dt = clock[0:1]
    for rect in rects:
        x = (_at(xvel0, rect) + _at(xvel0, rect, 1)) + (_at(xvel1, rect) + _at(xvel1, rect, 1))
        y = (_at(yvel0, rect) + _at(yvel0, rect, 0, 1)) + (_at(yvel1, rect) + _at(yvel1, rect, 0, 1))
        _at(vol_flux_x, rect)[...] = 0.25 * dt * dy * x
        _at(vol_flux_y, rect)[...] = 0.25 * dt * dx * y


def reset(rects: Rects, *fields: Array) -> None:
    """The end of the step becomes the beginning of the next one."""
    for rect in rects:
        for before, after in zip(fields[:4], fields[4:]):
            _at(before, rect)[...] = _at(after, rect)


def _volume_before(rect: Sequence[int], dk: int, dj: int, first: bool, volume: float, flux: Array, cross: Array, k: int, j: int) -> Array:
    passes = _at(flux, rect, k + dk, j + dj) - _at(flux, rect, k, j)
    if first:
        return volume + (passes + (_at(cross, rect, k + dj, j + dk) - _at(cross, rect, k, j)))
    return volume + passes


def _slope(xp: Any, up: Array, down: Array, share: Array, leaves: Array) -> Array:
    steep = SIXTH * ((1.0 + share) * abs(up) + (2.0 - share) * abs(down))
    least = xp.minimum(xp.minimum(abs(up), abs(down)), steep)
    wind = xp.where(down > 0.0, 1.0 - leaves, -(1.0 - leaves))
    return xp.where(up * down > 0.0, wind * least, 0.0)


def cell_flux(
    rects: Rects, along: int, first: bool, dx: float, dy: float, density: Array, energy: Array, flux: Array, cross: Array,
    mass_flux: Array, energy_flux: Array,
) -> None:  # fmt: skip
    """Mass and energy that pass the faces across the sweep."""
    xp, dk, dj, volume = namespace(density), 1 - along, along, dx * dy
    for rect in rects:
        f = _at(flux, rect)
        forth = f > 0.0

        def chosen(a: Array, if_forth: int, else_: int, rect: Sequence[int] = rect, forth: Array = forth) -> Array:
            return xp.where(forth, _at(a, rect, if_forth * dk, if_forth * dj), _at(a, rect, else_ * dk, else_ * dj))

        before = xp.where(
            forth, _volume_before(rect, dk, dj, first, volume, flux, cross, -dk, -dj),
            _volume_before(rect, dk, dj, first, volume, flux, cross, 0, 0),
        )  # fmt: skip
        share = abs(f) / before
        d, e = chosen(density, -1, 0), chosen(energy, -1, 0)
        mass = f * (d + _slope(xp, d - chosen(density, -2, 1), chosen(density, 0, -1) - d, share, share))
        leaves = abs(mass) / (d * before)
        _at(mass_flux, rect)[...] = mass
        _at(energy_flux, rect)[...] = mass * (e + _slope(xp, e - chosen(energy, -2, 1), chosen(energy, 0, -1) - e, share, leaves))


def cell_update(
    rects: Rects, along: int, first: bool, dx: float, dy: float, density: Array, energy: Array, flux: Array, cross: Array,
    mass_flux: Array, energy_flux: Array,
) -> None:  # fmt: skip
    """Density and energy of cells after what passed their faces."""
    dk, dj = 1 - along, along
    for rect in rects:
        before = _volume_before(rect, dk, dj, first, dx * dy, flux, cross, 0, 0)
        mass = _at(density, rect) * before
        after = mass + (_at(mass_flux, rect) - _at(mass_flux, rect, dk, dj))
        left = _at(energy, rect) * mass + (_at(energy_flux, rect) - _at(energy_flux, rect, dk, dj))
        _at(energy, rect)[...] = left / after
        _at(density, rect)[...] = after / (before + (_at(flux, rect) - _at(flux, rect, dk, dj)))


def node_masses(
    rects: Rects, along: int, first: bool, dx: float, dy: float, density: Array, cross: Array, mass_flux: Array, node_flux: Array,
    mass_post: Array, mass_pre: Array,
) -> None:  # fmt: skip
    """Mass that passes between nodes, and the mass of nodes after and before the sweep. The first line along the sweep has a flux alone."""
    dk, dj, volume = 1 - along, along, dx * dy

    def mass(rect: Sequence[int], k: int, j: int) -> Array:
        d = _at(density, rect, k, j)
        return d * (volume + (_at(cross, rect, k + dj, j + dk) - _at(cross, rect, k, j))) if first else d * volume

    for rect in rects:
        near = _at(mass_flux, rect, -dj, -dk) + _at(mass_flux, rect)
        far = _at(mass_flux, rect, dk - dj, dj - dk) + _at(mass_flux, rect, dk, dj)
        _at(node_flux, rect)[...] = 0.25 * (near + far)
        rest = (rect[0] + dk, rect[1], rect[2] + dj, rect[3])
        around = (mass(rest, -dj, -dk) + mass(rest, 0, 0)) + (mass(rest, -dj - dk, -dk - dj) + mass(rest, -dk, -dj))
        _at(mass_post, rest)[...] = 0.25 * around
        _at(mass_pre, rest)[...] = _at(mass_post, rest) - _at(node_flux, rest, -dk, -dj) + _at(node_flux, rest)


def momentum_flux(
    rects: Rects, along: int, dx: float, dy: float, xvel: Array, yvel: Array, node_flux: Array, mass_pre: Array,
    momentum_x: Array, momentum_y: Array,
) -> None:  # fmt: skip
    """Momentum that passes between nodes, for both velocities."""
    xp, dk, dj = namespace(xvel), 1 - along, along
    width = dx if along == 1 else dy
    for rect in rects:
        f = _at(node_flux, rect)
        back = f < 0.0

        def chosen(a: Array, if_back: int, else_: int, rect: Sequence[int] = rect, back: Array = back) -> Array:
            return xp.where(back, _at(a, rect, if_back * dk, if_back * dj), _at(a, rect, else_ * dk, else_ * dj))

        share = abs(f) / chosen(mass_pre, 1, 0)
        for velocity, momentum in ((xvel, momentum_x), (yvel, momentum_y)):
            v = chosen(velocity, 1, 0)
            before, after = v - chosen(velocity, 2, -1), chosen(velocity, 0, 1) - v
            steep = width * ((2.0 - share) * abs(after) / width + (1.0 + share) * abs(before) / width) / 6.0
            least = xp.minimum(steep, xp.minimum(abs(before), abs(after)))
            limit = xp.where(before * after > 0.0, xp.where(after > 0.0, least, -least), 0.0)
            _at(momentum, rect)[...] = (v + (1.0 - share) * limit) * f


def momentum_update(
    rects: Rects, along: int, xvel: Array, yvel: Array, mass_post: Array, mass_pre: Array, momentum_x: Array, momentum_y: Array
) -> None:
    """Velocities of nodes after what passed between them."""
    dk, dj = 1 - along, along
    for rect in rects:
        before, after = _at(mass_pre, rect), _at(mass_post, rect)
        for velocity, momentum in ((xvel, momentum_x), (yvel, momentum_y)):
            found = (_at(velocity, rect) * before + (_at(momentum, rect, -dk, -dj) - _at(momentum, rect))) / after
            _at(velocity, rect)[...] = found


def reflect(table: Sequence[Sequence[int]], fields: Sequence[Array]) -> None:
    """Mirrors all fields of an exchange at the walls of a block."""
    for number, axis, to, of, low, high, sign in table:
        field = fields[number]
        if axis == 0:
            field[to, low:high] = sign * field[of, low:high]
        else:
            field[low:high, to] = sign * field[low:high, of]
