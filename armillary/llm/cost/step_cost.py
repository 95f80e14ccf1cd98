"""Seconds of a serving engine's iterations, tabulated once so that a simulator can ask for them millions of times."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.llm.cost.counts import kv_share, pair_flops
from armillary.llm.cost.device import Chip, Fabric, chip
from armillary.llm.cost.iteration import CostArrays
from armillary.llm.cost.operators import Setting, collective_seconds, element_seconds, merged_product_seconds, token_operators
from armillary.llm.cost.plan import check_tp
from armillary.llm.model.shapes import WIDTH, Lora, Model


@dataclass(frozen=True)
class StepCost:
    """Seconds of a serving engine's iterations, modelled once and tabulated, because a simulator asks for them millions of times.

    seconds = body(new tokens) + head(sequences) + pair_s·Σpairs + context_s·Σcontext + adapters + host. The parts that depend on the tokens
    are tabulated at powers of two and interpolated linearly; attention is linear in the (query, key) pairs of prompt chunks and in the
    cached tokens that decodes read.
    """

    model: str
    device: str
    tp: int
    pp: int
    table: CostArrays
    #: The calibration that the seconds rest on, and its mean error, which is None for a device that was never measured.
    calibration: str
    error: float | None
    _grid: list[float] = field(repr=False, compare=False)
    _body: list[float] = field(repr=False, compare=False)
    _head: list[float] = field(repr=False, compare=False)

    @staticmethod
    def build(
        model: Model | str, device: Chip | str, tp: int = 1, pp: int = 1, *, ep: int = 1, dtype: str | None = None,
        kv_dtype: str | None = None, lora: Lora | None = None, replicate_kv: bool = False, waves: bool = True, launch_s: float = 0.0,
        adapter_s: float = 0.0, host_s: float = 0.0, running_s: float = 0.0, waiting_s: float = 0.0, window_context: int = 4096,
        fabric: Fabric | None = None, most_tokens: int = 16384,
    ) -> StepCost:  # fmt: skip
        """The cost of `model` on `tp` × `pp` devices.

        dtype: the type in which matrix products compute (by default the model's own, and fp8 where weights are stored in it). ep: the
        number of devices over which whole experts are spread. lora: adapters whose matrices are read and multiplied; `adapter_s` is the
        kernels' constant per distinct adapter. host_s, running_s, waiting_s: the engine's own seconds per iteration, per running and per
        waiting request. launch_s: 6 µs without CUDA graphs. window_context: tokens of context over which windowed layers, which read at
        most their window, are averaged. An iteration passes through all stages of a pipeline, so pp > 1 adds the sends between them.
        """
        of = Model.find(model) if isinstance(model, str) else model
        on = chip(device)
        check_tp(of, tp, replicate_kv)
        if pp < 1 or pp > of.layers:
            raise InputError(f"pp: found {pp} for {of.layers} layers of {of.name}; expected 1 to {of.layers}")
        if ep > 1 and (of.moe is None or of.moe.experts % ep or tp % ep):
            raise InputError(f"ep: found {ep}; expected a divisor of the experts and of tp {tp}")
        if min(adapter_s, host_s, running_s, waiting_s, launch_s) < 0 or window_context < 1 or not 1 <= most_tokens <= 1 << 24:
            raise InputError("expected seconds of 0 or more, and at least one token")
        kind = dtype or ("fp8" if of.quantised and of.quantised.method == "fp8" else of.dtype)
        if kind not in WIDTH:
            raise unknown("dtype", kind, WIDTH)
        s = Setting(on, fabric or Fabric.of(on), tp, ep, dtype=kind, waves=waves, launch_s=launch_s)
        if lora is not None:
            of = replace(of, lora=lora)
        powers = [2**i for i in range(most_tokens.bit_length()) if 2**i < most_tokens]
        grid = np.array([0.0, *powers, most_tokens])
        body, head = _body(of, grid, s, pp), _head(of, grid, s)
        pair_s, context_s = _attention_rates(of, s, kv_dtype, window_context)
        c = on.calibration
        read = of.lora.rank * of.lora_reach * s.width / tp / (c.eta_m * on.bandwidth) if of.lora else 0.0
        rank_token = 2.0 * of.lora_reach / tp / (c.eta_c * on.peak(s.dtype)) if of.lora else 0.0
        table = CostArrays(grid, body, head, pair_s, context_s, 0.0, adapter_s + read, rank_token, host_s, running_s, waiting_s)
        return StepCost(of.name, on.name, tp, pp, table, c.said(), c.error, grid.tolist(), body.tolist(), head.tolist())

    def arrays(self) -> CostArrays:
        """The numbers that a compiled loop uses."""
        return self.table

    def _at(self, table: list[float], tokens: float) -> float:
        grid = self._grid
        i = min(bisect_right(grid, tokens), len(grid) - 1)
        low = grid[i - 1]
        return table[i - 1] + (table[i] - table[i - 1]) * (tokens - low) / (grid[i] - low)

    def body(self, tokens: float) -> float:
        """Seconds of the parts that depend only on the new tokens: projections, norms and collectives of all layers."""
        return self._at(self._body, tokens)

    def head(self, sequences: float) -> float:
        """Seconds of the head and of sampling for this many sequences."""
        return self._at(self._head, sequences)

    def decode(self, batch: int, total_context: int) -> float:
        """Seconds to make one token for each of `batch` sequences that read `total_context` cached tokens together."""
        t = self.table
        return self._at(self._body, batch) + self._at(self._head, batch) + t.context_s * total_context + t.host_s + t.running_s * batch

    def prefill(self, new_tokens: int, sum_pairs: int, sequences: int = 1) -> float:
        """Seconds to process `new_tokens` of prompts with `sum_pairs` (query, key) pairs."""
        t = self.table
        return (
            self._at(self._body, new_tokens) + self._at(self._head, sequences) + t.pair_s * sum_pairs + t.host_s + t.running_s * sequences
        )

    def mixed(
        self, new_tokens: int, sum_pairs: int, total_context: int, sequences: int, *, adapters: int = 0, rank_tokens: float = 0.0,
        waiting: int = 0,
    ) -> float:  # fmt: skip
        """Seconds of an iteration of prompt chunks and decodes together, over all new tokens and the attention of each kind."""
        t = self.table
        attention = t.pair_s * sum_pairs + t.context_s * total_context
        extra = t.adapter_s * adapters + t.rank_token_s * rank_tokens + t.host_s + t.running_s * sequences + t.waiting_s * waiting
        return self._at(self._body, new_tokens) + self._at(self._head, sequences) + attention + extra


def _body(model: Model, grid: npt.NDArray[np.float64], s: Setting, pp: int) -> npt.NDArray[np.float64]:
    total = np.asarray(element_seconds(s.device, "embedding", 2.0 * s.width * model.hidden * grid))
    start = s.device.calibration.t0 + s.launch_s
    for kind, count in model.kinds:
        each = sum(seconds for _, seconds in token_operators(model, kind, grid, s))
        total = total + count * (each + np.where(grid > 0, start, 0.0))
    if pp > 1:
        total = total + (pp - 1) * collective_seconds(
            s.fabric, "send", grid * model.hidden * s.width / s.tp, 2, far=s.tp * pp > s.fabric.node
        )
    return np.maximum.accumulate(total)


def _head(model: Model, grid: npt.NDArray[np.float64], s: Setting) -> npt.NDArray[np.float64]:
    total = np.asarray(element_seconds(s.device, "norm", 2.0 * s.width * model.hidden * grid))
    for tensor in model.once:
        if tensor.part == "head" and tensor.matmul:
            total = total + merged_product_seconds(model, (tensor,), s, grid)
    return total + element_seconds(s.device, "sampling", 6.0 * model.vocab / s.tp * grid)


def _attention_rates(model: Model, s: Setting, kv_dtype: str | None, window_context: int) -> tuple[float, float]:
    """Seconds of one pair of a prompt chunk, and of one cached token that a decode reads, over all layers."""
    if kv_dtype is not None and kv_dtype not in WIDTH:
        raise unknown("dtype", kv_dtype, WIDTH)
    c, on = s.device.calibration, s.device
    layers = sum(count * (1.0 if kind.window is None else min(1.0, kind.window / window_context)) for kind, count in model.kinds)
    # Attention computes in the type of the activations even where matrix products use a narrower one.
    rate = c.eta_attn * c.eta_c * on.peak("bf16" if WIDTH[s.dtype] < 2 else s.dtype)
    moved = model.kv_numbers * (WIDTH[kv_dtype] if kv_dtype else s.width) * kv_share(model, s.tp)
    read = moved / (c.eta_decode * c.eta_m * on.bandwidth)
    return layers * pair_flops(model) / s.tp / rate, layers * max(read, pair_flops(model, absorbed=True) / s.tp / rate)
