"""What a time step does between two messages, as one compiled call each: the host's counterpart of a captured graph.

A segment unpacks what arrived, mirrors walls, launches the kernels of the table up to the next exchange, and packs. `f` are all arrays in
the order of `ARRAYS`, and `rects` those of cells, nodes, and the faces, lines and nodes between of the first and the second sweep.
"""

from __future__ import annotations

from armillary.kernels import kernel
from armillary.network.halo.views.packing import pack, unpack

from .block import FIELDS, WORK
from .loops import accelerate, advance, fluxes, ideal_gas, pdv_correct, pdv_predict, reflect, reset, revert, time_step, viscosity
from .sweeps import cell_flux, cell_update, momentum_flux, momentum_update, node_masses

ARRAYS = (*FIELDS, *WORK)
(D0, D1, E0, E1, P, V, C, XV0, XV1, YV0, YV1, VFX, VFY, MFX, MFY, EF, NF, POST, PRE, MX, MY) = range(len(ARRAYS))


@kernel
def _arrived(mirror, mirrored, got, into, solid):  # type: ignore[no-untyped-def]
    unpack(got, into, solid)
    reflect(mirror, mirrored)


@kernel
def first_gas(f, rects, clock, size, rise, most, along, give, out, solid):  # type: ignore[no-untyped-def]
    """Up to the first exchange."""
    ideal_gas(rects[0:1], f[D0], f[E0], f[P], f[C])
    pack(give, out, solid)


@kernel
def shocks(f, rects, clock, size, rise, most, along, mirror, mirrored, got, into, taken, give, out, solid):  # type: ignore[no-untyped-def]
    """Between the first and the second exchange."""
    _arrived(mirror, mirrored, got, into, taken)
    viscosity(rects[0:1], size[0], size[1], f[D0], f[P], f[V], f[XV0], f[YV0])
    pack(give, out, solid)


@kernel
def limit(f, rects, clock, size, rise, most, along, mirror, mirrored, got, into, taken):  # type: ignore[no-untyped-def]
    """From the second exchange to the reduction."""
    _arrived(mirror, mirrored, got, into, taken)
    time_step(rects[0:1], size[0], size[1], f[D0], f[C], f[V], f[XV0], f[YV0], clock)


@kernel
def predict(f, rects, clock, size, rise, most, along, give, out, solid):  # type: ignore[no-untyped-def]
    """From the reduction to the third exchange."""
    advance(clock, rise, most)
    pdv_predict(rects[0:1], clock, size[0], size[1], f[D0], f[E0], f[P], f[V], f[XV0], f[YV0], f[D1], f[E1])
    ideal_gas(rects[0:1], f[D1], f[E1], f[P], f[C])
    pack(give, out, solid)


@kernel
def correct(f, rects, clock, size, rise, most, along, mirror, mirrored, got, into, taken, give, out, solid):  # type: ignore[no-untyped-def]
    """Between the third and the fourth exchange."""
    _arrived(mirror, mirrored, got, into, taken)
    cells, nodes, dx, dy = rects[0:1], rects[1:2], size[0], size[1]
    revert(cells, f[D0], f[E0], f[D1], f[E1])
    accelerate(nodes, clock, dx, dy, f[D0], f[P], f[V], f[XV0], f[YV0], f[XV1], f[YV1])
    pdv_correct(cells, clock, dx, dy, f[D0], f[E0], f[P], f[V], f[XV0], f[YV0], f[XV1], f[YV1], f[D1], f[E1])
    fluxes(nodes, clock, dx, dy, f[XV0], f[YV0], f[XV1], f[YV1], f[VFX], f[VFY])
    pack(give, out, solid)


@kernel
def _cells(f, rects, at, size, along, first):  # type: ignore[no-untyped-def]
    flux, cross, mass = (f[VFX], f[VFY], f[MFX]) if along == 1 else (f[VFY], f[VFX], f[MFY])
    cell_flux(rects[at : at + 1], along, first, size[0], size[1], f[D1], f[E1], flux, cross, mass, f[EF])
    cell_update(rects[0:1], along, first, size[0], size[1], f[D1], f[E1], flux, cross, mass, f[EF])


@kernel
def _nodes(f, rects, at, size, along, first):  # type: ignore[no-untyped-def]
    cross, mass = (f[VFY], f[MFX]) if along == 1 else (f[VFX], f[MFY])
    node_masses(rects[at + 1 : at + 2], along, first, size[0], size[1], f[D1], cross, mass, f[NF], f[POST], f[PRE])
    momentum_flux(rects[at + 2 : at + 3], along, size[0], size[1], f[XV1], f[YV1], f[NF], f[PRE], f[MX], f[MY])
    momentum_update(rects[1:2], along, f[XV1], f[YV1], f[POST], f[PRE], f[MX], f[MY])


@kernel
def sweep(f, rects, clock, size, rise, most, along, mirror, mirrored, got, into, taken, give, out, solid):  # type: ignore[no-untyped-def]
    """Between the fourth and the fifth exchange."""
    _arrived(mirror, mirrored, got, into, taken)
    _cells(f, rects, 2, size, along, True)
    pack(give, out, solid)


@kernel
def second_sweep(f, rects, clock, size, rise, most, along, mirror, mirrored, got, into, taken, give, out, solid):  # type: ignore[no-untyped-def]
    """Between the fifth and the sixth exchange."""
    _arrived(mirror, mirrored, got, into, taken)
    _nodes(f, rects, 2, size, along, True)
    _cells(f, rects, 5, size, 1 - along, False)
    pack(give, out, solid)


@kernel
def end(f, rects, clock, size, rise, most, along, mirror, mirrored, got, into, taken):  # type: ignore[no-untyped-def]
    """After the sixth exchange."""
    _arrived(mirror, mirrored, got, into, taken)
    _nodes(f, rects, 5, size, 1 - along, False)
    reset(rects[1:2], f[D0], f[E0], f[XV0], f[YV0], f[D1], f[E1], f[XV1], f[YV1])
