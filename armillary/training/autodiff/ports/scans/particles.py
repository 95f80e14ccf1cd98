"""Particles as a scan; only the energy that is asked for is computed."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import jax.numpy as jnp

from .stepping import steps


def accelerations(pos, mass, G, softening):
    apart = pos[None, :, :] - pos[:, None, :]
    inverse = (jnp.sum(apart * apart, axis=2) + softening**2) ** (-1.5)
    return G * jnp.einsum("ijk,ij,j->ik", apart, inverse, mass[:, 0])


def nbody(mass, pos, vel, N, Nt, dt, G, softening, checkpoint=False):
    vel = vel - jnp.mean(mass * vel, axis=0) / jnp.mean(mass)
    acc = accelerations(pos, mass, G, softening)

    def step(state):
        pos, vel, acc = state
        vel = vel + acc * dt / 2.0
        pos = pos + vel * dt
        acc = accelerations(pos, mass, G, softening)
        vel = vel + acc * dt / 2.0
        return (pos, vel, acc), 0.5 * jnp.sum(mass * vel**2)

    first = 0.5 * jnp.sum(mass * vel**2)
    energies = steps(step, (pos, vel, acc), Nt, checkpoint)[1]
    return jnp.concatenate((first[None], energies))
