"""The kernels of CloverLeaf for GPUs, in Triton: one launch each, with the arithmetic of `loops` and `sweeps` in the same order.

A launch covers rectangles, the rows of an int64 table on the device: programs (i, n) take the i-th block of cells of rectangle n. Numbers
such as dx come as float64 tensors, because Triton makes a float32 of a Python number that is passed to a kernel. `stride` is the length of
a row of all arrays. A GPU may fuse a product and a sum, so its last digits are its own, but they are the same in every launch.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

from .deck import BIG as _BIG
from .deck import SMALL as _SMALL

BLOCK = 256
BLOCK_SIZE, BIG, SMALL = tl.constexpr(BLOCK), tl.constexpr(_BIG), tl.constexpr(_SMALL)


@triton.jit
def _cells(rects, stride):
    """The places in the arrays of this program's cells, and which of them are inside the rectangle."""
    row = rects + tl.program_id(1) * 4
    low, high, left, right = tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3)
    width = (right - left).to(tl.int32)
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    return (low + i // width) * stride + left + i % width, i < (high - low) * width


@triton.jit
def _at(array, at, inside):
    return tl.load(array + at, mask=inside, other=1.0)


@triton.jit
def _least(a, b):
    return tl.where(b < a, b, a)


@triton.jit
def _most(a, b):
    return tl.where(b > a, b, a)


@triton.jit
def _at_least_small(a):
    """The number, or 1e-16 in its own precision."""
    return tl.where(a > SMALL, a, a * 0.0 + SMALL)


@triton.jit
def ideal_gas(rects, density, energy, pressure, soundspeed, stride):
    """Pressure and speed of sound of a gas with a ratio of heats of 1.4."""
    at, inside = _cells(rects, stride)
    d = _at(density, at, inside)
    v = 1.0 / d
    p = 0.4 * d * _at(energy, at, inside)
    tl.store(pressure + at, p, mask=inside)
    tl.store(soundspeed + at, tl.sqrt(v * v * (p * (0.4 * d) - (0.0 - d * p))), mask=inside)


@triton.jit
def viscosity(rects, size, density, pressure, out, xvel, yvel, stride):
    """The artificial viscosity, which is zero where the gas expands."""
    at, inside = _cells(rects, stride)
    dx, dy = tl.load(size), tl.load(size + 1)
    u00, u01 = _at(xvel, at, inside), _at(xvel, at + 1, inside)
    u10, u11 = _at(xvel, at + stride, inside), _at(xvel, at + stride + 1, inside)
    v00, v01 = _at(yvel, at, inside), _at(yvel, at + 1, inside)
    v10, v11 = _at(yvel, at + stride, inside), _at(yvel, at + stride + 1, inside)
    ugrad, vgrad = (u01 + u11) - (u00 + u10), (v10 + v11) - (v00 + v01)
    div = dx * ugrad + dy * vgrad
    strain = 0.5 * (u10 + u11 - u00 - u01) / dy + 0.5 * (v01 + v11 - v00 - v10) / dx
    px = (_at(pressure, at + 1, inside) - _at(pressure, at - 1, inside)) / (dx + dx)
    py = (_at(pressure, at + stride, inside) - _at(pressure, at - stride, inside)) / (dy + dy)
    px2, py2 = px * px, py * py
    limiter = ((0.5 * ugrad / dx) * px2 + (0.5 * vgrad / dy) * py2 + strain * px * py) / _at_least_small(px2 + py2)
    px, py = _at_least_small(tl.abs(px)), _at_least_small(tl.abs(py))
    steep = tl.sqrt(px * px + py * py)
    width = _least(dx * steep / px, dy * steep / py)
    found = 2.0 * _at(density, at, inside) * (width * width) * limiter * limiter
    tl.store(out + at, tl.where((limiter > 0.0) | (div >= 0.0), 0.0, found), mask=inside)


@triton.jit
def _crossing(a, b, volume):
    """The longest step in which nothing passes a whole cell."""
    return 0.5 * 2.0 * volume / _most(_most(tl.abs(a), tl.abs(b)), volume * SMALL)


@triton.jit
def time_step(rects, size, density, soundspeed, viscosity, xvel, yvel, clock, stride):
    """The longest stable step of the cells, as `clock[2]`, which the launch before has made long."""
    at, inside = _cells(rects, stride)
    dx, dy = tl.load(size), tl.load(size + 1)
    volume = dx * dy
    c = _at(soundspeed, at, inside)
    c = tl.sqrt(c * c + 2.0 * _at(viscosity, at, inside) / _at(density, at, inside))
    least = 0.7 * _least(dx, dy) / _at_least_small(c)
    a = (_at(xvel, at, inside) + _at(xvel, at + stride, inside)) * dy
    b = (_at(xvel, at + 1, inside) + _at(xvel, at + stride + 1, inside)) * dy
    least = _least(least, _crossing(a, b, volume))
    div = b - a
    a = (_at(yvel, at, inside) + _at(yvel, at + 1, inside)) * dx
    b = (_at(yvel, at + stride, inside) + _at(yvel, at + stride + 1, inside)) * dx
    least = _least(least, _crossing(a, b, volume))
    div = (div + (b - a)) / (2.0 * volume)
    shrinks = div < 0.0 - SMALL
    least = tl.where(shrinks, _least(least, 0.7 * (-1.0 / tl.where(shrinks, div, -1.0))), least)
    tl.atomic_min(clock + 2, tl.min(tl.where(inside, least, least * 0.0 + BIG)))


@triton.jit
def begin(clock):
    """Makes the limit of the time step long."""
    tl.store(clock + 2, tl.load(clock) * 0.0 + BIG)


@triton.jit
def advance(clock, limits):
    """The time step from the limit of all ranks, at most `limits[0]` times the last one and at most `limits[1]`; the time after it."""
    before = tl.load(clock) * tl.load(limits)
    step = _least(tl.load(clock + 2), _least(before, tl.load(limits + 1)))
    tl.store(clock, step)
    tl.store(clock + 1, tl.load(clock + 1) + step)


@triton.jit
def _worked(at, inside, total, volume, density0, energy0, pressure, viscosity, density1, energy1):
    """Density and energy after the work on the faces of a cell, whose volume grows by `total`."""
    d = _at(density0, at, inside)
    work = (_at(pressure, at, inside) / d + _at(viscosity, at, inside) / d) * total * (1.0 / volume)
    tl.store(energy1 + at, _at(energy0, at, inside) - work, mask=inside)
    tl.store(density1 + at, d * (volume / (volume + total)), mask=inside)


@triton.jit
def pdv_predict(rects, clock, size, density0, energy0, pressure, viscosity, xvel0, yvel0, density1, energy1, stride):
    """Density and energy after half a step, from the work of pressure on the faces of the cell."""
    at, inside = _cells(rects, stride)
    dt, dx, dy = tl.load(clock), tl.load(size), tl.load(size + 1)
    u00, u01 = _at(xvel0, at, inside), _at(xvel0, at + 1, inside)
    u10, u11 = _at(xvel0, at + stride, inside), _at(xvel0, at + stride + 1, inside)
    v00, v01 = _at(yvel0, at, inside), _at(yvel0, at + 1, inside)
    v10, v11 = _at(yvel0, at + stride, inside), _at(yvel0, at + stride + 1, inside)
    left, right = dy * (2.0 * (u00 + u10)) * 0.25 * dt * 0.5, dy * (2.0 * (u01 + u11)) * 0.25 * dt * 0.5
    below, above = dx * (2.0 * (v00 + v01)) * 0.25 * dt * 0.5, dx * (2.0 * (v10 + v11)) * 0.25 * dt * 0.5
    total = (right - left) + (above - below)
    _worked(at, inside, total, dx * dy, density0, energy0, pressure, viscosity, density1, energy1)


@triton.jit
def _side(before, after, at, step, inside):
    """The sum of the velocities at both ends of a face, before and after the step."""
    return (_at(before, at, inside) + _at(before, at + step, inside)) + (_at(after, at, inside) + _at(after, at + step, inside))


@triton.jit
def pdv_correct(
    rects, clock, size, density0, energy0, pressure, viscosity, xvel0, yvel0, xvel1, yvel1, density1, energy1, stride
):
    """Density and energy after the whole step, with the mean of the old and the new velocities."""
    at, inside = _cells(rects, stride)
    dt, dx, dy = tl.load(clock), tl.load(size), tl.load(size + 1)
    left = dy * _side(xvel0, xvel1, at, stride, inside) * 0.25 * dt
    right = dy * _side(xvel0, xvel1, at + 1, stride, inside) * 0.25 * dt
    below = dx * _side(yvel0, yvel1, at, 1, inside) * 0.25 * dt
    above = dx * _side(yvel0, yvel1, at + stride, 1, inside) * 0.25 * dt
    total = (right - left) + (above - below)
    _worked(at, inside, total, dx * dy, density0, energy0, pressure, viscosity, density1, energy1)


@triton.jit
def revert(rects, density0, energy0, density1, energy1, stride):
    """Takes the prediction back."""
    at, inside = _cells(rects, stride)
    tl.store(density1 + at, _at(density0, at, inside), mask=inside)
    tl.store(energy1 + at, _at(energy0, at, inside), mask=inside)


@triton.jit
def accelerate(rects, clock, size, density, pressure, viscosity, xvel0, yvel0, xvel1, yvel1, stride):
    """Velocities of nodes, from the pressure and viscosity of the four cells around each."""
    at, inside = _cells(rects, stride)
    dt, dx, dy = tl.load(clock), tl.load(size), tl.load(size + 1)
    d00, d0m = _at(density, at, inside), _at(density, at - 1, inside)
    dm0, dmm = _at(density, at - stride, inside), _at(density, at - stride - 1, inside)
    step = 0.5 * dt / (((dmm + d00) + (dm0 + d0m)) * (dx * dy) * 0.25)
    p00, p0m = _at(pressure, at, inside), _at(pressure, at - 1, inside)
    pm0, pmm = _at(pressure, at - stride, inside), _at(pressure, at - stride - 1, inside)
    q00, q0m = _at(viscosity, at, inside), _at(viscosity, at - 1, inside)
    qm0, qmm = _at(viscosity, at - stride, inside), _at(viscosity, at - stride - 1, inside)
    u = (_at(xvel0, at, inside) - step * (dy * (p00 - p0m) + dy * (pm0 - pmm))) - step * (dy * (q00 - q0m) + dy * (qm0 - qmm))
    v = (_at(yvel0, at, inside) - step * (dx * (p00 - pm0) + dx * (p0m - pmm))) - step * (dx * (q00 - qm0) + dx * (q0m - qmm))
    tl.store(xvel1 + at, u, mask=inside)
    tl.store(yvel1 + at, v, mask=inside)


@triton.jit
def fluxes(rects, clock, size, xvel0, yvel0, xvel1, yvel1, vol_flux_x, vol_flux_y, stride):
    """The volumes that pass faces in a step."""
    at, inside = _cells(rects, stride)
    dt, dx, dy = tl.load(clock), tl.load(size), tl.load(size + 1)
    tl.store(vol_flux_x + at, 0.25 * dt * dy * _side(xvel0, xvel1, at, stride, inside), mask=inside)
    tl.store(vol_flux_y + at, 0.25 * dt * dx * _side(yvel0, yvel1, at, 1, inside), mask=inside)


@triton.jit
def reset(rects, density0, energy0, xvel0, yvel0, density1, energy1, xvel1, yvel1, stride):
    """The end of the step becomes the beginning of the next one."""
    at, inside = _cells(rects, stride)
    tl.store(density0 + at, _at(density1, at, inside), mask=inside)
    tl.store(energy0 + at, _at(energy1, at, inside), mask=inside)
    tl.store(xvel0 + at, _at(xvel1, at, inside), mask=inside)
    tl.store(yvel0 + at, _at(yvel1, at, inside), mask=inside)


@triton.jit
def _volume_before(at, inside, volume, flux, cross, step, side, first: tl.constexpr):
    """The volume of a cell before the sweep; `step` leads to the next cell along it and `side` to the one beside it."""
    passes = _at(flux, at + step, inside) - _at(flux, at, inside)
    if first:
        passes = passes + (_at(cross, at + side, inside) - _at(cross, at, inside))
    return volume + passes


@triton.jit
def _slope(up, down, share, leaves):
    """The limited difference to the downwind face."""
    steep = ((1.0 + share) * tl.abs(up) + (2.0 - share) * tl.abs(down)) * (1.0 / 6.0)
    least = _least(_least(tl.abs(up), tl.abs(down)), steep)
    return tl.where(up * down > 0.0, tl.where(down > 0.0, 1.0 - leaves, leaves - 1.0) * least, 0.0)


@triton.jit
def cell_flux(
    rects, along: tl.constexpr, first: tl.constexpr, size, density, energy, flux, cross, mass_flux, energy_flux, stride
):
    """Mass and energy that pass the faces across the sweep."""
    at, inside = _cells(rects, stride)
    step = 1 if along else stride
    side = stride if along else 1
    f = _at(flux, at, inside)
    forth = f > 0.0
    donor, down, up = at + tl.where(forth, -step, 0), at + tl.where(forth, 0, -step), at + tl.where(forth, -2 * step, step)
    before = _volume_before(donor, inside, tl.load(size) * tl.load(size + 1), flux, cross, step, side, first)
    share = tl.abs(f) / before
    d, e = _at(density, donor, inside), _at(energy, donor, inside)
    mass = f * (d + _slope(d - _at(density, up, inside), _at(density, down, inside) - d, share, share))
    leaves = tl.abs(mass) / (d * before)
    passes = mass * (e + _slope(e - _at(energy, up, inside), _at(energy, down, inside) - e, share, leaves))
    tl.store(mass_flux + at, mass, mask=inside)
    tl.store(energy_flux + at, passes, mask=inside)


@triton.jit
def cell_update(
    rects, along: tl.constexpr, first: tl.constexpr, size, density, energy, flux, cross, mass_flux, energy_flux, stride
):
    """Density and energy of cells after what passed their faces."""
    at, inside = _cells(rects, stride)
    step = 1 if along else stride
    side = stride if along else 1
    before = _volume_before(at, inside, tl.load(size) * tl.load(size + 1), flux, cross, step, side, first)
    mass = _at(density, at, inside) * before
    after = mass + (_at(mass_flux, at, inside) - _at(mass_flux, at + step, inside))
    kept = _at(energy, at, inside) * mass + (_at(energy_flux, at, inside) - _at(energy_flux, at + step, inside))
    tl.store(energy + at, kept / after, mask=inside)
    tl.store(density + at, after / (before + (_at(flux, at, inside) - _at(flux, at + step, inside))), mask=inside)


@triton.jit
def _mass(at, inside, volume, density, cross, side, first: tl.constexpr):
    """The mass of a cell after the sweep."""
    if first:
        volume = volume + (_at(cross, at + side, inside) - _at(cross, at, inside))
    return _at(density, at, inside) * volume


@triton.jit
def _passing(mass_flux, at, inside, step, side):
    """The mass that passes from a node to the next one."""
    near = _at(mass_flux, at - side, inside) + _at(mass_flux, at, inside)
    return 0.25 * (near + (_at(mass_flux, at - side + step, inside) + _at(mass_flux, at + step, inside)))


@triton.jit
def node_masses(
    rects, along: tl.constexpr, first: tl.constexpr, size, density, cross, mass_flux, node_flux, mass_post, mass_pre, stride
):
    """Mass that passes between nodes, and the mass of nodes after and before the sweep. The first line along the sweep has a flux alone."""
    at, inside = _cells(rects, stride)
    step = 1 if along else stride
    side = stride if along else 1
    volume = tl.load(size) * tl.load(size + 1)
    row = rects + tl.program_id(1) * 4
    place = at % stride if along else at // stride
    first_line = tl.load(row + 2) if along else tl.load(row)
    flux = _passing(mass_flux, at, inside, step, side)
    tl.store(node_flux + at, flux, mask=inside)
    # The flux of the node before is computed once more, because another program may not have stored it yet.
    inside = inside & (place > first_line)
    near = _mass(at - side, inside, volume, density, cross, side, first) + _mass(at, inside, volume, density, cross, side, first)
    far = _mass(at - side - step, inside, volume, density, cross, side, first)
    post = 0.25 * (near + (far + _mass(at - step, inside, volume, density, cross, side, first)))
    tl.store(mass_post + at, post, mask=inside)
    tl.store(mass_pre + at, post - _passing(mass_flux, at - step, inside, step, side) + flux, mask=inside)


@triton.jit
def _momentum(velocity, at, inside, f, share, width, step):
    """The momentum that a flux between nodes takes along."""
    back = f < 0.0
    v = _at(velocity, at + tl.where(back, step, 0), inside)
    before = v - _at(velocity, at + tl.where(back, 2 * step, -step), inside)
    after = _at(velocity, at + tl.where(back, 0, step), inside) - v
    steep = width * ((2.0 - share) * tl.abs(after) / width + (1.0 + share) * tl.abs(before) / width) / 6.0
    least = _least(steep, _least(tl.abs(before), tl.abs(after)))
    limit = tl.where(before * after > 0.0, tl.where(after > 0.0, least, 0.0 - least), 0.0)
    return (v + (1.0 - share) * limit) * f


@triton.jit
def momentum_flux(rects, along: tl.constexpr, size, xvel, yvel, node_flux, mass_pre, momentum_x, momentum_y, stride):
    """Momentum that passes between nodes, for both velocities."""
    at, inside = _cells(rects, stride)
    step = 1 if along else stride
    width = tl.load(size) if along else tl.load(size + 1)
    f = _at(node_flux, at, inside)
    share = tl.abs(f) / _at(mass_pre, at + tl.where(f < 0.0, step, 0), inside)
    tl.store(momentum_x + at, _momentum(xvel, at, inside, f, share, width, step), mask=inside)
    tl.store(momentum_y + at, _momentum(yvel, at, inside, f, share, width, step), mask=inside)


@triton.jit
def momentum_update(rects, along: tl.constexpr, xvel, yvel, mass_post, mass_pre, momentum_x, momentum_y, stride):
    """Velocities of nodes after what passed between them."""
    at, inside = _cells(rects, stride)
    step = 1 if along else stride
    before, after = _at(mass_pre, at, inside), _at(mass_post, at, inside)
    u = _at(xvel, at, inside) * before + (_at(momentum_x, at - step, inside) - _at(momentum_x, at, inside))
    v = _at(yvel, at, inside) * before + (_at(momentum_y, at - step, inside) - _at(momentum_y, at, inside))
    tl.store(xvel + at, u / after, mask=inside)
    tl.store(yvel + at, v / after, mask=inside)


@triton.jit
def reflect(table, like):
    """Mirrors lines at walls: a row of the table is (address written, address read, step between values, their number, sign)."""
    row = table + tl.program_id(1) * 5
    i = (tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)) * tl.load(row + 2)
    inside = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE) < tl.load(row + 3)
    pointer = tl.pointer_type(like.dtype.element_ty)
    to, of = tl.load(row).to(pointer), tl.load(row + 1).to(pointer)
    tl.store(to + i, tl.load(of + i, mask=inside) * tl.load(row + 4), mask=inside)
