"""Matrices to invert: spatio-temporal Gaussian fields with fixed effects, random ones, and those in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError
from armillary.files import check_archive, read_arrays

from .blocks.block_arrow import BlockArrow, check_room

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def matern(side: int, reach: float = 0.2) -> csr_array:
    """Returns the precision Q_S = (κ²C + G)ᵀC⁻¹(κ²C + G) of a Matérn field (α = 2) on a side×side grid of the unit square, of variance
    about 1.

    `reach` is the distance at which the correlation is about 0.1; κ = √8 / reach. Lindgren, Rue, Lindström: An explicit link between
    Gaussian fields and Gaussian Markov random fields, 2011.
    """
    from scipy.sparse import csr_array, diags_array, eye_array, kron

    step, kappa = 1.0 / max(1, side - 1), np.sqrt(8.0) / reach
    ones = np.ones(side).tolist()
    path = diags_array([[2.0 * x for x in ones], [-x for x in ones[1:]], [-x for x in ones[1:]]], offsets=[0, 1, -1]).tolil()
    path[0, 0] = path[-1, -1] = 1.0 if side > 1 else 0.0
    stiffness = kron(path, eye_array(side)) + kron(eye_array(side), path)
    mass = step * step
    k = kappa**2 * mass * eye_array(side * side) + stiffness
    return csr_array((k.T @ k) / (mass * 4 * np.pi * kappa**2))


def spatio_temporal(
    n: int, side: int, a: int, rng: np.random.Generator, correlation: float = 0.9, noise_precision: float = 4.0
) -> BlockArrow:
    """Returns the posterior precision of n days of a field on a side×side grid, AR(1) in time, with `a` fixed effects of random design.

    Q = Q_T ⊗ Q_S, every point observed with noise of precision τ: [[Q + τI, τZᵀ], [τZ, τZZᵀ + 10⁻³I]], Z of a×N with a row of ones.
    """
    space = matern(side).toarray()
    b = side * side
    scale = 1 / (1 - correlation**2)
    middle = np.full(n, 1 + correlation**2)
    middle[[0, -1]] = 1.0 if n > 1 else 1 - correlation**2
    diagonal = scale * middle[:, None, None] * space + noise_precision * np.eye(b)
    lower = np.broadcast_to(-correlation * scale * space, (n - 1, b, b)).copy()
    design = rng.normal(size=(n, a, b))
    if a:
        design[:, 0] = 1.0
    tip = noise_precision * np.einsum("nib,njb->ij", design, design) + 1e-3 * np.eye(a)
    return BlockArrow(diagonal, lower, noise_precision * design, (tip + tip.T) / 2)


def random_blocks(
    n: int, b: int, a: int, rng: np.random.Generator, kind: str = "real", sizes: tuple[int, ...] = (), condition: float = 0.0
) -> BlockArrow:
    """Returns random dense blocks, positive definite by dominance; "complex" is Hermitian.

    `condition` scales rows so that it is about that.
    """

    def draw(*shape: int) -> np.ndarray:
        x = rng.normal(size=shape)
        return x + 1j * rng.normal(size=shape) if kind == "complex" else x

    true = np.asarray(sizes or [b] * n)
    mask = np.arange(b)[None, :] < true[:, None]
    diagonal, lower, arrow, tip = draw(n, b, b), draw(n - 1, b, b), draw(n, a, b), draw(a, a)
    diagonal = (diagonal + diagonal.conj().transpose(0, 2, 1)) + (8 * np.sqrt(b) + 4 * a) * np.eye(b)
    tip = tip + tip.conj().T + (8 * np.sqrt(a or 1) + 4 * n * b) * np.eye(a)
    scale = np.logspace(0, -np.log10(condition) / 2, n * b).reshape(n, b) if condition else np.ones((n, b))
    # A block is scaled in a random basis, so that equilibration cannot undo it.
    turn = np.linalg.qr(draw(b, b))[0] if condition else np.eye(b)
    scaled = scale[:, :, None] * turn[None]
    diagonal = scaled.conj().transpose(0, 2, 1) @ diagonal @ scaled
    lower = scaled[1:].conj().transpose(0, 2, 1) @ lower @ scaled[:-1]
    arrow = arrow @ scaled
    diagonal = diagonal * mask[:, :, None] * mask[:, None, :]
    diagonal[:, np.arange(b), np.arange(b)] += ~mask
    lower = lower * mask[1:, :, None] * mask[:-1, None, :]
    diagonal = (diagonal + diagonal.conj().transpose(0, 2, 1)) / 2
    return BlockArrow(diagonal, lower, arrow * mask[:, None, :], tip, tuple(sizes))


def read_blocks(path: Path, block: str = "auto", arrow: str = "auto") -> BlockArrow:
    """Reads the matrix in a file: block arrays in `.npz` (`diagonal`, `lower`, and where there is an arrow `arrow` and `tip`), or a
    sparse one (`.mtx`, `.mtx.gz`, SciPy's `.npz`), whose block size and arrow are given or found out. `block` may be sizes separated by
    commas."""
    from armillary.files.matrices import read_sparse

    if path.name.lower().endswith(".npz") and "diagonal" in (names := check_archive(path)):
        return _block_arrays(path, names)
    sizes: Any = [_number(word, "block") for word in block.split(",")] if "," in block else block
    return BlockArrow.from_sparse(
        read_sparse(path), sizes if isinstance(sizes, list) or block == "auto" else _number(block, "block"), arrow
    )


def _number(word: str, what: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise InputError(f'found "{word}"; expected a whole number, sizes with commas between, or auto', where=what) from None


def _block_arrays(path: Path, names: set[str]) -> BlockArrow:
    wanted = {"diagonal", "lower"} | (names & {"arrow", "tip", "sizes"})
    if missing := ({"diagonal", "lower"} - names) | ({"arrow", "tip"} - names if names & {"arrow", "tip"} else set()):
        raise InputError(f"found no array {', '.join(sorted(missing))}; expected diagonal, lower, arrow and tip", where=str(path))
    if extra := names - wanted:
        raise InputError(f"found {', '.join(sorted(extra))}; expected diagonal, lower, arrow, tip, sizes", where=str(path))
    found = read_arrays(path, sorted(wanted), limit=None)
    sizes = found.pop("sizes", np.empty(0, np.int64))
    for name, x in [*found.items(), ("sizes", sizes)]:
        if x.dtype.kind not in ("biufc" if name != "sizes" else "iu"):
            raise InputError(f"{name}: found an array of {x.dtype}; expected numbers", where=str(path))
    diagonal = found["diagonal"]
    if diagonal.ndim != 3:
        raise InputError(f"diagonal: found {diagonal.ndim} dimensions; expected 3", where=str(path))
    kind = np.result_type(*(x.dtype for x in found.values()), np.float64)
    n, b = diagonal.shape[0], diagonal.shape[2]
    found.setdefault("arrow", np.zeros((n, 0, b), kind))
    found.setdefault("tip", np.zeros((0, 0), kind))
    check_room(3 * diagonal.nbytes, "the blocks")
    diagonal, lower, arrow, tip = (np.ascontiguousarray(found[name], kind) for name in ("diagonal", "lower", "arrow", "tip"))
    try:
        return BlockArrow(diagonal, lower, arrow, tip, tuple(sizes.tolist())).check()
    except InputError as error:
        raise InputError(str(error), where=str(path)) from error
