"""The remap as compiled loops: one sweep along x and one along y, first of cells and then of momentum at nodes.

Values are taken from upwind with van Leer's limiter. `along` is 1 for x and 0 for y; `first` says whether it is the first sweep of a step,
whose volumes still differ from those of the grid in both directions.
"""

from __future__ import annotations

from armillary.kernels import kernel, part

SIXTH = 1.0 / 6.0


@part(error_model="numpy")
def _volume_before(k, j, dk, dj, first, volume, flux, cross):  # type: ignore[no-untyped-def]
    """The volume of a cell before the sweep."""
    if first:
        return volume + ((flux[k + dk, j + dj] - flux[k, j]) + (cross[k + dj, j + dk] - cross[k, j]))
    return volume + (flux[k + dk, j + dj] - flux[k, j])


@part(error_model="numpy")
def _slope(up, down, share, leaves):  # type: ignore[no-untyped-def]
    """The limited difference to the downwind face, from the differences upwind and downwind.

    `share` of the donor's volume leaves and weighs them; `leaves` is the share of what is taken along, which limits the slope.
    """
    if up * down > 0.0:
        wind = 1.0 if down > 0.0 else -1.0
        steep = SIXTH * ((1.0 + share) * abs(up) + (2.0 - share) * abs(down))
        return (1.0 - leaves) * wind * min(min(abs(up), abs(down)), steep)
    return 0.0


@kernel(error_model="numpy")
def cell_flux(rects, along, first, dx, dy, density, energy, flux, cross, mass_flux, energy_flux):  # type: ignore[no-untyped-def]
    """Mass and energy that pass the faces across the sweep."""
    dk, dj, volume = 1 - along, along, dx * dy
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                f = flux[k, j]
                # The donor is the cell on the side that the flux comes from.
                side = -1 if f > 0.0 else 0
                k0, j0 = k + side * dk, j + side * dj
                down = 0 if f > 0.0 else -1
                k1, j1 = k + down * dk, j + down * dj
                up = -2 if f > 0.0 else 1
                k2, j2 = k + up * dk, j + up * dj
                before = _volume_before(k0, j0, dk, dj, first, volume, flux, cross)
                share = abs(f) / before
                d = density[k0, j0]
                mass = f * (d + _slope(d - density[k2, j2], density[k1, j1] - d, share, share))
                mass_flux[k, j] = mass
                e = energy[k0, j0]
                part_of_mass = abs(mass) / (d * before)
                energy_flux[k, j] = mass * (e + _slope(e - energy[k2, j2], energy[k1, j1] - e, share, part_of_mass))


@kernel(error_model="numpy")
def cell_update(rects, along, first, dx, dy, density, energy, flux, cross, mass_flux, energy_flux):  # type: ignore[no-untyped-def]
    """Density and energy of cells after what passed their faces."""
    dk, dj, volume = 1 - along, along, dx * dy
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                before = _volume_before(k, j, dk, dj, first, volume, flux, cross)
                mass = density[k, j] * before
                after = mass + (mass_flux[k, j] - mass_flux[k + dk, j + dj])
                energy[k, j] = (energy[k, j] * mass + (energy_flux[k, j] - energy_flux[k + dk, j + dj])) / after
                density[k, j] = after / (before + (flux[k, j] - flux[k + dk, j + dj]))


@part(error_model="numpy")
def _mass_after(k, j, dk, dj, first, volume, density, cross):  # type: ignore[no-untyped-def]
    """The mass of a cell after the sweep."""
    if first:
        return density[k, j] * (volume + (cross[k + dj, j + dk] - cross[k, j]))
    return density[k, j] * volume


@kernel(error_model="numpy")
def node_masses(rects, along, first, dx, dy, density, cross, mass_flux, node_flux, mass_post, mass_pre):  # type: ignore[no-untyped-def]
    """Mass that passes between nodes, and the mass of nodes after and before the sweep. The first line along the sweep has a flux alone."""
    dk, dj, volume = 1 - along, along, dx * dy
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                node_flux[k, j] = 0.25 * (
                    (mass_flux[k - dj, j - dk] + mass_flux[k, j]) + (mass_flux[k - dj + dk, j - dk + dj] + mass_flux[k + dk, j + dj])
                )
        for k in range(rects[n, 0] + dk, rects[n, 1]):
            for j in range(rects[n, 2] + dj, rects[n, 3]):
                near = _mass_after(k - dj, j - dk, dk, dj, first, volume, density, cross)
                near += _mass_after(k, j, dk, dj, first, volume, density, cross)
                far = _mass_after(k - dj - dk, j - dk - dj, dk, dj, first, volume, density, cross)
                far += _mass_after(k - dk, j - dj, dk, dj, first, volume, density, cross)
                mass_post[k, j] = 0.25 * (near + far)
                mass_pre[k, j] = mass_post[k, j] - node_flux[k - dk, j - dj] + node_flux[k, j]


@part(error_model="numpy")
def _momentum(k, j, dk, dj, f, width, velocity, mass_pre):  # type: ignore[no-untyped-def]
    """The momentum that a flux between nodes takes along."""
    side = 1 if f < 0.0 else 0
    down = 0 if f < 0.0 else 1
    up = 2 if f < 0.0 else -1
    k0, j0 = k + side * dk, j + side * dj
    share = abs(f) / mass_pre[k0, j0]
    v = velocity[k0, j0]
    before, after = v - velocity[k + up * dk, j + up * dj], velocity[k + down * dk, j + down * dj] - v
    limit = 0.0
    if before * after > 0.0:
        wind = 1.0 if after > 0.0 else -1.0
        steep = width * ((2.0 - share) * abs(after) / width + (1.0 + share) * abs(before) / width) / 6.0
        limit = wind * min(steep, min(abs(before), abs(after)))
    return (v + (1.0 - share) * limit) * f


@kernel(error_model="numpy")
def momentum_flux(rects, along, dx, dy, xvel, yvel, node_flux, mass_pre, momentum_x, momentum_y):  # type: ignore[no-untyped-def]
    """Momentum that passes between nodes, for both velocities."""
    dk, dj = 1 - along, along
    width = dx if along == 1 else dy
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                f = node_flux[k, j]
                momentum_x[k, j] = _momentum(k, j, dk, dj, f, width, xvel, mass_pre)
                momentum_y[k, j] = _momentum(k, j, dk, dj, f, width, yvel, mass_pre)


@kernel(error_model="numpy")
def momentum_update(rects, along, xvel, yvel, mass_post, mass_pre, momentum_x, momentum_y):  # type: ignore[no-untyped-def]
    """Velocities of nodes after what passed between them."""
    dk, dj = 1 - along, along
    for n in range(rects.shape[0]):
        for k in range(rects[n, 0], rects[n, 1]):
            for j in range(rects[n, 2], rects[n, 3]):
                before, after = mass_pre[k, j], mass_post[k, j]
                xvel[k, j] = (xvel[k, j] * before + (momentum_x[k - dk, j - dj] - momentum_x[k, j])) / after
                yvel[k, j] = (yvel[k, j] * before + (momentum_y[k - dk, j - dj] - momentum_y[k, j])) / after
