"""Assembles on a device with CuPy or PyTorch arrays: four of the strategies add batches of element matrices there.

The host checks a mesh, and a mesh on a device is copied to the host once for that (`copied_bytes` of `armillary.arrays` counts it).
Symbolic phase, colours and numeric phase stay on the device, and need NumPy and the array library alone. Linear simplices with one
unknown per node have fused CUDA kernels under CuPy (`cuda_kernels.py`); everything else goes through batches of element matrices.
`scatter-atomic` adds by atomics and `coo-sort` sums segments by them, so both are equal to roundoff only. `blocked` is for a CPU's caches
and is refused.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from armillary import arrays
from armillary.errors import InputError, unknown

from ..elements.elements import ELASTIC, MASS, STIFFNESS
from .strategy import Problem, Strategy

#: The strategies that a device has; "auto" takes the first, the usual one on GPUs, unless it is given weights.
ON_DEVICE = ("scatter-atomic", "coloured", "row-gather", "coo-sort")
#: Elements whose matrices are held at once.
BATCH = 1 << 20


class DeviceAssembly:
    """A problem on the device of `points` (of `xp`'s current device where they are host arrays); called with coefficients."""

    def __init__(self, problem: Problem, strategy: str | Strategy, points: Any, xp: Any, weights: Path | str | None = None) -> None:
        name = strategy.name if isinstance(strategy, Strategy) else strategy
        self.problem = problem
        self.torch = _library(xp) == "torch"
        self.xp = import_module("torch" if self.torch else "cupy")
        self.where: Any = _torch_device(self.xp, points) if self.torch else None
        self.name = (ON_DEVICE[0] if weights is None else self._predicted(weights)) if name == "auto" else name
        if self.name not in ON_DEVICE:
            raise unknown("strategy on a device", self.name, ON_DEVICE)
        work = problem.work
        self.points, self.cells = self._put(work.points), self._put(work.cells)
        self.slope, self.shape, self.weight = self._put(work.slope), self._put(work.shape), self._put(work.weight)
        self.mass = self._put(work.mass)
        if self.name != "coo-sort":
            self._symbolic()
        if self.name == "coloured":
            colours = self.colouring()
            order, counts = self._sorted(colours), arrays.to_host(self.xp.bincount(colours))
            ends = np.cumsum(counts).tolist()
            self.colours = [order[start:end] for start, end in zip([0, *ends], ends)]
        narrow = self.name != "coo-sort" and str(self.positions.dtype).endswith("int32") and work.cells.size < 2**31
        self.fused = not self.torch and narrow and work.affine and work.form != ELASTIC
        if self.name == "row-gather" and self.fused:
            flat = self.cells.reshape(-1)
            # The nodes of all cells stand in a row, in which the place is e·a + local number.
            self.node_elements = self._as(self._sorted(flat), "int32")
            self.node_ptr = self._as(self._pointers(self.xp.bincount(flat, minlength=problem.nodes)), "int32")
        elif self.name == "row-gather":
            flat = self._targets(slice(0, problem.elements)).reshape(-1)
            self.order = self._sorted(flat)
            self.counts = self.xp.bincount(flat, minlength=self.size)

    def _symbolic(self) -> None:
        """Returns the pattern and the map of positions from one sort of all pairs of nodes, on the device."""
        xp, n, m = self.xp, self.problem.nodes, self.problem.work.dofs
        cells = self._as(self.cells, "int64")
        keys = (cells[:, :, None] * n + cells[:, None, :]).reshape(-1)
        unique, inverse = xp.unique(keys, return_inverse=True)
        row, column = unique // n, unique % n
        kind = "int32" if len(unique) * m * m < 2**31 else "int64"
        self.positions = self._as(inverse, kind).reshape(*cells.shape, cells.shape[1])
        self.node_indptr = self._pointers(xp.bincount(row, minlength=n))
        self.size = len(unique) * m * m
        if m == 1:
            self.indptr, self.indices = self._as(self.node_indptr, kind), self._as(column, kind)
            return
        start = self.node_indptr[row]
        length = self.node_indptr[row + 1] - start
        number = xp.arange(m, **self._at())
        base = start * (m * m) + (xp.arange(len(unique), **self._at()) - start) * m
        at = base[:, None, None] + (number[:, None] * length[:, None, None]) * m + number
        indices = xp.zeros(self.size, dtype=xp.int64, **self._at())
        indices[at.reshape(-1)] = (column[:, None, None] * m + number + 0 * at).reshape(-1)
        lengths = (self.node_indptr[1:] - self.node_indptr[:-1]) * m
        self.indptr = self._as(self._pointers((lengths[:, None] + 0 * number).reshape(-1)), kind)
        self.indices = self._as(indices, kind)

    def colouring(self) -> Any:
        """Returns int64[elements] colours: in rounds, those of locally largest random priority take the first free colour at their nodes.

        Jones and Plassmann, SIAM Journal on Scientific Computing 14, 1993. Colours taken at a node are bits of words of 62.
        """
        xp, cells = self.xp, self._as(self.cells, "int64")
        count, nodes = len(cells), self.problem.nodes
        rng = np.random.Generator(np.random.PCG64DXSM(count))
        priority = self._put(rng.permutation(count).astype(np.int32))
        valence = xp.bincount(cells.reshape(-1), minlength=nodes)
        words = int(valence[cells].sum(1).max()) // 62 + 1
        taken = xp.zeros((nodes, words), dtype=xp.int64, **self._at())
        colours = xp.full((count,), -1, dtype=xp.int64, **self._at())
        waiting = xp.arange(count, **self._at())
        while len(waiting):
            own, mine = cells[waiting], priority[waiting]
            top = xp.full((nodes,), -1, dtype=xp.int32, **self._at())
            self._largest(top, own.reshape(-1), (mine[:, None] + 0 * self._as(own, "int32")).reshape(-1))
            wins = (top[own] == mine[:, None]).all(1)
            chosen, own = waiting[wins], own[wins]
            blocked = taken[own[:, 0]]
            for a in range(1, own.shape[1]):
                blocked = blocked | taken[own[:, a]]
            free = ((1 << 62) - 1) & ~blocked
            word = self._as(free != 0, "int32").argmax(1)
            bits = free[xp.arange(len(chosen), **self._at()), word]
            lowest = bits & -bits
            colours[chosen] = word * 62 + self._as(xp.round(xp.log2(self._as(lowest, "float64"))), "int64")
            for a in range(own.shape[1]):
                taken[own[:, a], word] = taken[own[:, a], word] | lowest
            waiting = waiting[~wins]
        return colours

    def __call__(self, given: Any, poisson_ratio: float = 0.3) -> Any:
        """Returns the matrix as torch.sparse_csr_tensor or cupyx.scipy.sparse.csr_matrix."""
        from .assembler import coefficients

        host = arrays.to_host(given) if not isinstance(given, int | float | list | tuple | np.ndarray) else given
        values = self._put(coefficients(host, self.problem.physics, self.problem.elements, poisson_ratio))
        return self._wrapped(*self.numeric(values))

    def numeric(self, coefficients: Any) -> tuple[Any, Any, Any]:
        """Returns (data, indices, indptr) on the device, for (c0, c1) on the device, float64[2, elements or 1]."""
        if self.name == "coo-sort":
            return self._coo_sort(coefficients)
        out = self.xp.zeros(self.size, dtype=self.xp.float64, **self._at())
        if self.fused:
            self._fused(coefficients, out)
        elif self.name == "scatter-atomic":
            for part in self._batches():
                self._add(out, self._targets(part).reshape(-1), self._matrices(part, coefficients).reshape(-1))
        elif self.name == "coloured":
            for part in self.colours:
                at = self._targets(part).reshape(-1)
                out[at] = out[at] + self._matrices(part, coefficients).reshape(-1)
        else:
            matrices = [self._matrices(part, coefficients).reshape(-1) for part in self._batches()]
            out = self._summed(self.xp.concatenate(matrices)[self.order], self.counts)
        return out, self.indices, self.indptr

    @property
    def device(self) -> str:
        """What weights for this device are tagged with."""
        if not self.torch:
            properties = self.xp.cuda.runtime.getDeviceProperties(self.xp.cuda.Device().id)
            return f"cuda:{properties['name'].decode()}"
        return f"cuda:{self.xp.cuda.get_device_name(self.where)}" if self.where.type == "cuda" else "torch on cpu"

    def _predicted(self, weights: Path | str) -> str:
        from ..selecting.features import features
        from ..selecting.network import load
        from .strategy import STRATEGIES

        numeric, _ = load(weights, self.device).seconds(features(self.problem))
        seconds = dict(zip(STRATEGIES, numeric))
        return min(ON_DEVICE, key=seconds.__getitem__)

    def _fused(self, coefficients: Any, out: Any) -> None:
        from .cuda_kernels import gather, scatter

        if self.name == "row-gather":
            gather(self, coefficients, out)
        elif self.name == "coloured":
            for part in self.colours:
                scatter(self, coefficients, out, part, atomic=False)
        else:
            scatter(self, coefficients, out, None, atomic=True)

    def _coo_sort(self, coefficients: Any) -> tuple[Any, Any, Any]:
        xp, m = self.xp, self.problem.work.dofs
        size = self.problem.nodes * m
        keys, values = [], []
        for part in self._batches():
            cells = self._as(self.cells[part], "int64")
            dofs = (cells[:, :, None] * m + xp.arange(m, **self._at())).reshape(len(cells), -1)
            keys.append((dofs[:, :, None] * size + dofs[:, None, :]).reshape(-1))
            values.append(self._matrices(part, coefficients).reshape(-1))
        key, value = xp.concatenate(keys), xp.concatenate(values)
        order = self._sorted(key)
        key, value = key[order], value[order]
        first = xp.ones(len(key), dtype=xp.bool if self.torch else bool, **self._at())
        first[1:] = key[1:] != key[:-1]
        segment = xp.cumsum(first, 0) - 1
        heads = key[first]
        data = xp.zeros(len(heads), dtype=xp.float64, **self._at())
        self._add(data, segment, value)
        return data, heads % size, self._pointers(xp.bincount(heads // size, minlength=size))

    def _batches(self) -> list[slice]:
        return [slice(k, min(k + BATCH, self.problem.elements)) for k in range(0, self.problem.elements, BATCH)]

    def _targets(self, part: Any) -> Any:
        """Returns where the entries of these elements' matrices go: int[elements, s, s]."""
        m, xp = self.problem.work.dofs, self.xp
        at = self.positions[part]
        if m == 1:
            return at
        cells = self.cells[part]
        start = self.node_indptr[cells]
        length = self.node_indptr[cells + 1] - start
        base = start[:, :, None] * (m * m) + (at - start[:, :, None]) * m
        number = xp.arange(m, dtype=at.dtype, **self._at())
        found = base[:, :, None, :, None] + (number[:, None] * length[:, :, None, None] * m)[:, :, :, :, None] + number
        s = at.shape[1] * m
        return found.reshape(len(at), s, s)

    def _matrices(self, part: Any, coefficients: Any) -> Any:
        """Returns element matrices float64[elements, s, s]."""
        xp, work = self.xp, self.problem.work
        corners = self.points[:, self.cells[part]]
        c0, c1 = (c if c.shape[0] == 1 else c[part] for c in coefficients)
        n, a, d, total = corners.shape[1], corners.shape[2], work.points.shape[0], 0.0
        for q in range(self.slope.shape[0]):
            jacobian = xp.einsum("ina,aj->nij", corners, self.slope[q])
            inverse, det = _inverse(xp, jacobian)
            gradient = xp.einsum("aj,nji->nai", self.slope[q], inverse)
            volume = xp.abs(det) * self.weight[q]
            if work.form == ELASTIC:
                lam, mu = (c0 * volume)[:, None, None, None, None], (c1 * volume)[:, None, None, None, None]
                outer = xp.einsum("nai,nbj->naibj", gradient, gradient)
                dot = xp.einsum("nai,nbi->nab", gradient, gradient)[:, :, None, :, None]
                unit = xp.eye(d, dtype=xp.float64, **self._at())[None, None, :, None, :]
                # outer[n, a, j, b, i] with i and j exchanged.
                turned = outer.swapaxes(2, 4)
                total = total + lam * outer + mu * (turned + dot * unit)
                continue
            if work.form & STIFFNESS:
                total = total + (c0 * volume)[:, None, None] * xp.einsum("nai,nbi->nab", gradient, gradient)
            if work.form & MASS:
                mass = self.mass if work.affine else self.shape[q][:, None] * self.shape[q][None, :]
                total = total + (c1 * volume)[:, None, None] * mass
        return total.reshape(n, a * work.dofs, a * work.dofs)  # type: ignore[attr-defined]

    def _put(self, x: np.ndarray) -> Any:
        return self.xp.asarray(np.ascontiguousarray(x), device=self.where) if self.torch else self.xp.asarray(x)

    def _at(self) -> dict[str, Any]:
        return {"device": self.where} if self.torch else {}

    def _as(self, x: Any, kind: str) -> Any:
        return x.to(getattr(self.xp, kind)) if self.torch else x.astype(kind)

    def _pointers(self, counts: Any) -> Any:
        found = self.xp.zeros(len(counts) + 1, dtype=self.xp.int64, **self._at())
        found[1:] = self.xp.cumsum(counts, 0)
        return found

    def _largest(self, out: Any, at: Any, values: Any) -> None:
        if self.torch:
            out.scatter_reduce_(0, at, values, "amax")
        else:
            import_module("cupyx").scatter_max(out, at, values)

    def _add(self, out: Any, at: Any, values: Any) -> None:
        if self.torch:
            out.index_add_(0, at, values)
        else:
            self.xp.add.at(out, at, values)

    def _sorted(self, keys: Any) -> Any:
        return self.xp.sort(keys, stable=True).indices if self.torch else self.xp.argsort(keys, kind="stable")

    def _summed(self, values: Any, counts: Any) -> Any:
        """Sums consecutive runs of these lengths."""
        if self.torch:
            return self.xp.segment_reduce(values, "sum", lengths=counts)
        from .cuda_kernels import run_sums

        return run_sums(values, counts)

    def _wrapped(self, data: Any, indices: Any, indptr: Any) -> Any:
        shape = (self.problem.nodes * self.problem.work.dofs,) * 2
        if self.torch:
            import warnings

            with warnings.catch_warnings():
                # PyTorch calls its CSR tensors beta.
                warnings.simplefilter("ignore", UserWarning)
                return self.xp.sparse_csr_tensor(indptr, indices, data, size=shape)
        return import_module("cupyx.scipy.sparse").csr_matrix((data, indices, indptr), shape=shape)


def _inverse(xp: Any, j: Any) -> tuple[Any, Any]:
    """Returns inverses and determinants of float64[n, d, d]; an inverse is zero where its determinant is."""
    if j.shape[1] == 2:
        det = j[:, 0, 0] * j[:, 1, 1] - j[:, 0, 1] * j[:, 1, 0]
        adjoint = xp.stack([j[:, 1, 1], -j[:, 0, 1], -j[:, 1, 0], j[:, 0, 0]], 1).reshape(-1, 2, 2)
    else:
        x, y, z = j[:, 0], j[:, 1], j[:, 2]
        columns = [_cross(xp, y, z), _cross(xp, z, x), _cross(xp, x, y)]
        det = (x * columns[0]).sum(1)
        adjoint = xp.stack(columns, 2)
    safe = xp.where(det == 0, xp.ones_like(det), det)
    return xp.where((det == 0)[:, None, None], xp.zeros_like(adjoint), adjoint / safe[:, None, None]), det


def _cross(xp: Any, u: Any, v: Any) -> Any:
    return xp.stack(
        [u[:, 1] * v[:, 2] - u[:, 2] * v[:, 1], u[:, 2] * v[:, 0] - u[:, 0] * v[:, 2], u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]], 1
    )


def _library(xp: Any) -> str:
    name = str(getattr(xp, "__name__", xp)).rpartition(".")[2]
    if name not in ("torch", "cupy"):
        raise InputError(f"found {name}; expected numpy, cupy or torch", where="xp")
    return name


def _torch_device(torch: Any, points: Any) -> Any:
    if isinstance(points, torch.Tensor):
        return points.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
