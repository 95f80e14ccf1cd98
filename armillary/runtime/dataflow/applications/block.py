"""A transformer's blocks forward and backward: products by the vendor's library, small kernels by compiled loops, softmax by OpenCL.

One head; each sample of the batch is a chain of its own until the gradients of the weights, which samples add to in order. The loss is
the sum of the output times fixed numbers, so the backward pass begins with those.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from armillary.kernels import kernel as compiled
from armillary.runtime.dataflow.apis.api import Kernel
from armillary.runtime.dataflow.apis.opencl import ClSource

from . import sources
from .application import Application, Operation

MIX = {"matmul": "blas", "softmax": "opencl", "softmax_back": "opencl"}
SMALL = "numba"
EPS = 1e-5
WEIGHTS = ("q", "k", "v", "o", "1", "2")


class _Builder:
    """Collects operations on arrays that it makes by name."""

    def __init__(self, mix: dict[str, str]) -> None:
        self.mix = mix
        self.data: dict[str, np.ndarray] = {}
        self.made: list[Operation] = []

    def array(self, name: str, *shape: int) -> str:
        self.data[name] = np.zeros(shape, np.float32)
        return name

    def call(self, kernel: Kernel, args: tuple[str, ...], extra: tuple[Any, ...] = (), writes: int = 1) -> None:
        values = (*(self.data[name] for name in args), *extra)
        reads, updates = args[:-writes], args[-writes:]
        self.made.append(Operation(kernel, self.mix.get(kernel.name, SMALL), values, tuple(dict.fromkeys(reads)), updates))

    def product(self, a: str, b: str, c: str, *, ta: bool = False, tb: bool = False, scale: float = 1.0, keep: bool = False) -> None:
        self.call(MATMUL, (a, b, c), (int(ta), int(tb), scale, int(keep)))


def block(
    batch: int, seq: int, width: int, layers: int, rng: np.random.Generator, mix: dict[str, str] | None = None,
    known: dict[str, Any] | None = None,
) -> Application:  # fmt: skip
    """`layers` blocks of `width` on `batch` samples of `seq` tokens."""
    b = _Builder({**MIX, **(mix or {})})
    for layer in range(layers):
        for name in WEIGHTS:
            shape = {"1": (width, 4 * width), "2": (4 * width, width)}.get(name, (width, width))
            b.array(f"w{name}.{layer}", *shape)
            b.data[f"w{name}.{layer}"][...] = rng.standard_normal(shape) / math.sqrt(shape[0])
            b.array(f"dw{name}.{layer}", *shape)
        for name in ("g1", "g2", "b1", "b2"):
            b.array(f"{name}.{layer}", width)
            b.data[f"{name}.{layer}"][...] = (name[0] == "g") + 0.1 * rng.standard_normal(width)
            b.array(f"d{name}.{layer}", width)
    for s in range(batch):
        b.array(f"h0.{s}", seq, width)
        b.data[f"h0.{s}"][...] = rng.standard_normal((seq, width))
        b.array(f"start.{s}", seq, width)
        b.data[f"start.{s}"][...] = rng.standard_normal((seq, width))
        _sample(b, s, seq, width, layers)
    everything = b.data
    initial = [(array, array.copy()) for array in everything.values()]
    results = [f"h{layers}.{s}" for s in range(batch)] + [f"dh.{s}" for s in range(batch)]
    results += [name for name in everything if name.startswith(("dw", "dg", "db"))]
    expected: dict[str, Any] = {} if known is None else known

    def error() -> float:
        if not expected:
            fresh = {id(array): content.astype(np.float64) for array, content in initial}
            for operation in b.made:
                operation.kernel.variant("blas")(*(fresh.get(id(arg), arg) for arg in operation.args))
            expected.update({name: fresh[id(everything[name])] for name in results})
        return max(float(np.abs(everything[n] - expected[n]).max() / np.abs(expected[n]).max()) for n in results) / 1e-4

    return Application("block", b.made, everything, initial, error)


def _sample(b: _Builder, s: int, seq: int, width: int, layers: int) -> None:
    """Forward through all layers, then backward."""
    one = {
        "a1": (seq, width), "q": (seq, width), "k": (seq, width), "v": (seq, width), "p": (seq, seq), "o": (seq, width),
        "m": (seq, width), "a2": (seq, width), "u": (seq, 4 * width), "z": (seq, 4 * width),
    }  # fmt: skip
    shared = {
        "dh": (seq, width), "dz": (seq, 4 * width), "da": (seq, width), "do": (seq, width), "dp": (seq, seq), "dq": (seq, width),
        "dk": (seq, width), "dv": (seq, width), "dc": (seq, width),
    }  # fmt: skip
    for name, shape in shared.items():
        b.array(f"{name}.{s}", *shape)
    for layer in range(layers):
        for name, shape in one.items():
            b.array(f"{name}.{layer}.{s}", *shape)
        b.array(f"h{layer + 1}.{s}", seq, width)
        _forward(b, s, layer, 1 / math.sqrt(width))
    b.call(COPY, (f"start.{s}", f"dh.{s}"))
    for layer in reversed(range(layers)):
        _backward(b, s, layer, 1 / math.sqrt(width))


def _forward(b: _Builder, s: int, layer: int, scale: float) -> None:
    h, out = f"h{layer}.{s}", f"h{layer + 1}.{s}"
    a1, q, k, v, p, o, m, a2, u, z = (f"{name}.{layer}.{s}" for name in ("a1", "q", "k", "v", "p", "o", "m", "a2", "u", "z"))
    b.call(NORM, (h, f"g1.{layer}", f"b1.{layer}", a1))
    for name, target in zip("qkv", (q, k, v)):
        b.product(a1, f"w{name}.{layer}", target)
    b.product(q, k, p, tb=True, scale=scale)
    b.call(SOFTMAX, (p,), (b.data[p].shape[1],))
    b.product(p, v, o)
    b.call(COPY, (h, m))
    b.product(o, f"wo.{layer}", m, keep=True)
    b.call(NORM, (m, f"g2.{layer}", f"b2.{layer}", a2))
    b.product(a2, f"w1.{layer}", u)
    b.call(GELU, (u, z))
    b.call(COPY, (m, out))
    b.product(z, f"w2.{layer}", out, keep=True)


def _backward(b: _Builder, s: int, layer: int, scale: float) -> None:
    h = f"h{layer}.{s}"
    a1, q, k, v, p, o, m, a2, u, z = (f"{name}.{layer}.{s}" for name in ("a1", "q", "k", "v", "p", "o", "m", "a2", "u", "z"))
    dh, dz, da, do, dp, dq, dk, dv, dc = (f"{name}.{s}" for name in ("dh", "dz", "da", "do", "dp", "dq", "dk", "dv", "dc"))
    b.product(dh, f"w2.{layer}", dz, tb=True)
    b.product(z, dh, f"dw2.{layer}", ta=True, keep=True)
    b.call(GELU_BACK, (u, dz))
    b.product(dz, f"w1.{layer}", da, tb=True)
    b.product(a2, dz, f"dw1.{layer}", ta=True, keep=True)
    b.call(NORM_BACK, (m, f"g2.{layer}", da, dh, f"dg2.{layer}", f"db2.{layer}"), writes=3)
    b.product(dh, f"wo.{layer}", do, tb=True)
    b.product(o, dh, f"dwo.{layer}", ta=True, keep=True)
    b.product(do, v, dp, tb=True)
    b.product(p, do, dv, ta=True)
    b.call(SOFTMAX_BACK, (p, dp), (b.data[p].shape[1],))
    b.product(dp, k, dq, scale=scale)
    b.product(dp, q, dk, ta=True, scale=scale)
    for number, (name, gradient) in enumerate(zip("qkv", (dq, dk, dv))):
        b.product(gradient, f"w{name}.{layer}", dc, tb=True, keep=number > 0)
        b.product(a1, gradient, f"dw{name}.{layer}", ta=True, keep=True)
    b.call(NORM_BACK, (h, f"g1.{layer}", dc, dh, f"dg1.{layer}", f"db1.{layer}"), writes=3)


def _numpy_matmul(a: Any, b: Any, c: Any, ta: int, tb: int, scale: float, keep: int) -> None:
    left, right = a.T if ta else a, b.T if tb else b
    if keep:
        c += (left @ right) * scale if scale != 1 else left @ right
    else:
        np.matmul(left, right, out=c)
        if scale != 1:
            c *= scale


def _torch_matmul(a: Any, b: Any, c: Any, ta: int, tb: int, scale: float, keep: int) -> None:
    c.addmm_(a.mT if ta else a, b.mT if tb else b, beta=1 if keep else 0, alpha=scale)


def _small(xp: Any) -> dict[str, Any]:
    """The small kernels on whole arrays, alike for NumPy and PyTorch."""

    def copy(a: Any, b: Any) -> None:
        b[...] = a

    def scaled(x: Any) -> tuple[Any, Any]:
        apart = x - x.mean(-1)[:, None]
        rate = 1 / xp.sqrt((apart * apart).mean(-1) + EPS)[:, None]
        return apart * rate, rate

    def norm(x: Any, g: Any, b: Any, y: Any) -> None:
        y[...] = scaled(x)[0] * g + b

    def norm_back(x: Any, g: Any, d: Any, dx: Any, dg: Any, db: Any) -> None:
        plain, rate = scaled(x)
        dg += (d * plain).sum(0)
        db += d.sum(0)
        e = d * g
        dx += rate * (e - e.mean(-1)[:, None] - plain * (e * plain).mean(-1)[:, None])

    def softmax(s: Any, m: int) -> None:
        e = xp.exp(s - xp.amax(s, -1)[:, None])
        s[...] = e / e.sum(-1)[:, None]

    def softmax_back(p: Any, d: Any, m: int) -> None:
        d[...] = p * (d - (p * d).sum(-1)[:, None])

    def gelu(u: Any, z: Any) -> None:
        z[...] = 0.5 * u * (1 + xp.tanh(ROOT * (u + CUBE * u * u * u)))

    def gelu_back(u: Any, d: Any) -> None:
        t = xp.tanh(ROOT * (u + CUBE * u * u * u))
        d *= 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * ROOT * (1 + 3 * CUBE * u * u)

    made = (copy, norm, norm_back, softmax, softmax_back, gelu, gelu_back)
    return {call.__name__: call for call in made}


ROOT, CUBE = math.sqrt(2 / math.pi), 0.044715


class _Later:
    """A whole-array kernel of PyTorch, which is imported at its first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._call: Any = None

    def __call__(self, *args: Any) -> None:
        if self._call is None:
            import torch

            self._call = _small(torch)[self._name]
        self._call(*args)


@compiled
def loop_matmul(a, b, c, ta, tb, scale, keep):  # type: ignore[no-untyped-def]
    """c = scale · op(a) op(b), added to `c` with `keep`."""
    n, m = c.shape
    k = a.shape[0] if ta else a.shape[1]
    for i in range(n):
        if not keep:
            for j in range(m):
                c[i, j] = 0
        for x in range(k):
            left = np.float32(scale) * (a[x, i] if ta else a[i, x])
            if tb:
                for j in range(m):
                    c[i, j] += left * b[j, x]
            else:
                for j in range(m):
                    c[i, j] += left * b[x, j]


@compiled
def loop_copy(a, b):  # type: ignore[no-untyped-def]
    """b = a."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            b[i, j] = a[i, j]


@compiled
def loop_norm(x, g, b, y):  # type: ignore[no-untyped-def]
    """Layer normalisation of each row."""
    n, w = x.shape
    for i in range(n):
        mean = 0.0
        for j in range(w):
            mean += x[i, j]
        mean /= w
        square = 0.0
        for j in range(w):
            square += (x[i, j] - mean) ** 2
        rate = 1.0 / np.sqrt(square / w + 1e-5)
        for j in range(w):
            y[i, j] = (x[i, j] - mean) * rate * g[j] + b[j]


@compiled
def loop_norm_back(x, g, d, dx, dg, db):  # type: ignore[no-untyped-def]
    """Adds the gradients of layer normalisation to those of its input, scale and shift."""
    n, w = x.shape
    for i in range(n):
        mean = 0.0
        for j in range(w):
            mean += x[i, j]
        mean /= w
        square = 0.0
        for j in range(w):
            square += (x[i, j] - mean) ** 2
        rate = 1.0 / np.sqrt(square / w + 1e-5)
        first = second = 0.0
        for j in range(w):
            plain = (x[i, j] - mean) * rate
            e = d[i, j] * g[j]
            first += e
            second += e * plain
            dg[j] += d[i, j] * plain
            db[j] += d[i, j]
        for j in range(w):
            plain = (x[i, j] - mean) * rate
            dx[i, j] += rate * (d[i, j] * g[j] - first / w - plain * second / w)


@compiled
def loop_softmax(s, m):  # type: ignore[no-untyped-def]
    """Softmax of each row, in place."""
    for i in range(s.shape[0]):
        most = s[i, 0]
        for j in range(s.shape[1]):
            most = max(most, s[i, j])
        total = 0.0
        for j in range(s.shape[1]):
            s[i, j] = np.exp(s[i, j] - most)
            total += s[i, j]
        for j in range(s.shape[1]):
            s[i, j] /= total


@compiled
def loop_softmax_back(p, d, m):  # type: ignore[no-untyped-def]
    """The gradient of softmax, in place of that of its output."""
    for i in range(p.shape[0]):
        total = 0.0
        for j in range(p.shape[1]):
            total += p[i, j] * d[i, j]
        for j in range(p.shape[1]):
            d[i, j] = p[i, j] * (d[i, j] - total)


@compiled
def loop_gelu(u, z):  # type: ignore[no-untyped-def]
    """GELU by tanh."""
    for i in range(u.shape[0]):
        for j in range(u.shape[1]):
            x = u[i, j]
            z[i, j] = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@compiled
def loop_gelu_back(u, d):  # type: ignore[no-untyped-def]
    """The gradient of GELU, in place of that of its output."""
    for i in range(u.shape[0]):
        for j in range(u.shape[1]):
            x = u[i, j]
            t = np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
            d[i, j] *= 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x)


def _rows(p: np.ndarray, *args: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    n = p.shape[0]
    return (n,), (16 if n % 16 == 0 else 1,)


_NUMPY = _small(np)
MATMUL = Kernel("matmul", {"blas": _numpy_matmul, "torch": _torch_matmul, "numba": loop_matmul})


def _kernel(name: str, loop: Any, source: str | None = None) -> Kernel:
    variants: dict[str, Any] = {"blas": _NUMPY[name], "torch": _Later(name), "numba": loop}
    if source is not None:
        variants["opencl"] = ClSource(source, name, _rows, single=True)
    return Kernel(name, variants)


COPY = _kernel("copy", loop_copy)
NORM = _kernel("norm", loop_norm)
NORM_BACK = _kernel("norm_back", loop_norm_back)
SOFTMAX = _kernel("softmax", loop_softmax, sources.SOFTMAX)
SOFTMAX_BACK = _kernel("softmax_back", loop_softmax_back, sources.SOFTMAX_BACK)
GELU = _kernel("gelu", loop_gelu)
GELU_BACK = _kernel("gelu_back", loop_gelu_back)
