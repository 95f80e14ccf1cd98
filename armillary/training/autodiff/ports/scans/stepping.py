"""A loop over time steps as a scan, with or without checkpoints."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

import math

import jax
from jax.lax import scan


def steps(body, state, count, checkpoint=False):
    """`count` steps of `body(state) -> (state, out)`; returns the last state and the stacked outs."""
    if not checkpoint or count < 4:
        return scan(lambda carry, _: body(carry), state, None, length=count)
    length = max(2, math.isqrt(count))
    whole, rest = divmod(count, length)
    segment = jax.checkpoint(lambda carry: scan(lambda inner, _: body(inner), carry, None, length=length))
    state, outs = scan(lambda carry, _: segment(carry), state, None, length=whole)
    outs = jax.tree.map(lambda one: one.reshape((whole * length, *one.shape[2:])), outs)
    if rest:
        state, last = scan(lambda carry, _: body(carry), state, None, length=rest)
        outs = jax.tree.map(lambda one, other: jax.numpy.concatenate((one, other)), outs, last)
    return state, outs
