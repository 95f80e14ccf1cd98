"""Compresses whole models to one error or one budget over all layers, and makes layers that compute in tensor-train form."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from armillary.errors import InputError

from ..decomposition.modes import fold, modes_of, unfold
from ..decomposition.tensor_train import TT, tt_svd

Array = np.ndarray[Any, Any]
#: Relative errors among which a budget is shared out, and how often the last step is halved.
_HALVINGS = 5
_LADDER = (0.0, 0.02, 0.05, *(round(0.1 + 0.05 * i, 2) for i in range(17)))


@dataclass(frozen=True, eq=False)
class Layer:
    """A weight as a train; `out` and `into` are its modes, `shape` the weight's own. None where it stays as it is."""

    train: TT | None
    weight: Array | None
    out: tuple[int, ...]
    into: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Values kept."""
        return self.train.size if self.train is not None else int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes kept, in the precision of the weight."""
        if self.train is not None:
            return self.train.nbytes
        return 0 if self.weight is None else self.weight.nbytes

    def full(self) -> Array:
        """Restores the weight."""
        if self.train is None:
            assert self.weight is not None
            return self.weight
        made = self.train.full()
        return unfold(made, self.out, self.into).reshape(self.shape) if len(self.out) > 1 else made.reshape(self.shape)


def compress_model(
    weights: Mapping[str, Any],
    eps: float | None = None,
    *,
    ratio: float | None = None,
    budget_bytes: int | None = None,
    modes: Any = "auto",
) -> dict[str, Layer]:
    """Turns each weight of two modes or more into a train, where that is smaller.

    It keeps one relative error, a ratio of values, or a budget of bytes, in which a float64 counts eight. A ratio or budget is shared
    out greedily: each step takes the layer whose next error frees most for its added relative error squared. One error for all layers
    would cut those that compress badly as hard as the others.
    """
    if sum(x is not None for x in (eps, ratio, budget_bytes)) != 1:
        raise InputError("compress_model: found none or several of eps, ratio and budget_bytes; expected one")
    host = {name: _host(name, w) for name, w in weights.items()}
    if eps is not None:
        return {name: _layer(w, eps, modes) for name, w in host.items()}
    values = sum(w.size for w in host.values())
    if ratio is not None and not ratio > 0:
        raise InputError(f"ratio: found {ratio}; expected a number above 0")
    if ratio is not None:
        return _shared_out(host, values / ratio, modes, "values")
    return _shared_out(host, float(budget_bytes or 0), modes, "bytes")


def _host(name: str, weight: Any) -> Array:
    from armillary.arrays import to_host

    a = np.asarray(to_host(weight))
    if not np.isfinite(a).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(a))[0])
        raise InputError(f"{name}: found {a[at]} at {at}; expected finite numbers")
    return a


def _layer(weight: Array, eps: float, modes: Any) -> Layer:
    shape = tuple(weight.shape)
    plain = Layer(None, weight, (), (), shape)
    if weight.ndim < 2 or weight.dtype.kind != "f" or weight.size < 2:
        return plain
    a = weight if weight.dtype in (np.float32, np.float64) else weight.astype(np.float32)
    out, into = modes_of(shape, modes)
    tensor = fold(a.reshape(math.prod(out), math.prod(into)), out, into) if len(out) > 1 else a
    train = tt_svd(tensor, eps)
    return Layer(train, None, out, into, shape) if train.nbytes < weight.nbytes else plain


def _shared_out(host: Mapping[str, Array], wanted: float, modes: Any, unit: Literal["values", "bytes"]) -> dict[str, Layer]:
    def cost(layer: Layer) -> int:
        return layer.size if unit == "values" else layer.nbytes

    rungs = {name: [_layer(w, eps, modes) for eps in _LADDER] for name, w in host.items()}
    at = dict.fromkeys(host, 0)
    size = float(sum(cost(rungs[name][0]) for name in host))
    heap: list[tuple[float, str, int]] = []

    def offer(name: str) -> None:
        """Pushes the layer's best next step, which frees most for the error that it adds; steps that free nothing are skipped."""
        here = at[name]
        best = (0.0, here)
        for to in range(here + 1, len(_LADDER)):
            freed = cost(rungs[name][here]) - cost(rungs[name][to])
            best = max(best, (freed / (_LADDER[to] ** 2 - _LADDER[here] ** 2), to))
        if best[0] > 0:
            heapq.heappush(heap, (-best[0], name, best[1]))

    for name in host:
        offer(name)
    while size > wanted and heap:
        _, name, to = heapq.heappop(heap)
        size += cost(rungs[name][to]) - cost(rungs[name][at[name]])
        at[name] = to
        offer(name)
    if size > wanted:
        raise InputError(f"budget: found {size:.0f} {unit} at an error of {_LADDER[-1]:g}; expected room for that, or a smaller ratio")
    # The last steps may have gone further than they had to: layers come back as far as there is room, those of most error first.
    chosen = {name: rungs[name][rung] for name, rung in at.items()}
    for name in sorted(at, key=lambda name: -at[name]):
        least = next(r for r in range(at[name] + 1) if size + cost(rungs[name][r]) - cost(chosen[name]) <= wanted)
        size += cost(rungs[name][least]) - cost(chosen[name])
        chosen[name] = rungs[name][least]
        low, high = _LADDER[max(0, least - 1)], _LADDER[least]
        for _ in range(_HALVINGS if high > 0 else 0):
            middle = (low + high) / 2
            tried = _layer(host[name], middle, modes)
            if size + cost(tried) - cost(chosen[name]) <= wanted:
                size += cost(tried) - cost(chosen[name])
                chosen[name], high = tried, middle
            else:
                low = middle
    return chosen


def best_modes(weight: Array, eps: float, counts: Sequence[int] = (2, 3, 4)) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the modes of a matrix that give the smallest train: several numbers of factors, largest first or last."""
    from ..decomposition.modes import balanced

    out, into = weight.shape
    tried = [(balanced(out, c), balanced(into, c)) for c in counts]
    tried += [(first[::-1], second[::-1]) for first, second in tried]
    return min(tried, key=lambda pair: tt_svd(fold(weight, *pair), eps).size)


def tt_linear(layer: Layer, bias: Any = None) -> Any:
    """Returns `TTLinear`, a `torch.nn.Module` that multiplies by the cores, without ever making the matrix."""
    return _modules()[0](layer, bias)


def tt_conv2d(layer: Layer, bias: Any = None, stride: Any = 1, padding: Any = 0) -> Any:
    """Returns `TTConv2d`, a `torch.nn.Module` that convolves core by core: channels in, height, width, channels out."""
    return _modules()[1](layer, bias, stride, padding)


def _modules() -> tuple[Any, Any]:
    import torch
    from torch import nn

    def cores_of(layer: Layer) -> Any:
        if layer.train is None:
            raise InputError("found a layer that was not compressed; expected one with a train")
        return nn.ParameterList([nn.Parameter(torch.as_tensor(core)) for core in layer.train.cores])

    class TTLinear(nn.Module):
        """y = x·Wᵀ + b in tensor-train form."""

        def __init__(self, layer: Layer, bias: Any) -> None:
            super().__init__()
            self.cores, self.out, self.into = cores_of(layer), layer.out, layer.into
            self.bias = None if bias is None else nn.Parameter(torch.as_tensor(bias))

        def forward(self, x: Any) -> Any:
            batch = x.shape[:-1]
            state, done = x.reshape(-1, 1, 1, x.shape[-1]), 1
            if len(self.out) == 1:
                left, *right = self.cores
                weight = left.reshape(left.shape[1], -1)
                for core in right:
                    weight = weight.reshape(-1, core.shape[0]) @ core.reshape(core.shape[0], -1)
                state = x.reshape(-1, x.shape[-1]) @ weight.reshape(left.shape[1], -1).T
            else:
                for core, o, i in zip(self.cores, self.out, self.into):
                    rest = state.shape[3] // i
                    state = state.reshape(-1, done, core.shape[0], i, rest)
                    state = torch.einsum("bdaix,aoic->bdocx", state, core.reshape(core.shape[0], o, i, core.shape[2]))
                    done *= o
                    state = state.reshape(-1, done, core.shape[2], rest)
            y = state.reshape(*batch, -1)
            return y if self.bias is None else y + self.bias

    class TTConv2d(nn.Module):
        """A convolution by four small ones; the train's modes are out, in, height, width."""

        def __init__(self, layer: Layer, bias: Any, stride: Any, padding: Any) -> None:
            super().__init__()
            if len(layer.shape) != 4:
                raise InputError(f"TTConv2d: found a weight of {len(layer.shape)} modes; expected 4")
            self.cores, self.stride, self.padding = cores_of(layer), stride, padding
            self.bias = None if bias is None else nn.Parameter(torch.as_tensor(bias))

        def forward(self, x: Any) -> Any:
            out, into, high, wide = self.cores
            pair = lambda v: v if isinstance(v, tuple) else (v, v)  # noqa: E731
            (sy, sx), (py, px) = pair(self.stride), pair(self.padding)
            # Channels in meet the ranks (r1, r2); then columns slide over height and width, and channels out come last.
            b, _, h, w = x.shape
            r1, r2, r3 = into.shape[0], into.shape[2], high.shape[2]
            y = torch.einsum("bihw,aic->bachw", x, into).reshape(b * r1, r2, h, w)
            y = nn.functional.conv2d(y, high.permute(2, 0, 1)[..., None], stride=(sy, 1), padding=(py, 0))
            y = nn.functional.conv2d(y, wide.permute(2, 0, 1)[:, :, None, :], stride=(1, sx), padding=(0, px))
            assert y.shape[1] == 1 and r3 == wide.shape[0]  # noqa: PT018
            y = torch.einsum("bahw,oa->bohw", y.reshape(b, r1, y.shape[2], y.shape[3]), out[0])
            return y if self.bias is None else y + self.bias[:, None, None]

    return TTLinear, TTConv2d
