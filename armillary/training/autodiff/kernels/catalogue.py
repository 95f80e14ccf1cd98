"""Every built-in kernel with its data: what it is called with, what it is differentiated by, and what its result is.

Data are drawn from the case's stream, so that systems are well conditioned and time steps stable; sizes are NPBench's (`sizes.json`).
The result is the first of NPBench's output arguments, else what is returned. Two differ, because there the first one does not depend on the
computation: `trisolv` has x and `gemver` has w.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import networks, particles, products, solvers, stencils

Data = dict[str, Any]
#: Sizes for tests.
TINY: dict[str, dict[str, Any]] = {
    "seidel_2d": {"TSTEPS": 3, "N": 8}, "adi": {"TSTEPS": 2, "N": 7}, "durbin": {"N": 9}, "trisolv": {"N": 12}, "trmm": {"M": 5, "N": 6},
    "syrk": {"M": 5, "N": 6}, "syr2k": {"M": 4, "N": 5}, "symm": {"M": 5, "N": 4}, "lu": {"N": 7}, "cholesky": {"N": 7},
    "gramschmidt": {"M": 7, "N": 5}, "jacobi_1d": {"TSTEPS": 6, "N": 20}, "jacobi_2d": {"TSTEPS": 5, "N": 9},
    "heat_3d": {"TSTEPS": 4, "N": 6}, "fdtd_2d": {"TMAX": 4, "NX": 7, "NY": 8}, "deriche": {"W": 8, "H": 7},
    "hdiff": {"I": 5, "J": 4, "K": 3}, "vadv": {"I": 4, "J": 3, "K": 6},
    "cavity_flow": {"ny": 8, "nx": 9, "nt": 6, "nit": 3, "rho": 1.0, "nu": 0.1},
    "spmv": {"M": 12, "N": 10, "nnz": 30}, "nbody": {"N": 5, "tEnd": 0.5, "dt": 0.05, "softening": 0.1, "G": 1.0},
    "gemm": {"NI": 9, "NJ": 10, "NK": 11}, "k2mm": {"NI": 7, "NJ": 8, "NK": 9, "NL": 10},
    "k3mm": {"NI": 7, "NJ": 8, "NK": 9, "NL": 10, "NM": 6}, "gemver": {"N": 10}, "gesummv": {"N": 10}, "atax": {"M": 9, "N": 11},
    "bicg": {"M": 9, "N": 11}, "mvt": {"N": 10}, "doitgen": {"NR": 4, "NQ": 5, "NP": 6}, "covariance": {"M": 6, "N": 8},
    "correlation": {"M": 6, "N": 8}, "softmax": {"N": 2, "H": 3, "SM": 5}, "mlp": {"C_in": 3, "N": 4, "S0": 12, "S1": 9, "S2": 7},
    "conv2d_bias": {"N": 2, "C_in": 3, "C_out": 4, "K": 2, "H": 6, "W": 5}, "lenet": {"N": 2, "H": 16, "W": 16},
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """One built-in kernel."""

    name: str
    function: Callable[..., Any]
    data: Callable[..., Data]
    #: The argument whose final content is the result; None for what is returned.
    output: str | None
    loops: bool
    #: Whether a complex step gives its derivative: NumPy compares complex numbers by their real parts first, so branches are taken alike.
    analytic: bool = True

    def arguments(self, sizes: Mapping[str, Any], rng: np.random.Generator) -> Data:
        """The arguments at these sizes, in the order in which the function takes them."""
        made = self.data(rng, **sizes)
        names = self.function.__code__.co_varnames[: self.function.__code__.co_argcount]
        return {name: made[name] if name in made else sizes[name] for name in names}


@functools.cache
def sizes() -> dict[str, dict[str, dict[str, Any]]]:
    """NPBench's sizes: kernel to S, M, L or paper to sizes by name; `tiny` is ours."""
    found = json.loads(Path(__file__).with_name("sizes.json").read_text())
    return {name: {"tiny": TINY[name], **rows} for name, rows in found.items()}


def _grid(*names: str) -> Callable[..., Data]:
    """Square grids of equal shape, with values from 0 to 1."""

    def data(rng: np.random.Generator, N: int, **_: Any) -> Data:
        rank = {"jacobi_1d": 1, "heat_3d": 3}.get(names[0], 2)
        return {name: rng.random((N,) * rank) for name in names[1:]}

    return data


def _durbin(rng: np.random.Generator, N: int) -> Data:
    return {"r": 0.3 * rng.standard_normal(N) / np.arange(1, N + 1) ** 1.5}


def _trisolv(rng: np.random.Generator, N: int) -> Data:
    return {"L": rng.random((N, N)) / N + 2 * np.eye(N), "x": np.zeros(N), "b": rng.random(N)}


def _definite(rng: np.random.Generator, N: int) -> Data:
    half = rng.random((N, N)) / N
    return {"A": half @ half.T + 2 * np.eye(N)}


def _gramschmidt(rng: np.random.Generator, M: int, N: int) -> Data:
    return {"A": rng.random((M, N)) + np.eye(M, N)}


def _fdtd_2d(rng: np.random.Generator, TMAX: int, NX: int, NY: int) -> Data:
    return {"ex": rng.random((NX, NY)), "ey": rng.random((NX, NY)), "hz": rng.random((NX, NY)), "_fict_": rng.random(TMAX)}


def _deriche(rng: np.random.Generator, W: int, H: int) -> Data:
    return {"alpha": 0.25, "imgIn": rng.random((W, H))}


def _hdiff(rng: np.random.Generator, I: int, J: int, K: int) -> Data:  # noqa: E741
    return {"in_field": rng.random((I + 4, J + 4, K)), "out_field": np.zeros((I, J, K)), "coeff": rng.random((I, J, K))}


def _vadv(rng: np.random.Generator, I: int, J: int, K: int) -> Data:  # noqa: E741
    fields = {name: rng.random((I, J, K)) for name in ("utens_stage", "u_stage", "u_pos", "utens")}
    return {**fields, "wcon": 0.1 * rng.random((I + 1, J, K)), "dtr_stage": 3.0 / 20.0}


def _cavity_flow(rng: np.random.Generator, ny: int, nx: int, nt: int, nit: int, rho: float, nu: float) -> Data:
    fields = {name: 0.1 * rng.random((ny, nx)) for name in ("u", "v", "p")}
    return {**fields, "dx": 2.0 / (nx - 1), "dy": 2.0 / (ny - 1), "dt": 0.1 / ((nx - 1) * (ny - 1)), "rho": rho, "nu": nu}


def _spmv(rng: np.random.Generator, M: int, N: int, nnz: int) -> Data:
    rows = np.sort(rng.integers(0, M, nnz))
    pointers = np.searchsorted(rows, np.arange(M + 1)).astype(np.int64)
    return {"A_row": pointers, "A_col": rng.integers(0, N, nnz), "A_val": rng.random(nnz), "x": rng.random(N)}


def _nbody(rng: np.random.Generator, N: int, tEnd: float, dt: float, softening: float, G: float) -> Data:
    # Far enough apart that rounding does not grow: close encounters are chaotic.
    made = {"mass": np.full((N, 1), 20.0 / N), "pos": 6.0 * rng.random((N, 3)), "vel": rng.random((N, 3))}
    return {**made, "N": N, "Nt": int(np.ceil(tEnd / dt)), "dt": dt, "G": G, "softening": softening}


def _gemm(rng: np.random.Generator, NI: int, NJ: int, NK: int) -> Data:
    return {"alpha": 1.5, "beta": 1.2, "C": rng.random((NI, NJ)), "A": rng.random((NI, NK)), "B": rng.random((NK, NJ))}


def _k2mm(rng: np.random.Generator, NI: int, NJ: int, NK: int, NL: int) -> Data:
    made = {"A": rng.random((NI, NK)), "B": rng.random((NK, NJ)), "C": rng.random((NJ, NL)), "D": rng.random((NI, NL))}
    return {"alpha": 1.5, "beta": 1.2, **made}


def _k3mm(rng: np.random.Generator, NI: int, NJ: int, NK: int, NL: int, NM: int) -> Data:
    return {"A": rng.random((NI, NK)), "B": rng.random((NK, NJ)), "C": rng.random((NJ, NM)), "D": rng.random((NM, NL))}


def _gemver(rng: np.random.Generator, N: int) -> Data:
    return {"alpha": 1.5, "beta": 1.2, "A": rng.random((N, N)), **{k: rng.random(N) for k in ("u1", "v1", "u2", "v2", "w", "x", "y", "z")}}


def _gesummv(rng: np.random.Generator, N: int) -> Data:
    return {"alpha": 1.5, "beta": 1.2, "A": rng.random((N, N)), "B": rng.random((N, N)), "x": rng.random(N)}


def _atax(rng: np.random.Generator, M: int, N: int) -> Data:
    return {"A": rng.random((M, N)), "x": rng.random(N)}


def _bicg(rng: np.random.Generator, M: int, N: int) -> Data:
    return {"A": rng.random((N, M)), "p": rng.random(M), "r": rng.random(N)}


def _mvt(rng: np.random.Generator, N: int) -> Data:
    return {**{k: rng.random(N) for k in ("x1", "x2", "y_1", "y_2")}, "A": rng.random((N, N))}


def _doitgen(rng: np.random.Generator, NR: int, NQ: int, NP: int) -> Data:
    return {"A": rng.random((NR, NQ, NP)), "C4": rng.random((NP, NP))}


def _trmm(rng: np.random.Generator, M: int, N: int) -> Data:
    return {"alpha": 1.5, "A": rng.random((M, M)), "B": rng.random((M, N))}


def _syrk(rng: np.random.Generator, M: int, N: int) -> Data:
    return {"alpha": 1.5, "beta": 1.2, "C": rng.random((N, N)), "A": rng.random((N, M))}


def _syr2k(rng: np.random.Generator, M: int, N: int) -> Data:
    return {**_syrk(rng, M, N), "B": rng.random((N, M))}


def _symm(rng: np.random.Generator, M: int, N: int) -> Data:
    return {"alpha": 1.5, "beta": 1.2, "C": rng.random((M, N)), "A": rng.random((M, M)), "B": rng.random((M, N))}


def _samples(rng: np.random.Generator, M: int, N: int) -> Data:
    return {"float_n": float(N), "data": rng.standard_normal((N, M)) + rng.random(M)}


def _softmax(rng: np.random.Generator, N: int, H: int, SM: int) -> Data:
    return {"x": rng.random((N, H, SM, SM), np.float32)}


def _mlp(rng: np.random.Generator, C_in: int, N: int, S0: int, S1: int, S2: int) -> Data:
    widths = (C_in, S0, S1, S2)
    made: Data = {"input": rng.random((N, C_in), np.float32)}
    for k, (a, b) in enumerate(itertools.pairwise(widths), start=1):
        made[f"w{k}"] = (rng.random((a, b), np.float32) - np.float32(0.5)) / np.float32(np.sqrt(a))
        made[f"b{k}"] = rng.random(b, np.float32)
    return made


def _conv2d_bias(rng: np.random.Generator, N: int, C_in: int, C_out: int, K: int, H: int, W: int) -> Data:
    weights = rng.random((K, K, C_in, C_out), np.float32)
    return {"input": rng.random((N, H, W, C_in), np.float32), "weights": weights, "bias": rng.random(C_out, np.float32)}


def _lenet(rng: np.random.Generator, N: int, H: int, W: int) -> Data:
    rows, columns = ((H - 4) // 2 - 4) // 2, ((W - 4) // 2 - 4) // 2
    width = 16 * rows * columns
    shapes = {
        "input": (N, H, W, 1), "conv1": (5, 5, 1, 6), "conv1bias": (6,), "conv2": (5, 5, 6, 16), "conv2bias": (16,),
        "fc1w": (width, 120), "fc1b": (120,), "fc2w": (120, 84), "fc2b": (84,), "fc3w": (84, 10), "fc3b": (10,),
    }  # fmt: skip
    made: Data = {name: rng.random(shape, np.float32) - np.float32(0.4) for name, shape in shapes.items()}
    return {**made, "C_before_fc1": width}


KERNELS: dict[str, Kernel] = {kernel.name: kernel for kernel in (
    Kernel("seidel_2d", stencils.seidel_2d, _grid("seidel_2d", "A"), "A", True),
    Kernel("adi", stencils.adi, _grid("adi", "u"), "u", True),
    Kernel("durbin", solvers.durbin, _durbin, None, True),
    Kernel("trisolv", solvers.trisolv, _trisolv, "x", True),
    Kernel("trmm", products.trmm, _trmm, "B", True),
    Kernel("syrk", products.syrk, _syrk, "C", True),
    Kernel("syr2k", products.syr2k, _syr2k, "C", True),
    Kernel("symm", products.symm, _symm, "C", True),
    Kernel("lu", solvers.lu, _definite, "A", True),
    Kernel("cholesky", solvers.cholesky, _definite, "A", True),
    Kernel("gramschmidt", solvers.gramschmidt, _gramschmidt, "A", True),
    Kernel("jacobi_1d", stencils.jacobi_1d, _grid("jacobi_1d", "A", "B"), "A", True),
    Kernel("jacobi_2d", stencils.jacobi_2d, _grid("jacobi_2d", "A", "B"), "A", True),
    Kernel("heat_3d", stencils.heat_3d, _grid("heat_3d", "A", "B"), "A", True),
    Kernel("fdtd_2d", stencils.fdtd_2d, _fdtd_2d, "ex", True),
    Kernel("deriche", stencils.deriche, _deriche, None, True),
    Kernel("hdiff", stencils.hdiff, _hdiff, "out_field", True),
    Kernel("vadv", stencils.vadv, _vadv, "utens_stage", True),
    Kernel("cavity_flow", stencils.cavity_flow, _cavity_flow, "u", True),
    Kernel("spmv", products.spmv, _spmv, None, True),
    Kernel("nbody", particles.nbody, _nbody, None, True),
    Kernel("gemm", products.gemm, _gemm, "C", False),
    Kernel("k2mm", products.k2mm, _k2mm, "D", False),
    Kernel("k3mm", products.k3mm, _k3mm, None, False),
    Kernel("gemver", products.gemver, _gemver, "w", False),
    Kernel("gesummv", products.gesummv, _gesummv, None, False),
    Kernel("atax", products.atax, _atax, None, False),
    Kernel("bicg", products.bicg, _bicg, None, False),
    Kernel("mvt", products.mvt, _mvt, "x1", False),
    Kernel("doitgen", products.doitgen, _doitgen, "A", False),
    Kernel("covariance", products.covariance, _samples, None, False),
    Kernel("correlation", products.correlation, _samples, None, False, analytic=False),
    Kernel("softmax", networks.softmax, _softmax, None, False),
    Kernel("mlp", networks.mlp, _mlp, None, False),
    Kernel("conv2d_bias", networks.conv2d_bias, _conv2d_bias, None, False),
    Kernel("lenet", networks.lenet5, _lenet, None, False),
)}  # fmt: skip
