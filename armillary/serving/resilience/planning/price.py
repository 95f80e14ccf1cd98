"""The price of an iteration on a layout: the slowest GPU determines each half of a layer, before either all-reduce.

The operators and their seconds are those of `armillary.llm.cost.operators`, and on an even division the numbers equal those of
`StepCost`. A GPU computes the projections and attention of its heads and then its columns of the MLP. For a data-parallel head a GPU
computes only the tokens of its own requests, but every GPU reads the weights. `slow` devices take the given factor longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.llm import CostArrays, Fabric, Layer
from armillary.llm.cost.counts import pair_flops
from armillary.llm.cost.operators import collective_seconds, element_seconds, gemm_seconds
from armillary.llm.model.shapes import WIDTH

from .layout import Layout
from .node import Node

Floats = npt.NDArray[np.float64]
MOST_TOKENS = 16384
#: The shares of an iteration's new tokens on one rank for which the table is computed; between them it is linear.
SHARES = (0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Price:
    """Seconds of iterations on a layout, for any spread of the requests over its data-parallel ranks."""

    grid: Floats
    #: The shares of new tokens on the busiest rank, increasing from the even one, and the table for each.
    shares: Floats
    bodies: Floats  # [shares, grid]
    head: Floats
    #: Seconds per pair and per cached token, for the tensor-parallel heads and for the data-parallel ones at a share of 1.
    pair_s: tuple[float, float]
    context_s: tuple[float, float]
    #: The share that an even spread gives every rank.
    even: float

    def body(self, share: float) -> Floats:
        """Returns the table if the busiest rank has `share` of the new tokens."""
        if len(self.shares) == 1:
            return np.asarray(self.bodies[0])
        i = int(np.clip(np.searchsorted(self.shares, share) - 1, 0, len(self.shares) - 2))
        part = float(np.clip((share - self.shares[i]) / (self.shares[i + 1] - self.shares[i]), 0.0, 1.0))
        return np.asarray((1 - part) * self.bodies[i] + part * self.bodies[i + 1])

    def rates(self, pairs: float, context: float) -> tuple[float, float]:
        """Returns (pair_s, context_s) if the busiest rank has these shares of the pairs and of the cached tokens."""
        return self.pair_s[0] + self.pair_s[1] * pairs, self.context_s[0] + self.context_s[1] * context

    def arrays(self) -> CostArrays:
        """Returns the numbers for the compiled loop, with requests spread evenly."""
        pair_s, context_s = self.rates(self.even, self.even)
        return CostArrays(self.grid, self.body(self.even), self.head, pair_s, context_s, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def price(node: Node, layout: Layout, slow: Mapping[int, float] | None = None) -> Price:
    """Returns the price of iterations of the node's model on `layout`."""
    model, on = node.model, node.device
    fabric = Fabric.of(on)
    powers = [2**i for i in range(MOST_TOKENS.bit_length()) if 2**i < MOST_TOKENS]
    grid = np.array([0.0, *powers, MOST_TOKENS])
    late = np.array([(slow or {}).get(d, 1.0) for d in layout.devices])
    even = 1.0 / layout.gpus
    shares = np.array([even, *(s for s in SHARES if s > even)]) if layout.dp_heads.any() else np.array([even])
    width, h = max(2, WIDTH[model.dtype]), model.hidden
    start = on.calibration.t0
    bodies = np.tile(np.asarray(element_seconds(on, "embedding", 2.0 * width * h * grid)) * late.max(), (len(shares), 1))
    kinds = [kind for kind, count in model.kinds for _ in range(count)]
    patterns: dict[tuple[int, bytes, int, bytes], int] = {}
    for layer, kind in enumerate(kinds):
        key = (id(kind), layout.heads_per_gpu[layer].tobytes(), int(layout.dp_heads[layer]), layout.units_per_gpu[layer].tobytes())
        patterns[key] = patterns.get(key, 0) + 1
    by_id = {id(kind): kind for kind, _ in model.kinds}
    sums = 2 * collective_seconds(fabric, "all-reduce", width * h * grid, layout.gpus)
    for (kind_id, heads, dp, units), count in patterns.items():
        kind = by_id[kind_id]
        held, columns = np.frombuffer(heads, np.int64), np.frombuffer(units, np.int64)
        norm = element_seconds(on, "norm", 2 * width * h * grid)
        mlp = _slowest(columns, late, lambda u, kind=kind: _mlp(node, kind, int(u), layout, grid, width))
        rest = 2 * norm * late.max() + sums + element_seconds(on, "residual", 6 * width * h * grid) * late.max()
        rest = rest + np.where(grid > 0, start, 0.0) * late.max() + mlp
        for i, share in enumerate(shares):
            attention = _slowest(held, late, lambda a, dp=dp, share=share: _projections(node, int(a), dp, float(share), grid, width))
            bodies[i] += count * (rest + attention)
    bodies = np.maximum.accumulate(bodies, axis=1)
    pair_s, context_s = _attention(node, layout, late, kinds, width)
    return Price(grid, shares, bodies, _head(node, layout, late, grid, width), pair_s, context_s, even)


def _slowest(load: npt.NDArray[np.int64], late: Floats, seconds: object) -> Floats:
    """Returns the largest late · seconds(load) over the GPUs, with each distinct pair computed once."""
    assert callable(seconds)
    known = {int(x): seconds(x) for x in np.unique(load)}
    return np.asarray(np.max([late[g] * known[int(x)] for g, x in enumerate(load)], axis=0))


def _product(node: Node, rows: Floats, outputs: int, inputs: int, weight_width: float) -> Floats:
    if outputs < 1 or inputs < 1:
        return np.zeros_like(rows)
    return np.asarray(gemm_seconds(node.device, rows, outputs, inputs, dtype=node.model.dtype, weight_width=weight_width))


def _projections(node: Node, heads: int, dp: int, share: float, grid: Floats, width: int) -> Floats:
    """Prices query, key, value and output products and the rotation, for a GPU's own heads and its requests' data-parallel ones."""
    m = node.model
    wide, stored = m.heads // m.kv_heads * m.head_dim, m.tensor_width(m.kinds[0][0].role("o")[0])
    key, _ = m.attention_widths
    turned = m.heads * key + m.kv_heads * key
    seconds = element_seconds(node.device, "rope", 2 * width * turned * grid * ((heads + dp * share) / m.kv_heads) * m.rotary)
    for count, rows in ((heads, grid), (dp, grid * share)):
        seconds = seconds + _product(node, rows, count * (wide + 2 * m.head_dim), m.hidden, stored)
        seconds = seconds + _product(node, rows, m.hidden, count * wide, stored)
    return np.asarray(seconds)


def _mlp(node: Node, kind: Layer, units: int, layout: Layout, grid: Floats, width: int) -> Floats:
    m = node.model
    share = units / max(1, layout.ffn.shape[1])
    if kind.mlp == "dense":
        columns = min(node.ffn, units * layout.ffn_unit)
        stored = m.tensor_width(kind.role("down")[0])
        seconds = _product(node, grid, (2 if m.gated else 1) * columns, m.hidden, stored) + _product(node, grid, m.hidden, columns, stored)
        return np.asarray(seconds + element_seconds(node.device, "act", (3 if m.gated else 2) * width * m.ffn * grid * share))
    moe = m.moe
    assert moe is not None
    columns = min(moe.ffn, units * layout.ffn_unit)
    seconds = _product(node, grid, moe.experts, m.hidden, m.tensor_width(kind.role("router")[0]))
    # Experts are chosen evenly at random, as in the ground's price.
    touched = (
        moe.experts * -np.expm1(grid * np.log1p(-moe.top_k / moe.experts)) if moe.top_k < moe.experts else np.full_like(grid, moe.experts)
    )
    touched = np.where(grid > 0, touched, 0.0)
    rows = np.divide(grid * moe.top_k, touched, out=np.zeros_like(grid), where=touched > 0)
    stored = m.tensor_width(kind.role("expert_down")[0])
    for outputs, inputs in ((2 * columns, m.hidden), (m.hidden, columns)):
        if columns:
            copies = np.maximum(touched, 1e-300)
            seconds = seconds + gemm_seconds(node.device, rows, outputs, inputs, dtype=m.dtype, weight_width=stored, copies=copies)
    seconds = seconds + element_seconds(node.device, "act", 3 * width * moe.ffn * grid * moe.top_k * share)
    if moe.shared_ffn:
        shared = round(moe.shared_ffn * share)
        seconds = seconds + _product(node, grid, 2 * shared, m.hidden, stored) + _product(node, grid, m.hidden, shared, stored)
    return np.asarray(seconds)


def _head(node: Node, layout: Layout, late: Floats, grid: Floats, width: int) -> Floats:
    m = node.model
    total = np.asarray(element_seconds(node.device, "norm", 2.0 * width * m.hidden * grid)) * late.max()
    stored = next((m.tensor_width(t) for t in m.once if t.part == "head" and t.matmul), width)

    def own(units: int) -> Floats:
        rows = min(m.vocab, int(units) * layout.vocab_unit)
        return _product(node, grid, rows, m.hidden, stored) + np.asarray(element_seconds(node.device, "sampling", 6.0 * rows * grid))

    return np.asarray(total + _slowest(layout.vocab_per_gpu, late, own))


def _attention(node: Node, layout: Layout, late: Floats, kinds: list[Layer], width: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the seconds per pair and per cached token over all layers, for tensor-parallel and for all data-parallel heads."""
    m, on, c = node.model, node.device, node.device.calibration
    reach = np.array([1.0 if kind.window is None else min(1.0, kind.window / 4096) for kind in kinds])
    rate = c.eta_attn * c.eta_c * on.peak("bf16" if WIDTH[m.dtype] < 2 else m.dtype)
    read = m.kv_numbers * width / (c.eta_decode * c.eta_m * on.bandwidth)
    pair, cached = pair_flops(m) / rate, max(read, pair_flops(m, absorbed=True) / rate)
    held = float(np.sum(reach * np.max(layout.heads_per_gpu * late, axis=1))) / m.kv_heads
    spread = float(np.sum(reach * layout.dp_heads)) * float(late.max()) / m.kv_heads
    return (held * pair, spread * pair), (held * cached, spread * cached)
