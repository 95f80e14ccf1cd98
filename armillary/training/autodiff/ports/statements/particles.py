"""Particles, statement by statement."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import jax.numpy as jnp
from jax.lax import fori_loop


def accelerations(pos, mass, G, softening):
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
    return jnp.hstack((ax, ay, az))


def energies(pos, vel, mass, G, softening):
    kinetic = 0.5 * jnp.sum(mass * vel**2)
    x = pos[:, 0:1]
    y = pos[:, 1:2]
    z = pos[:, 2:3]
    dx = x.T - x
    dy = y.T - y
    dz = z.T - z
    inv_r = 1.0 / jnp.sqrt(dx**2 + dy**2 + dz**2 + softening**2)
    potential = G * jnp.sum(jnp.triu(-(mass * mass.T) * inv_r, 1))
    return kinetic, potential


def nbody(mass, pos, vel, N, Nt, dt, G, softening):
    vel = vel - jnp.mean(mass * vel, axis=0) / jnp.mean(mass)
    acc = accelerations(pos, mass, G, softening)
    KE = jnp.zeros(Nt + 1, dtype=pos.dtype)
    PE = jnp.zeros(Nt + 1, dtype=pos.dtype)
    kinetic, potential = energies(pos, vel, mass, G, softening)
    KE = KE.at[0].set(kinetic)
    PE = PE.at[0].set(potential)

    def step(i, state):
        pos, vel, acc, KE, PE = state
        vel = vel + acc * dt / 2.0
        pos = pos + vel * dt
        acc = accelerations(pos, mass, G, softening)
        vel = vel + acc * dt / 2.0
        kinetic, potential = energies(pos, vel, mass, G, softening)
        KE = KE.at[i + 1].set(kinetic)
        PE = PE.at[i + 1].set(potential)
        return pos, vel, acc, KE, PE

    return fori_loop(0, Nt, step, (pos, vel, acc, KE, PE))[3]
