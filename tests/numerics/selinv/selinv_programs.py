"""Programs of ranks, importable by name for MPI, and matrices for them."""

from __future__ import annotations

import numpy as np

from armillary.numerics.selinv.blocks.block_arrow import BlockArrow
from armillary.numerics.selinv.inversion.factorisation import factor, selected_inverse


def random_blocks(n, b, a, seed=0, kind="f"):
    """Draws blocks that are positive definite by dominance, real or complex."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        x = rng.normal(size=shape)
        return x + 1j * rng.normal(size=shape) if kind == "c" else x

    diagonal, tip = draw(n, b, b), draw(a, a)
    diagonal = diagonal + diagonal.conj().transpose(0, 2, 1) + (8 * b + 4 * a) * np.eye(b)
    tip = tip + tip.conj().T + 8 * n * b * np.eye(a)
    return BlockArrow(diagonal, draw(n - 1, b, b), draw(n, a, b), tip)


def invert_and_solve(comm, blocks, strategy="allgather", balance="auto", columns=3):
    """Returns everything that a factor gives, on every rank."""
    f = factor(blocks, comm, strategy=strategy, balance=balance)
    x = selected_inverse(f)
    all_blocks = x.blocks()
    rhs = np.cos(np.arange(blocks.order * columns)).reshape(blocks.order, columns)
    return all_blocks.diagonal, all_blocks.lower, all_blocks.arrow, all_blocks.tip, x.diagonal(), f.logdet(), f.solve(rhs)


def invert_made_here(comm, n, b, a, strategy):
    """Does the same for a matrix that every rank makes, which MPI ranks can do by name."""
    return invert_and_solve(comm, random_blocks(n, b, a), strategy)
