"""CUDA kernels for linear simplices with one unknown per node, through CuPy; they compute the geometry on the fly and store none."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

_SOURCE = r"""
template <int D> __device__ void geometry(const double* points, long long nodes, const int* cell, double g[D + 1][D], double* volume) {
    double e[D][D];
    for (int k = 0; k < D; ++k)
        for (int i = 0; i < D; ++i) e[k][i] = points[i * nodes + cell[k + 1]] - points[i * nodes + cell[0]];
    double det;
    if (D == 2) {
        det = e[0][0] * e[1][1] - e[0][1] * e[1][0];
        double inv = det != 0.0 ? 1.0 / det : 0.0;
        g[1][0] = e[1][1] * inv; g[1][1] = -e[1][0] * inv;
        g[2][0] = -e[0][1] * inv; g[2][1] = e[0][0] * inv;
        *volume = 0.5 * fabs(det);
    } else {
        for (int k = 0; k < 3; ++k) {
            const double* u = e[(k + 1) % 3];
            const double* v = e[(k + 2) % 3];
            for (int i = 0; i < 3; ++i) g[k + 1][i] = u[(i + 1) % 3] * v[(i + 2) % 3] - u[(i + 2) % 3] * v[(i + 1) % 3];
        }
        det = e[0][0] * g[1][0] + e[0][1] * g[1][1] + e[0][D - 1] * g[1][D - 1];
        double inv = det != 0.0 ? 1.0 / det : 0.0;
        for (int k = 1; k <= D; ++k)
            for (int i = 0; i < D; ++i) g[k][i] *= inv;
        *volume = fabs(det) / 6.0;
    }
    for (int i = 0; i < D; ++i) {
        double sum = 0.0;
        for (int k = 1; k <= D; ++k) sum += g[k][i];
        g[0][i] = -sum;
    }
}

template <int D, bool ATOMIC> __global__ void scatter(
    const double* points, long long nodes, const int* cells, const int* positions, const double* c0, const double* c1, long long step,
    const long long* chosen, long long count, double* out) {
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k >= count) return;
    long long e = chosen ? chosen[k] : k;
    double g[D + 1][D], volume;
    geometry<D>(points, nodes, cells + e * (D + 1), g, &volume);
    double s = c0[e * step] * volume, m = c1[e * step] * volume / ((D + 1) * (D + 2));
    const int* at = positions + e * (D + 1) * (D + 1);
    for (int a = 0; a <= D; ++a)
        for (int b = 0; b <= D; ++b) {
            double dot = 0.0;
            for (int i = 0; i < D; ++i) dot += g[a][i] * g[b][i];
            double value = s * dot + m * (a == b ? 2.0 : 1.0);
            if (ATOMIC) atomicAdd(out + at[a * (D + 1) + b], value);
            else out[at[a * (D + 1) + b]] += value;
        }
}

template <int D> __global__ void gather(
    const double* points, long long nodes, const int* cells, const int* positions, const double* c0, const double* c1, long long step,
    const int* node_ptr, const int* node_elements, double* out) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= nodes) return;
    for (int k = node_ptr[i]; k < node_ptr[i + 1]; ++k) {
        long long e = node_elements[k] / (D + 1);
        int a = node_elements[k] % (D + 1);
        double g[D + 1][D], volume;
        geometry<D>(points, nodes, cells + e * (D + 1), g, &volume);
        double s = c0[e * step] * volume, m = c1[e * step] * volume / ((D + 1) * (D + 2));
        const int* at = positions + (e * (D + 1) + a) * (D + 1);
        for (int b = 0; b <= D; ++b) {
            double dot = 0.0;
            for (int j = 0; j < D; ++j) dot += g[a][j] * g[b][j];
            out[at[b]] += s * dot + m * (a == b ? 2.0 : 1.0);
        }
    }
}

__global__ void run_sums(const double* values, const long long* starts, long long count, double* out) {
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k >= count) return;
    double total = 0.0;
    for (long long t = starts[k]; t < starts[k + 1]; ++t) total += values[t];
    out[k] = total;
}
"""
_NAMES = ("scatter<2,true>", "scatter<2,false>", "scatter<3,true>", "scatter<3,false>", "gather<2>", "gather<3>", "run_sums")
_BLOCK = 128


@functools.cache
def _kernels() -> dict[str, Any]:
    cupy = import_module("cupy")
    module = cupy.RawModule(code=_SOURCE, options=("--std=c++14",), name_expressions=_NAMES)
    return {name: module.get_function(name) for name in _NAMES}


def _launch(name: str, count: int, arguments: tuple[Any, ...]) -> None:
    if count:
        _kernels()[name](((count + _BLOCK - 1) // _BLOCK,), (_BLOCK,), arguments)


def scatter(on: Any, coefficients: Any, out: Any, chosen: Any, *, atomic: bool) -> None:
    """Adds the elements at `chosen` (None: all) to `out`; without atomics they must share no node."""
    numpy, cupy = import_module("numpy"), import_module("cupy")
    d = on.points.shape[0]
    step = numpy.int64(coefficients.shape[1] > 1)
    count = on.cells.shape[0] if chosen is None else len(chosen)
    which = numpy.uint64(0) if chosen is None else chosen.astype(cupy.int64, copy=False)
    arguments = (
        on.points, numpy.int64(on.points.shape[1]), on.cells, on.positions, coefficients[0], coefficients[1], step, which,
        numpy.int64(count), out,
    )  # fmt: skip
    _launch(f"scatter<{d},{'true' if atomic else 'false'}>", int(count), arguments)


def gather(on: Any, coefficients: Any, out: Any) -> None:
    """Computes every row by one thread, which walks the elements at its node."""
    numpy = import_module("numpy")
    d, nodes = on.points.shape
    step = numpy.int64(coefficients.shape[1] > 1)
    arguments = (
        on.points, numpy.int64(nodes), on.cells, on.positions, coefficients[0], coefficients[1], step, on.node_ptr, on.node_elements, out,
    )  # fmt: skip
    _launch(f"gather<{d}>", int(nodes), arguments)


def run_sums(values: Any, counts: Any) -> Any:
    """Sums consecutive runs of `values` of these lengths, in their order."""
    numpy, cupy = import_module("numpy"), import_module("cupy")
    starts = cupy.zeros(len(counts) + 1, dtype=cupy.int64)
    starts[1:] = cupy.cumsum(counts)
    out = cupy.empty(len(counts))
    _launch("run_sums", len(counts), (values, starts, numpy.int64(len(counts)), out))
    return out
