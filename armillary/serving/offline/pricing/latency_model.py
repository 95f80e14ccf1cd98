"""The published latency model: a layer's seconds are a linear function of the bytes it touches, fitted to a profile of each device.

The regressors of attention are the bytes of weights, activations, cached keys and values, scores, layer norm, and dequantised weights;
those of the feed-forward part are the bytes of weights, activations, layer norm, and dequantised weights. Coefficients are not negative,
and are fitted to relative errors for each device, precision, phase and half of a layer. The profile is a user's measurement, or comes
from the operators of `armillary.llm`.

SplitQuant, IEEE CLUSTER 2025; LLM-PQ, arXiv 2403.01136, section 4.1. That scores count apart from other activations is our reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import Column, read_table
from armillary.llm import Chip, Model

from ..planning.problem import LEGAL_BITS
from .layer_cost import layer_seconds

MOST_ROWS = 1_000_000
#: The largest width, batch or length in a profile.
MOST = 10**8


class Row(NamedTuple):
    """One measured point: half of a layer (0 attention, 1 feed-forward), two widths, bits, sequences, new and past tokens, and seconds."""

    device: str
    shard: int
    h1: int
    h2: int
    bit: int
    batch: int
    new: int
    past: int
    seconds: float

    @property
    def decode(self) -> bool:
        """Whether the point is one token after others."""
        return self.new == 1 and self.past > 0


def regressors(shard: int, h1: int, h2: int, bit: int, batch: float, new: float, past: float) -> list[float]:
    """Returns the bytes that half of a layer touches, of six kinds for attention and four for the feed-forward part."""
    tokens, low = batch * new, bit < 16
    norm = 2.0 * tokens * h1
    if shard == 0:
        weights = 4.0 * h1 * h1
        scores = 2.0 * tokens * (past + (new if past else (new + 1) / 2)) * h1 / 128
        return [weights * bit / 8, 2.0 * tokens * 4 * h1, 4.0 * batch * (past + new) * h1, scores, norm, low * 2.0 * weights]
    weights = 2.0 * h1 * h2
    return [weights * bit / 8, 2.0 * tokens * (h1 + h2), norm, low * 2.0 * weights]


@dataclass(frozen=True)
class LatencyModel:
    """Coefficients by (device, kind of layer, bits, decode, shard), the layer's widths, and the mean error of the fit."""

    coefficients: Mapping[tuple[str, int, int, bool, int], npt.NDArray[np.float64]]
    widths: tuple[int, int]
    error: float
    source: str

    def seconds(self, device: str, kind: int, bit: int, batch: int, new: int, past: int) -> float:
        """Returns the seconds of both halves of a layer of that kind."""
        decode, total = new == 1 and past > 0, 0.0
        for shard in (0, 1):
            key = (device, kind, bit, decode, shard)
            if key not in self.coefficients:
                phase = "decode (one token after others)" if decode else "prefill"
                half = ("attention", "feed-forward")[shard]
                raise InputError(f"{self.source}: no row of device {device} at {bit} bits for {phase}, {half} (shard {shard})")
            total += float(np.dot(self.coefficients[key], regressors(shard, *self.widths, bit, batch, new, past)))
        return total


def fit(rows: Iterable[Row], kinds: int = 1, source: str = "profile") -> LatencyModel:
    """Fits the model to these rows; with several kinds of layer, all of them share the rows."""
    groups: dict[tuple[str, int, int, bool, int], list[Row]] = {}
    widths: set[tuple[int, int]] = set()
    for row in rows:
        widths.add((row.h1, row.h2))
        for kind in range(kinds):
            groups.setdefault((row.device, kind, row.bit, row.decode, row.shard), []).append(row)
    if len(widths) != 1:
        raise InputError(f"found layers of {len(widths)} widths; expected those of one model", where=source)
    return _fitted(groups, widths.pop(), source)


def _fitted(groups: Mapping[tuple[str, int, int, bool, int], Sequence[Row]], widths: tuple[int, int], source: str) -> LatencyModel:
    from scipy.optimize import nnls

    found, errors = {}, []
    for key, rows in groups.items():
        wide = np.array([regressors(r.shard, r.h1, r.h2, r.bit, r.batch, r.new, r.past) for r in rows])
        took = np.array([r.seconds for r in rows])
        scale = np.maximum(wide.max(0), 1e-300)
        coefficients, _ = nnls(wide / scale / took[:, None], np.ones(len(rows)))
        found[key] = coefficients / scale
        errors.append(np.abs(wide @ found[key] / took - 1))
    error = float(np.concatenate(errors).mean()) if errors else 0.0
    return LatencyModel(found, widths, error, source)


def profiled(model: Model, devices: Iterable[Chip], bits: Sequence[int], batch: int, prompt: int, output: int) -> LatencyModel:
    """Fits the model to the operators of `armillary.llm` near this work: micro-batches up to `batch`, prompts of about `prompt`."""
    batches = sorted({min(batch, 2**i) for i in range(batch.bit_length() + 1)} | {batch})
    prompts = sorted({max(2, prompt // 2), max(2, 3 * prompt // 4), max(2, prompt), max(2, 3 * prompt // 2)})
    pasts = sorted({max(1, prompt // 2), prompt, prompt + output // 2, prompt + output, 2 * (prompt + output)})
    points = [(v, s, 0) for v in batches for s in prompts] + [(v, 1, t) for v in batches for t in pasts]
    widths = (model.hidden, model.ffn or model.hidden)
    groups: dict[tuple[str, int, int, bool, int], list[Row]] = {}
    for device in {d.name: d for d in devices}.values():
        for kind, (layer, _) in enumerate(model.kinds):
            for bit in bits:
                for v, s, t in points:
                    halves = layer_seconds(model, layer, device, bit, v, s, t)
                    for shard in (0, 1):
                        row = Row(device.name, shard, *widths, bit, v, s, t, halves[shard])
                        groups.setdefault((device.name, kind, bit, row.decode, shard), []).append(row)
    return _fitted(groups, widths, "armillary.llm")


def read_profile(path: str | Path, device: str | None = None) -> list[Row]:
    """Reads a measured profile from CSV with one row per measured point.

    Its columns are shard,h1,h2,bit,batch_size,input_seq_length,past_seq_length,lat_avg (seconds) and, unless `device` names the device
    of the profile, device.
    """
    columns = [
        Column("shard", "int", choices=(0, 1)), Column("h1", "int", least=1, most=MOST), Column("h2", "int", least=1, most=MOST),
        Column("bit", "int", choices=LEGAL_BITS), Column("batch_size", "int", least=1, most=MOST),
        Column("input_seq_length", "int", least=1, most=MOST), Column("past_seq_length", "int", least=0, most=MOST),
        Column("lat_avg", unit="seconds", above=0, most=1e9), Column("device", "str", default=device),
    ]  # fmt: skip
    table = read_table(path, columns, format="csv", row_limit=MOST_ROWS)
    return [Row(whose, *numbers) for *numbers, whose in table.frame.iter_rows()]
