"""The kernels of CloverLeaf as compiled loops.

`rects` are the rectangles (first row, row after the last, first column, column after the last) that a launch covers, in the coordinates
of the arrays. `clock` is (time step, time, limit), so that the step can stay where it was computed. `formulas` has the same kernels for
whole arrays; with NumPy both give the same bits, because they add and multiply in the same order.
"""

from __future__ import annotations

import math

from armillary.kernels import kernel

from .deck import BIG, SMALL


@kernel(error_model="numpy")
def ideal_gas(rects, density, energy, pressure, soundspeed):  # type: ignore[no-untyped-def]
    """Pressure and speed of sound of a gas with a ratio of heats of 1.4."""
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                d = density[k, j]
                v = 1.0 / d
                p = 0.4 * d * energy[k, j]
                pressure[k, j] = p
                soundspeed[k, j] = math.sqrt(v * v * (p * (0.4 * d) - (0.0 - d * p)))


@kernel(error_model="numpy")
def viscosity(rects, dx, dy, density, pressure, out, xvel, yvel):  # type: ignore[no-untyped-def]
    """The artificial viscosity, which is zero where the gas expands."""
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                ugrad = (xvel[k, j + 1] + xvel[k + 1, j + 1]) - (xvel[k, j] + xvel[k + 1, j])
                vgrad = (yvel[k + 1, j] + yvel[k + 1, j + 1]) - (yvel[k, j] + yvel[k, j + 1])
                div = dx * ugrad + dy * vgrad
                strain = (
                    0.5 * (xvel[k + 1, j] + xvel[k + 1, j + 1] - xvel[k, j] - xvel[k, j + 1]) / dy
                    + 0.5 * (yvel[k, j + 1] + yvel[k + 1, j + 1] - yvel[k, j] - yvel[k + 1, j]) / dx
                )
                px = (pressure[k, j + 1] - pressure[k, j - 1]) / (dx + dx)
                py = (pressure[k + 1, j] - pressure[k - 1, j]) / (dy + dy)
                px2, py2 = px * px, py * py
                limiter = ((0.5 * ugrad / dx) * px2 + (0.5 * vgrad / dy) * py2 + strain * px * py) / max(px2 + py2, SMALL)
                if limiter > 0.0 or div >= 0.0:
                    out[k, j] = 0.0
                else:
                    px, py = max(SMALL, abs(px)), max(SMALL, abs(py))
                    steep = math.sqrt(px * px + py * py)
                    width = min(dx * steep / px, dy * steep / py)
                    out[k, j] = 2.0 * density[k, j] * (width * width) * limiter * limiter


@kernel(error_model="numpy")
def time_step(rects, dx, dy, density, soundspeed, viscosity, xvel, yvel, clock):  # type: ignore[no-untyped-def]
    """The longest stable step of the cells, as `clock[2]`."""
    volume = dx * dy
    least = BIG
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                c = soundspeed[k, j] * soundspeed[k, j] + 2.0 * viscosity[k, j] / density[k, j]
                sound = 0.7 * min(dx, dy) / max(math.sqrt(c), SMALL)
                a = (xvel[k, j] + xvel[k + 1, j]) * dy
                b = (xvel[k, j + 1] + xvel[k + 1, j + 1]) * dy
                across = 0.5 * 2.0 * volume / max(max(abs(a), abs(b)), SMALL * volume)
                div = b - a
                a = (yvel[k, j] + yvel[k, j + 1]) * dx
                b = (yvel[k + 1, j] + yvel[k + 1, j + 1]) * dx
                along = 0.5 * 2.0 * volume / max(max(abs(a), abs(b)), SMALL * volume)
                div = (div + (b - a)) / (2.0 * volume)
                shrinks = 0.7 * (-1.0 / div) if div < -SMALL else BIG
                least = min(least, min(min(sound, across), min(along, shrinks)))
    clock[2] = least


@kernel(error_model="numpy")
def advance(clock, rise, most):  # type: ignore[no-untyped-def]
    """The time step from the limit of all ranks, at most `rise` times the last one and at most `most`; and the time after it."""
    clock[0] = min(clock[2], min(clock[0] * rise, most))
    clock[1] += clock[0]


@kernel(error_model="numpy")
def pdv_predict(rects, clock, dx, dy, density0, energy0, pressure, viscosity, xvel0, yvel0, density1, energy1):  # type: ignore[no-untyped-def]
    """Density and energy after half a step, from the work of pressure on the faces of the cell."""
    volume, dt = dx * dy, clock[0]
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                left = dy * (2.0 * (xvel0[k, j] + xvel0[k + 1, j])) * 0.25 * dt * 0.5
                right = dy * (2.0 * (xvel0[k, j + 1] + xvel0[k + 1, j + 1])) * 0.25 * dt * 0.5
                below = dx * (2.0 * (yvel0[k, j] + yvel0[k, j + 1])) * 0.25 * dt * 0.5
                above = dx * (2.0 * (yvel0[k + 1, j] + yvel0[k + 1, j + 1])) * 0.25 * dt * 0.5
                total = (right - left) + (above - below)
                d = density0[k, j]
                energy1[k, j] = energy0[k, j] - (pressure[k, j] / d + viscosity[k, j] / d) * total * (1.0 / volume)
                density1[k, j] = d * (volume / (volume + total))


@kernel(error_model="numpy")
def pdv_correct(rects, clock, dx, dy, density0, energy0, pressure, viscosity, xvel0, yvel0, xvel1, yvel1, density1, energy1):  # type: ignore[no-untyped-def]
    """Density and energy after the whole step, with the mean of the old and the new velocities."""
    volume, dt = dx * dy, clock[0]
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                left = dy * ((xvel0[k, j] + xvel0[k + 1, j]) + (xvel1[k, j] + xvel1[k + 1, j])) * 0.25 * dt
                right = dy * ((xvel0[k, j + 1] + xvel0[k + 1, j + 1]) + (xvel1[k, j + 1] + xvel1[k + 1, j + 1])) * 0.25 * dt
                below = dx * ((yvel0[k, j] + yvel0[k, j + 1]) + (yvel1[k, j] + yvel1[k, j + 1])) * 0.25 * dt
                above = dx * ((yvel0[k + 1, j] + yvel0[k + 1, j + 1]) + (yvel1[k + 1, j] + yvel1[k + 1, j + 1])) * 0.25 * dt
                total = (right - left) + (above - below)
                d = density0[k, j]
                energy1[k, j] = energy0[k, j] - (pressure[k, j] / d + viscosity[k, j] / d) * total * (1.0 / volume)
                density1[k, j] = d * (volume / (volume + total))


@kernel(error_model="numpy")
def revert(rects, density0, energy0, density1, energy1):  # type: ignore[no-untyped-def]
    """Takes the prediction back."""
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                density1[k, j], energy1[k, j] = density0[k, j], energy0[k, j]


@kernel(error_model="numpy")
def accelerate(rects, clock, dx, dy, density, pressure, viscosity, xvel0, yvel0, xvel1, yvel1):  # type: ignore[no-untyped-def]
    """Velocities of nodes, from the pressure and viscosity of the four cells around each."""
    volume, dt = dx * dy, clock[0]
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                mass = ((density[k - 1, j - 1] + density[k, j]) + (density[k - 1, j] + density[k, j - 1])) * volume * 0.25
                step = 0.5 * dt / mass
                a = dy * (pressure[k, j] - pressure[k, j - 1]) + dy * (pressure[k - 1, j] - pressure[k - 1, j - 1])
                b = dx * (pressure[k, j] - pressure[k - 1, j]) + dx * (pressure[k, j - 1] - pressure[k - 1, j - 1])
                c = dy * (viscosity[k, j] - viscosity[k, j - 1]) + dy * (viscosity[k - 1, j] - viscosity[k - 1, j - 1])
                d = dx * (viscosity[k, j] - viscosity[k - 1, j]) + dx * (viscosity[k, j - 1] - viscosity[k - 1, j - 1])
                xvel1[k, j] = (xvel0[k, j] - step * a) - step * c
                yvel1[k, j] = (yvel0[k, j] - step * b) - step * d


@kernel(error_model="numpy")
def fluxes(rects, clock, dx, dy, xvel0, yvel0, xvel1, yvel1, vol_flux_x, vol_flux_y):  # type: ignore[no-untyped-def]
    """The volumes that pass faces in a step."""
    dt = clock[0]
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                vol_flux_x[k, j] = 0.25 * dt * dy * ((xvel0[k, j] + xvel0[k + 1, j]) + (xvel1[k, j] + xvel1[k + 1, j]))
                vol_flux_y[k, j] = 0.25 * dt * dx * ((yvel0[k, j] + yvel0[k, j + 1]) + (yvel1[k, j] + yvel1[k, j + 1]))


@kernel(error_model="numpy")
def reset(rects, density0, energy0, xvel0, yvel0, density1, energy1, xvel1, yvel1):  # type: ignore[no-untyped-def]
    """The end of the step becomes the beginning of the next one."""
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                density0[k, j], energy0[k, j] = density1[k, j], energy1[k, j]
                xvel0[k, j], yvel0[k, j] = xvel1[k, j], yvel1[k, j]


@kernel
def reflect(table, fields):  # type: ignore[no-untyped-def]
    """Mirrors all fields of an exchange at the walls of a block."""
    for row in range(table.shape[0]):
        field = fields[table[row, 0]]
        to, of, low, high, sign = table[row, 2], table[row, 3], table[row, 4], table[row, 5], table[row, 6]
        if table[row, 1] == 0:
            for j in range(low, high):
                field[to, j] = sign * field[of, j]
        else:
            for k in range(low, high):
                field[k, to] = sign * field[k, of]
