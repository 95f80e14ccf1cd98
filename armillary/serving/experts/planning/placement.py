"""A placement says where the experts of every layer are, and where requests and tokens should go to be near them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import kernel

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ExpertPlacement:
    """The expert in each slot, physical [layers, devices, slots]. Every expert has at least one slot, and some have copies.

    request_score [token numbers, devices] is the share of a token's work that each device can do, summed over layers, or None.
    token_score [layers, token numbers, devices] is the same for each layer, for shuffling single tokens, or None.
    """

    physical: npt.NDArray[np.int16]
    experts: int
    request_score: npt.NDArray[np.float32] | None = None
    token_score: npt.NDArray[np.float16] | None = None

    def __post_init__(self) -> None:
        for layer, row in enumerate(self.physical):
            missing = np.setdiff1d(np.arange(self.experts), row)
            if len(missing):
                raise InputError(f"placement: layer {layer} has no slot for expert {int(missing[0])}")

    @property
    def layers(self) -> int:
        """The number of layers that have experts."""
        return int(self.physical.shape[0])

    @property
    def devices(self) -> int:
        """The number of devices."""
        return int(self.physical.shape[1])

    @classmethod
    def of_devices(cls, device: npt.ArrayLike, devices: int, **scores: Any) -> ExpertPlacement:
        """Makes a placement from device [layers, experts], with equally many experts per device in the order of their numbers."""
        where = np.atleast_2d(np.asarray(device))
        order = np.argsort(where, axis=1, kind="stable").astype(np.int16)
        return cls(order.reshape(len(where), devices, -1), where.shape[1], **scores)

    @classmethod
    def index_order(cls, layers: int, experts: int, devices: int, **scores: Any) -> ExpertPlacement:
        """Puts the first experts on the first device, and so on, as engines do by default."""
        return cls.of_devices(np.tile(np.repeat(np.arange(devices), experts // devices), (layers, 1)), devices, **scores)

    def holds(self) -> npt.NDArray[np.bool_]:
        """Returns whether a device has an expert, [layers, experts, devices]."""
        found = np.zeros((self.layers, self.experts, self.devices), bool)
        for d in range(self.devices):
            for layer in range(self.layers):
                found[layer, self.physical[layer, d], d] = True
        return found

    def copies(self, layer: int) -> tuple[Ints, Ints, Ints]:
        """Returns (first [experts + 1], device, slot), where copies first[e] to before first[e + 1] are those of expert e in a layer."""
        flat = self.physical[layer].ravel().astype(np.int64)
        order = np.argsort(flat, kind="stable")
        first = np.searchsorted(flat[order], np.arange(self.experts + 1)).astype(np.int64)
        device, slot = np.divmod(order.astype(np.int64), self.physical.shape[2])
        return first, device, slot

    def expert_map(self) -> dict[str, Any]:
        """Returns the logical expert of every physical slot per layer, as in SGLang's `--init-expert-location` and vLLM's EPLB tables."""
        return {"physical_to_logical_map": self.physical.reshape(self.layers, -1).tolist()}

    def to_json(self) -> str:
        """Returns `expert_map` as JSON."""
        return json.dumps(self.expert_map())

    @classmethod
    def from_map(cls, found: Mapping[str, Any], devices: int) -> ExpertPlacement:
        """Returns the placement that `expert_map` describes."""
        try:
            rows = np.asarray(found.get("physical_to_logical_map", ()))
        except ValueError:  # rows of different lengths
            rows = np.empty(0)
        if rows.ndim != 2 or not rows.size or not np.issubdtype(rows.dtype, np.integer) or devices < 1 or rows.shape[1] % devices:
            raise InputError(f"physical_to_logical_map: expected layers × slots of whole numbers, slots a multiple of {devices}")
        if rows.min() < 0 or rows.max() >= rows.shape[1]:
            raise InputError(f"physical_to_logical_map: expected experts from 0 to below {rows.shape[1]}, as many as there are slots")
        return cls(rows.reshape(len(rows), devices, -1).astype(np.int16), int(rows.max()) + 1)

    def route(self, token_ids: npt.ArrayLike) -> int:
        """Returns the device whose experts these tokens use most, or the first one if nothing is known about them."""
        return int(np.argmax(self.scores(token_ids)))

    def scores(self, token_ids: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Returns the share of these tokens' work that each device can do, [devices], averaged over tokens and layers."""
        tokens = np.ascontiguousarray(token_ids, np.int32)
        total = np.zeros(self.devices, np.float32)
        if self.request_score is not None and len(tokens):
            _gather_sum(tokens, self.request_score, total)
            total /= np.float32(len(tokens) * self.layers)
        return total

    def shuffle(self, token_ids: npt.ArrayLike, layer: int) -> tuple[Ints, Ints]:
        """Returns (permutation, inverse) of tokens, in the order in which equal parts of them go to the devices, device 0 first.

        All devices get equally many, to within one. A token goes to the device with room that has most of its experts; tokens that would
        lose most go first.
        """
        tokens = np.asarray(token_ids, np.int64)
        n = len(tokens)
        if not 0 <= layer < self.layers:
            raise InputError(f"layer: found {layer}; expected 0 to {self.layers - 1}")
        if self.token_score is None:
            return np.arange(n), np.arange(n)
        score = np.zeros((n, self.devices), np.float32)
        known = tokens < self.token_score.shape[1]
        score[known] = self.token_score[layer, tokens[known]]
        device = _into_buckets(score)
        permutation = np.argsort(device, kind="stable")
        inverse = np.empty(n, np.int64)
        inverse[permutation] = np.arange(n)
        return permutation, inverse


def bucket_sizes(tokens: int, devices: int) -> Ints:
    """Returns the tokens per device when they are scattered evenly; the first devices get one more."""
    return np.full(devices, tokens // devices) + (np.arange(devices) < tokens % devices)


def _into_buckets(score: npt.NDArray[np.float32]) -> Ints:
    """Returns a device for each token, with as many tokens per device as `bucket_sizes` says."""
    n, devices = score.shape
    room = bucket_sizes(n, devices)
    device = np.full(n, -1, np.int64)
    left = np.arange(n)
    open_ = np.ones(devices, bool)
    # In each round, the tokens that have most to lose take their best device that has room.
    while len(left):
        part = np.where(open_[None, :], score[left], -np.inf)
        best = np.argmax(part, axis=1)
        top = part[np.arange(len(left)), best]
        part[np.arange(len(left)), best] = -np.inf
        second = part.max(axis=1)
        regret = np.where(np.isfinite(second), top - np.where(np.isfinite(second), second, 0.0), np.inf)
        taken = np.zeros(len(left), bool)
        for d in np.flatnonzero(open_):
            mine = np.flatnonzero(best == d)
            chosen = mine[np.argsort(-regret[mine], kind="stable")[: room[d]]]
            device[left[chosen]] = d
            taken[chosen] = True
            room[d] -= len(chosen)
        open_ = room > 0
        left = left[~taken]
    return device


@kernel
def _gather_sum(tokens: Any, table: Any, total: Any) -> None:
    known = table.shape[0]
    for v in tokens:
        if 0 <= v < known:
            for d in range(table.shape[1]):
                total[d] += table[v, d]
