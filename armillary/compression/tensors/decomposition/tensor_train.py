"""A tensor in tensor-train form is a chain of small cores whose product over shared ranks is the tensor.

A[i₁, …, i_d] ≈ G₁[i₁]·G₂[i₂]·…·G_d[i_d], where G_k[i] is an r_{k−1}×r_k matrix. Oseledets: Tensor-train decomposition, 2011.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from armillary.errors import InputError, unknown
from armillary.files.opening import STREAM_BYTES

from .split_svd import Svd, squares, svd, truncated

Array = np.ndarray[Any, Any]
Engine = Literal["auto", "gesdd", "split", "lapack", "plain", "random", "qr"]
ENGINES = ("auto", "gesdd", "split", "lapack", "plain", "random", "qr")
#: Unfoldings with more than this many values, both sides at least as long as _WIDE, are worth a random sketch under "auto".
_LARGE, _WIDE = 2_000_000, 512
_OVERSAMPLE = 10


@dataclass(frozen=True, eq=False)
class TT:
    """A tensor train: `cores[k]` has the shape (r_{k−1}, n_k, r_k), with r₀ = r_d = 1."""

    cores: tuple[Array, ...]
    #: Sweeps of the QR iteration of each unfolding, where the engine counts them, and the unfoldings' shapes.
    sweeps: tuple[int, ...] = ()
    unfoldings: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        before = 1
        for k, core in enumerate(self.cores):
            if core.ndim != 3 or core.shape[0] != before:
                raise InputError(f"core {k}: found the shape {core.shape}; expected ({before}, n, r)")
            before = core.shape[2]
        if not self.cores or before != 1:
            raise InputError(f"cores: found a last rank of {before}; expected 1")

    @property
    def shape(self) -> tuple[int, ...]:
        """The modes."""
        return tuple(core.shape[1] for core in self.cores)

    @property
    def ranks(self) -> tuple[int, ...]:
        """r₀ … r_d."""
        return (1, *(core.shape[2] for core in self.cores))

    @property
    def size(self) -> int:
        """Values in all cores."""
        return sum(core.size for core in self.cores)

    @property
    def nbytes(self) -> int:
        """Bytes of all cores."""
        return sum(core.nbytes for core in self.cores)

    def full(self, *, most_bytes: int = STREAM_BYTES) -> Array:
        """Returns the tensor itself, of at most `most_bytes` bytes: a few small cores can stand for a tensor without end."""
        values = itertools.accumulate((core.shape[1] for core in self.cores), operator.mul)
        if max(v * core.shape[2] * core.itemsize for v, core in zip(values, self.cores, strict=True)) > most_bytes:
            said = f"found a train of {len(self.cores)} modes and {math.prod(self.shape):,} values"
            raise InputError(f"{said}; expected a tensor of at most {most_bytes:,} bytes (set most_bytes)")
        made = self.cores[0].reshape(self.shape[0], -1)
        for core in self.cores[1:]:
            made = made.reshape(-1, core.shape[0]) @ core.reshape(core.shape[0], -1)
        return made.reshape(self.shape)

    def norm(self) -> float:
        """Returns ‖A‖_F, from the cores."""
        return math.sqrt(max(0.0, self.dot(self)))

    def dot(self, other: TT) -> float:
        """Returns Σ A·B over all entries, from the cores."""
        if self.shape != other.shape:
            raise InputError(f"dot: found the shapes {self.shape} and {other.shape}; expected equal ones")
        inner: Any = np.ones((1, 1))
        for mine, theirs in zip(self.cores, other.cores):
            inner = np.einsum("ab,aic,bid->cd", inner, mine, theirs, optimize=True)
        return float(inner[0, 0])

    def __add__(self, other: TT) -> TT:
        if self.shape != other.shape:
            raise InputError(f"+: found the shapes {self.shape} and {other.shape}; expected equal ones")
        if len(self.cores) == 1:
            return TT((self.cores[0] + other.cores[0],))
        made = []
        for k, (a, b) in enumerate(zip(self.cores, other.cores)):
            if k == 0:
                made.append(np.concatenate([a, b], axis=2))
            elif k == len(self.cores) - 1:
                made.append(np.concatenate([a, b], axis=0))
            else:
                core = np.zeros((a.shape[0] + b.shape[0], a.shape[1], a.shape[2] + b.shape[2]), np.result_type(a, b))
                core[: a.shape[0], :, : a.shape[2]], core[a.shape[0] :, :, a.shape[2] :] = a, b
                made.append(core)
        return TT(tuple(made))

    def __mul__(self, other: TT | float) -> TT:
        """Multiplies entry by entry with another train, or by a number."""
        if not isinstance(other, TT):
            return TT((self.cores[0] * self.cores[0].dtype.type(other), *self.cores[1:]))
        if self.shape != other.shape:
            raise InputError(f"*: found the shapes {self.shape} and {other.shape}; expected equal ones")
        pairs = zip(self.cores, other.cores)
        return TT(tuple(np.einsum("aib,cid->acibd", a, b).reshape(a.shape[0] * b.shape[0], a.shape[1], -1) for a, b in pairs))

    __rmul__ = __mul__

    def matvec(self, x: Array, out: Sequence[int] | None = None) -> Array:
        """Multiplies the train of a matrix by a vector (or a batch of them, …×Πin), where each mode is (out_k·in_k), as `fold` makes it."""
        if out is None:
            raise InputError("matvec: found no output modes; expected out=[...], one for each core")
        into = [n // o for n, o in zip(self.shape, out)]
        if len(out) != len(self.cores) or any(n != o * i for n, o, i in zip(self.shape, out, into)) or x.shape[-1] != math.prod(into):
            raise InputError(f"matvec: found {x.shape[-1]} values for modes {self.shape} with outputs {tuple(out)}; expected Π(n/out)")
        batch = x.shape[:-1]
        # State: (batch, outputs so far, rank, inputs to come).
        state = np.ascontiguousarray(x).reshape(-1, 1, 1, x.shape[-1])
        done = 1
        for core, o, i in zip(self.cores, out, into):
            rest = state.shape[3] // i
            state = state.reshape(-1, done, core.shape[0], i, rest)
            state = np.einsum("bdaix,aoic->bdocx", state, core.reshape(core.shape[0], o, i, core.shape[2]), optimize=True)
            done *= o
            state = state.reshape(-1, done, core.shape[2], rest)
        return state.reshape(*batch, done)

    def round(self, eps: float, max_rank: int | None = None) -> TT:
        """Returns the train of least ranks within eps·‖A‖ of this one, without making the tensor."""
        _checked(eps, max_rank)
        cores = [np.array(core) for core in self.cores]
        for k in range(len(cores) - 1, 0, -1):
            q, r = np.linalg.qr(cores[k].reshape(cores[k].shape[0], -1).T)
            cores[k] = q.T.reshape(-1, cores[k].shape[1], cores[k].shape[2])
            cores[k - 1] = cores[k - 1] @ r.T
        tail = eps / math.sqrt(max(1, len(cores) - 1)) * float(np.linalg.norm(cores[0]))
        for k in range(len(cores) - 1):
            found = _gesdd(cores[k].reshape(-1, cores[k].shape[2]), tail, max_rank)
            cores[k] = found.u.reshape(cores[k].shape[0], cores[k].shape[1], -1)
            cores[k + 1] = np.tensordot(found.s[:, None] * found.vt, cores[k + 1], 1)
        return TT(tuple(cores))

    def to_arrays(self) -> list[Array]:
        """Returns the cores, to be sent (Flower's clients take lists of arrays)."""
        return list(self.cores)

    @classmethod
    def from_arrays(cls, arrays: Sequence[Array]) -> TT:
        """Makes a train from cores that were sent."""
        return cls(tuple(np.asarray(core) for core in arrays))


def tt_svd(a: Any, eps: float = 1e-2, max_rank: int | None = None, engine: Engine = "auto", *, cast: bool = False, seed: int = 0) -> TT:
    """Returns the tensor train within eps·‖A‖ of a dense tensor (float32 or float64, d ≥ 1 modes), of least ranks, unfolding by unfolding.

    Engines: "gesdd" (LAPACK), "split" (our two halves), "lapack" (the same halves by LAPACK), "plain" (the same halves without BLAS, for
    equal bits on every processor), "random" (a sketch with one power step, error within the bound by adding columns until it is), "qr"
    (column-pivoted), "auto" (gesdd, or a sketch for large unfoldings). `max_rank` cuts ranks, and then the bound may not hold. Integers
    need `cast=True`.
    """
    _checked(eps, max_rank)
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    a = _floating(a, cast)
    # Entries are scaled by a power of two to about 1, because squares of very large or small ones would leave the range.
    exponent = int(np.frexp(np.max(np.abs(a)))[1])
    rest, before = np.ldexp(a, -exponent), 1
    flat = rest.ravel()
    norm = math.sqrt(squares(flat.astype(np.float64))) if engine == "plain" else float(np.linalg.norm(flat))
    tail = eps / math.sqrt(max(1, a.ndim - 1)) * norm
    rng = np.random.default_rng(seed)
    cores: list[Array] = []
    sweeps: list[int] = []
    unfoldings: list[tuple[int, int]] = []
    for n in a.shape[:-1]:
        matrix = rest.reshape(before * n, -1)
        found = decomposed(matrix, tail, max_rank, engine, rng)
        cores.append(found.u.reshape(before, n, -1))
        sweeps.append(found.sweeps)
        unfoldings.append(matrix.shape)
        before = len(found.s)
        rest = found.s[:, None] * found.vt
    cores.append(np.ldexp(rest, exponent).reshape(before, a.shape[-1], 1))
    return TT(tuple(cores), tuple(sweeps), tuple(unfoldings))


def decomposed(matrix: Array, tail: float, max_rank: int | None, engine: str, rng: np.random.Generator) -> Svd:
    """Returns a matrix as U·diag(s)·Vᵀ to within `tail` in the Frobenius norm, by one of the engines."""
    if engine == "auto":
        engine = "random" if matrix.size >= _LARGE and min(matrix.shape) >= _WIDE and tail > 0 else "gesdd"
    if engine in ("split", "lapack", "plain"):
        return svd(matrix, tail, max_rank, engine)  # type: ignore[arg-type]
    if engine == "random":
        return _sketched(matrix, tail, max_rank, rng)
    return _pivoted(matrix, tail, max_rank) if engine == "qr" else _gesdd(matrix, tail, max_rank)


def _cut(u: Array, s: Array, vt: Array, tail: float, max_rank: int | None) -> Svd:
    _, rank = truncated(s, tail, max_rank)
    return Svd(np.ascontiguousarray(u[:, :rank]), s[:rank], vt[:rank], 0, len(s))


def _gesdd(matrix: Array, tail: float, max_rank: int | None) -> Svd:
    """Decomposes by LAPACK's divide and conquer; a matrix that is far from square goes through QR, and only its triangle is decomposed."""
    m, n = matrix.shape
    if n > 2 * m:
        q, r = np.linalg.qr(matrix.T)
        u, s, vt = np.linalg.svd(r.T, full_matrices=False)
        cut = _cut(u, s, vt, tail, max_rank)
        return Svd(cut.u, cut.s, cut.vt @ q.T, 0, cut.full)
    if m > 2 * n:
        q, r = np.linalg.qr(matrix)
        u, s, vt = np.linalg.svd(r, full_matrices=False)
        cut = _cut(u, s, vt, tail, max_rank)
        return Svd(q @ cut.u, cut.s, cut.vt, 0, cut.full)
    return _cut(*np.linalg.svd(matrix, full_matrices=False), tail, max_rank)


def _sketched(matrix: Array, tail: float, max_rank: int | None, rng: np.random.Generator) -> Svd:
    """Decomposes by a random range finder with one power step (Halko, Martinsson, Tropp, 2011), widened until its miss is within the tail.

    ‖A − QQᵀA‖² = ‖A‖² − ‖QᵀA‖², so that the miss is known without another pass, and is taken off the tail of the small decomposition.
    """
    m, n = matrix.shape
    least = min(m, n)
    whole = float(np.linalg.norm(matrix)) ** 2
    width = min(least, (max_rank or 64) + _OVERSAMPLE)
    # Below this, rounding hides the miss.
    floor = 8 * np.finfo(matrix.dtype).eps * whole
    while True:
        if width >= least:
            return _gesdd(matrix, tail, max_rank)
        sketch = matrix @ rng.standard_normal((n, width), dtype=np.float64).astype(matrix.dtype)
        q, _ = np.linalg.qr(sketch)
        q, _ = np.linalg.qr(matrix @ np.linalg.qr(matrix.T @ q)[0])
        small = q.T @ matrix
        missed = max(0.0, whole - float(np.linalg.norm(small)) ** 2)
        if max_rank is not None and width >= max_rank:
            break
        if missed + floor <= tail**2 * 0.25:
            break
        width = min(least, 2 * width)
    u, s, vt = np.linalg.svd(small, full_matrices=False)
    cut = _cut(u, s, vt, math.sqrt(max(0.0, tail**2 - missed - floor)), max_rank)
    return Svd(q @ cut.u, cut.s, cut.vt, 0, least)


def _pivoted(matrix: Array, tail: float, max_rank: int | None) -> Svd:
    """Decomposes by column-pivoted QR, cut where the rest of R is within the tail: cheaper than an SVD, at slightly higher ranks."""
    from scipy.linalg import qr

    q, r, order = qr(matrix, mode="economic", pivoting=True, check_finite=False)
    k = r.shape[0]
    below = np.sqrt(np.cumsum(np.einsum("ij,ij->i", r, r)[::-1])[::-1])
    rank = max(1, int(np.searchsorted(-below, -tail, side="left")))
    rank = min(rank, k if max_rank is None else max_rank)
    vt = np.empty((rank, matrix.shape[1]), matrix.dtype)
    vt[:, order] = r[:rank]
    return Svd(np.ascontiguousarray(q[:, :rank]), np.ones(rank, matrix.dtype), vt, 0, k)


def _checked(eps: float, max_rank: int | None) -> None:
    if not 0 <= eps < 1:
        raise InputError(f"eps: found {eps}; expected at least 0 and below 1")
    if max_rank is not None and max_rank < 1:
        raise InputError(f"max_rank: found {max_rank}; expected at least 1")


def _floating(a: Any, cast: bool) -> Array:
    """Returns the tensor as a float array of this host; accelerators' arrays are copied."""
    from armillary.arrays import to_host

    a = to_host(a)
    if a.dtype not in (np.float32, np.float64):
        if not cast or a.dtype.kind not in "biuf":
            raise InputError(f"found {a.dtype}; expected float32 or float64 (cast=True takes integers)")
        a = a.astype(np.float64)
    if a.ndim == 0 or 0 in a.shape:
        raise InputError(f"found the shape {a.shape}; expected at least one mode, and none of 0")
    if not np.isfinite(a).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(a))[0])
        raise InputError(f"found {a[at]} at {at}; expected finite numbers")
    return a
