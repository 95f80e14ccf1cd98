"""Which GPU holds which heads and columns when their number divides nothing.

Three placements of H key-value heads on G GPUs over L layers:

* `naive`: head h on GPU h mod G in every layer. The first H mod G GPUs hold one head more everywhere: KV and time are theirs.
* `cyclic`: head h of layer l on GPU (h + l·(H mod G)) mod G. The odd heads go round, so over all layers the loads differ by one at most.
* `hybrid`: ⌊H/G⌋ heads per GPU are tensor parallel; the weights of the H mod G others are on every GPU, and a request's keys and values
  for them on one GPU, its data-parallel rank. Per layer a GPU has ⌊H/G⌋ + (H mod G)/G heads' work instead of ⌈H/G⌉.

The MLP's columns are split in units of 128 and the vocabulary in units of 32 rows, the rest of the division going round with the layers.
Given a layout to `keep`, the new one moves as little as its counts allow. FailSafe (arXiv 2511.14116); keeping is our design.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line, unknown

Placement = Literal["naive", "cyclic", "hybrid"]
PLACEMENTS = ("naive", "cyclic", "hybrid")
Owners = npt.NDArray[np.int16]
#: The owner of a head whose weights every GPU holds, and whose keys and values follow the request.
DATA_PARALLEL = -1
FFN_UNIT, VOCAB_UNIT = 128, 32
#: More than any model or node has; a file that says more is wrong.
MOST_GPUS, MOST_CELLS = 1024, 1 << 22


@dataclass(frozen=True, eq=False)
class Layout:
    """Owners are numbers of devices; rows are layers.

    heads: [layers, key-value heads], DATA_PARALLEL where every GPU has the weights; query heads follow their key-value head.
    ffn: [layers, units] of `ffn_unit` columns. vocab: [1, units] of `vocab_unit` rows of the embedding and the head.
    """

    placement: Placement
    devices: tuple[int, ...]
    heads: Owners
    ffn: Owners
    vocab: Owners
    ffn_unit: int = FFN_UNIT
    vocab_unit: int = VOCAB_UNIT

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return len(self.devices)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self.heads.shape[0]

    @property
    def kv_heads(self) -> int:
        """The number of key-value heads per layer."""
        return self.heads.shape[1]

    @functools.cached_property
    def heads_per_gpu(self) -> npt.NDArray[np.int64]:
        """The tensor-parallel heads, [layers, GPUs]."""
        return _counts(self.heads, self.devices)

    @functools.cached_property
    def dp_heads(self) -> npt.NDArray[np.int64]:
        """The data-parallel heads, [layers]."""
        return np.asarray((self.heads == DATA_PARALLEL).sum(axis=1))

    @functools.cached_property
    def units_per_gpu(self) -> npt.NDArray[np.int64]:
        """The units of the MLP's columns, [layers, GPUs]."""
        return _counts(self.ffn, self.devices)

    @functools.cached_property
    def vocab_per_gpu(self) -> npt.NDArray[np.int64]:
        """The units of the vocabulary, [GPUs]."""
        return _counts(self.vocab, self.devices)[0]

    def head_layers(self) -> npt.NDArray[np.float64]:
        """Returns the (head, layer) pairs whose keys and values each GPU holds per token, [GPUs]; data-parallel ones are spread evenly."""
        return np.asarray(self.heads_per_gpu.sum(axis=0) + self.dp_heads.sum() / self.gpus, np.float64)

    def attention_work(self, dp_share: npt.ArrayLike | None = None) -> npt.NDArray[np.float64]:
        """Returns the attention in heads, [layers, GPUs]; `dp_share` [GPUs] is each rank's share of the requests' work (1/G if even)."""
        share = np.full(self.gpus, 1.0 / self.gpus) if dp_share is None else np.asarray(dp_share, float)
        return self.heads_per_gpu + self.dp_heads[:, None] * share

    def kv_tokens(self, free_bytes: float | npt.ArrayLike, head_layer_bytes: float) -> int:
        """Returns the tokens whose KV fits if each GPU has `free_bytes` and a token's head in one layer takes `head_layer_bytes`."""
        free = np.broadcast_to(np.asarray(free_bytes, float), (self.gpus,))
        held = self.head_layers()
        return max(0, int(np.min(free[held > 0] / held[held > 0]) / head_layer_bytes)) if held.any() else 0

    def compute_imbalance(self) -> float:
        """Returns the time for which layers wait over that with even shares, the larger of attention's and the MLP's; 1 is even."""
        found = [
            float(work.max(axis=1).sum() / work.mean(axis=1).sum()) for work in (self.attention_work(), self.units_per_gpu) if work.any()
        ]
        return max(found, default=1.0)

    def memory_imbalance(self) -> float:
        """Returns the KV on the fullest GPU over the mean."""
        held = self.head_layers()
        return float(held.max() / held.mean()) if held.any() else 1.0

    def to_json(self) -> str:
        """Returns the layout as a plan file, which has each device's heads by layer and its columns and rows as half-open ranges."""
        shards = [
            {
                "device": d,
                "heads": [np.flatnonzero(row == d).tolist() for row in self.heads],
                "ffn_columns": [_ranges(np.flatnonzero(row == d), self.ffn_unit) for row in self.ffn],
                "vocab_rows": _ranges(np.flatnonzero(self.vocab[0] == d), self.vocab_unit),
            }
            for d in self.devices
        ]
        return json.dumps(
            {
                "armillary_layout": 1, "placement": self.placement, "devices": list(self.devices), "layers": self.layers,
                "kv_heads": self.kv_heads, "ffn_units": self.ffn.shape[1], "ffn_unit": self.ffn_unit, "vocab_units": self.vocab.shape[1],
                "vocab_unit": self.vocab_unit, "dp_heads": [np.flatnonzero(row == DATA_PARALLEL).tolist() for row in self.heads],
                "shards": shards,
            }
        )  # fmt: skip

    @staticmethod
    def from_json(text: str, where: str = "layout") -> Layout:
        """Reads a plan file and checks that every head, column and row has exactly one place."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise InputError(f"not JSON: {one_line(str(problem), 100)}", where=where) from None
        if not isinstance(data, dict) or data.get("armillary_layout") != 1:
            raise InputError('expected an object with "armillary_layout": 1', where=where)
        if data.get("placement") not in PLACEMENTS:
            raise unknown("placement", str(data.get("placement")), PLACEMENTS, where=where)
        size = {key: _whole(data, key, where) for key in ("layers", "kv_heads", "ffn_units", "ffn_unit", "vocab_units", "vocab_unit")}
        devices = _devices(data.get("devices"), where)
        shards, rest = data.get("shards"), data.get("dp_heads")
        if not isinstance(shards, list) or [s.get("device") if isinstance(s, dict) else None for s in shards] != list(devices):
            raise InputError('key "shards": expected one object for each of "devices", in order', where=where)
        layers, cells = size["layers"], size["layers"] * max(1, size["kv_heads"], size["ffn_units"]) + size["vocab_units"]
        if layers < 1 or cells > MOST_CELLS:
            raise InputError(
                f"found {layers} layers with {cells:,} owners in all; expected 1 layer and at most {MOST_CELLS:,}", where=where
            )
        blank = -2
        heads = np.full((layers, size["kv_heads"]), blank, np.int16)
        ffn, vocab = np.full((layers, size["ffn_units"]), blank, np.int16), np.full((1, size["vocab_units"]), blank, np.int16)
        _fill(heads, rest, DATA_PARALLEL, 0, f"{where}: dp_heads")
        for d, shard in zip(devices, shards, strict=True):
            _fill(heads, shard.get("heads"), d, 0, f"{where}: device {d}: heads")
            _fill(ffn, shard.get("ffn_columns"), d, size["ffn_unit"], f"{where}: device {d}: ffn_columns")
            _fill(vocab, [shard.get("vocab_rows")], d, size["vocab_unit"], f"{where}: device {d}: vocab_rows")
        for name, found in (("head", heads), ("unit of columns", ffn), ("unit of rows", vocab)):
            if (found == blank).any():
                at = np.argwhere(found == blank)[0]
                raise InputError(f"{name} {at[1]} of layer {at[0]} has no place; expected one", where=where)
        return Layout(data["placement"], devices, heads, ffn, vocab, size["ffn_unit"], size["vocab_unit"])

    def write(self, path: str | Path) -> None:
        """Writes the plan file."""
        Path(path).write_text(self.to_json() + "\n")


def failsafe_layout(
    kv_heads: int, layers: int, gpus: int | Sequence[int], *, placement: Placement = "hybrid", ffn: int = 0, vocab: int = 0,
    ffn_unit: int = FFN_UNIT, vocab_unit: int = VOCAB_UNIT, keep: Layout | None = None,
) -> Layout:  # fmt: skip
    """Returns where heads, MLP columns and vocabulary rows go on `gpus` GPUs (a number, or the devices' numbers).

    `ffn` and `vocab` are widths (0: not laid out). With `keep`, whatever stays within the new counts stays where it is. Where G divides H
    all three placements are plain tensor parallelism.
    """
    devices = tuple(range(gpus)) if isinstance(gpus, int) else _devices(list(gpus), "gpus")
    if placement not in PLACEMENTS:
        raise unknown("placement", placement, PLACEMENTS)
    for name, value, low in (("kv_heads", kv_heads, 1), ("layers", layers, 1), ("ffn_unit", ffn_unit, 1), ("vocab_unit", vocab_unit, 1),
                             ("ffn", ffn, 0), ("vocab", vocab, 0)):  # fmt: skip
        if not low <= value <= 1 << 24:
            raise InputError(f"{name}: found {value}; expected {low} to {1 << 24:,}")
    if not 1 <= len(devices) <= MOST_GPUS:
        raise InputError(f"gpus: found {len(devices)}; expected 1 to {MOST_GPUS}")
    columns, rows = -(-ffn // ffn_unit), -(-vocab // vocab_unit)
    if layers * max(kv_heads, columns) + rows > MOST_CELLS:
        raise InputError(f"found {layers} layers of {kv_heads} heads and {columns} units; expected at most {MOST_CELLS:,} in all")
    if keep is not None and (keep.heads.shape, keep.ffn.shape[1], keep.vocab.shape[1]) != ((layers, kv_heads), columns, rows):
        raise InputError("keep: a layout of another model; expected the same layers, heads, columns and rows")
    found = {}
    for name, count, deep in (("heads", kv_heads, layers), ("ffn", columns, layers), ("vocab", rows, 1)):
        old = None if keep is None else getattr(keep, name)
        if placement == "naive" and name == "heads":
            owners = np.broadcast_to(np.arange(count) % len(devices), (deep, count))
            found[name] = np.asarray(devices, np.int16)[owners]
        else:
            found[name] = _placed(deep, count, devices, hybrid=placement == "hybrid" and name == "heads", old=old)
    return Layout(placement, devices, found["heads"], found["ffn"], found["vocab"], ffn_unit, vocab_unit)


def _placed(layers: int, count: int, devices: tuple[int, ...], *, hybrid: bool, old: Owners | None) -> Owners:
    """Owners with ⌊count/G⌋ each and the rest going round with the layers, or data parallel."""
    g, rest = len(devices), count % len(devices)
    at = np.arange(count)[None, :] + np.arange(layers)[:, None] * rest
    if hybrid:
        at = np.broadcast_to(np.arange(count), (layers, count))
    ids = np.asarray((*devices, DATA_PARALLEL), np.int16)
    if old is None:
        owners = at % g
        if hybrid:
            owners = np.where(np.arange(count) >= count - rest, g, owners)
        return ids[owners]
    target = np.full((layers, g), count // g)
    if not hybrid and rest:
        extra = (np.arange(rest)[None, :] + np.arange(layers)[:, None] * rest) % g
        np.put_along_axis(target, extra, count // g + 1, axis=1)
    stays, kept = np.zeros((layers, count), bool), np.zeros((layers, g), np.int64)
    for j, d in enumerate(devices):
        mine = old == d
        within = mine & (np.cumsum(mine, axis=1) <= target[:, j, None])
        stays |= within
        kept[:, j] = within.sum(axis=1)
    # The n-th of those without a place goes to the GPU in whose room the n-th falls; beyond all rooms: data parallel.
    nth = np.cumsum(~stays, axis=1) - 1
    rooms = np.cumsum(target - kept, axis=1)
    to = (nth[:, :, None] >= rooms[:, None, :]).sum(axis=2)
    return np.where(stays, old, ids[to])


def _counts(owners: Owners, devices: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return np.stack([(owners == d).sum(axis=1) for d in devices], axis=1)


def _ranges(units: npt.NDArray[np.int64], unit: int) -> list[list[int]]:
    if not len(units):
        return []
    cuts = np.flatnonzero(np.diff(units) > 1)
    first, last = np.concatenate([units[:1], units[cuts + 1]]), np.concatenate([units[cuts], units[-1:]])
    return [[int(a) * unit, int(b + 1) * unit] for a, b in zip(first, last, strict=True)]


def _whole(data: dict[str, Any], key: str, where: str) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1 << 24:
        raise InputError(f'key "{key}": found {one_line(repr(value), 40)}; expected a whole number', where=where)
    return value


def _devices(found: Any, where: str) -> tuple[int, ...]:
    good = isinstance(found, list) and 1 <= len(found) <= MOST_GPUS and all(isinstance(d, int) and not isinstance(d, bool) for d in found)
    if not good or len(set(found)) != len(found) or min(found) < 0 or max(found) >= 1 << 15:
        raise InputError(f"devices: expected 1 to {MOST_GPUS} different numbers from 0 to {(1 << 15) - 1}", where=where)
    return tuple(found)


def _fill(owners: Owners, rows: Any, device: int, unit: int, where: str) -> None:
    """Writes `device` at the heads (unit 0) or the ranges of a shard; each place may be given once."""
    if not isinstance(rows, list) or len(rows) != len(owners):
        raise InputError(f"expected a list for each of {len(owners)} layers", where=where)
    for layer, row in enumerate(rows):
        spans = row if unit else [[h, h + 1] for h in row] if isinstance(row, list) and all(isinstance(h, int) for h in row) else None
        if not isinstance(spans, list):
            raise InputError(f"layer {layer}: expected a list", where=where)
        for span in spans:
            step = unit or 1
            good = isinstance(span, list) and len(span) == 2 and all(isinstance(x, int) and x % step == 0 for x in span)
            if not good or not 0 <= span[0] < span[1] <= owners.shape[1] * step:
                raise InputError(
                    f"layer {layer}: found {one_line(repr(span), 40)}; expected a range of units inside the model", where=where
                )
            part = owners[layer, span[0] // step : span[1] // step]
            if (part != -2).any():
                raise InputError(f"layer {layer}: {span} is held twice", where=where)
            part[:] = device
