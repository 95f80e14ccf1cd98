"""Particles that attract each other."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import numpy as np


def accelerations(pos, mass, G, softening):
    """Newton's accelerations, softened at short distances."""
    x = pos[:, 0:1]
    y = pos[:, 1:2]
    z = pos[:, 2:3]
    dx = x.T - x
    dy = y.T - y
    dz = z.T - z
    inv_r3 = (dx**2 + dy**2 + dz**2 + softening**2) ** (-1.5)
    ax = G * (dx * inv_r3) @ mass
    ay = G * (dy * inv_r3) @ mass
    az = G * (dz * inv_r3) @ mass
    return np.hstack((ax, ay, az))


def energies(pos, vel, mass, G, softening):
    """The kinetic energy, and the potential energy with the same softening."""
    kinetic = 0.5 * np.sum(mass * vel**2)
    x = pos[:, 0:1]
    y = pos[:, 1:2]
    z = pos[:, 2:3]
    dx = x.T - x
    dy = y.T - y
    dz = z.T - z
    inv_r = 1.0 / np.sqrt(dx**2 + dy**2 + dz**2 + softening**2)
    potential = G * np.sum(np.triu(-(mass * mass.T) * inv_r, 1))
    return kinetic, potential


def nbody(mass, pos, vel, N, Nt, dt, G, softening):
    """Leapfrog steps; returns the energies after each."""
    vel -= np.mean(mass * vel, axis=0) / np.mean(mass)
    acc = accelerations(pos, mass, G, softening)
    KE = np.zeros(Nt + 1, dtype=pos.dtype)
    PE = np.zeros(Nt + 1, dtype=pos.dtype)
    KE[0], PE[0] = energies(pos, vel, mass, G, softening)
    for i in range(Nt):
        vel += acc * dt / 2.0
        pos += vel * dt
        acc = accelerations(pos, mass, G, softening)
        vel += acc * dt / 2.0
        KE[i + 1], PE[i + 1] = energies(pos, vel, mass, G, softening)
    return KE, PE
