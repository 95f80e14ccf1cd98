"""Sem-MoE clusters experts by the tokens that use them, and sends requests and tokens where their experts are.

Semantic Parallelism: Redefining Efficient MoE Inference via Model-Data Co-Scheduling, arXiv 2503.04398, 2025.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from armillary.arena import Claim, Gain, Kind
from armillary.parameters import parameter

from .planning.coclustering import cluster_experts, homes, token_weights
from .planning.placement import ExpertPlacement
from .planning.technique import ExpertTechnique, check_devices
from .routing.trace import RoutingTrace

_SOURCE = "arXiv 2503.04398"
#: The other placements, of which the best counts on each case.
RIVALS = ("vanilla", "eplb", "moetuner", "exflow", "random")
_WHY = "its gain depends on the machine's links; from 1.2 on counts on PCIe and 100 GbE"
#: A layer in which neither the experts (F1) nor their devices can be predicted this well keeps the usual placement; this share of the
#: requests is held out to measure it.
PREDICTABLE, CHECKED = 0.5, 0.2


def predictability(trace: RoutingTrace) -> npt.NDArray[np.float64]:
    """Returns the F1 [layers] of the k experts that a token number used most, against those chosen in held-out requests."""
    cut = max(1, round((1 - CHECKED) * trace.requests))
    if cut >= trace.requests:
        return np.zeros(trace.layers)
    seen, rest = trace.take(np.arange(cut)), trace.take(np.arange(cut, trace.requests))
    found = np.zeros(trace.layers)
    known = rest.token_id < seen.vocabulary
    for layer in range(trace.layers):
        counts = seen.counts(layer).toarray() if seen.vocabulary * trace.experts < 1 << 26 else None
        tokens, at = np.unique(rest.token_id[known], return_inverse=True)
        rows = counts[tokens] if counts is not None else seen.counts(layer)[tokens].toarray()
        predicted = np.zeros((len(tokens), trace.experts), bool)
        np.put_along_axis(predicted, np.argsort(-rows, axis=1, kind="stable")[:, : trace.k], True, axis=1)
        predicted &= rows > 0
        real = rest.chosen[layer][known]
        there = real >= 0
        hits = int(np.take_along_axis(predicted[at], np.maximum(real, 0).astype(np.int64), 1)[there].sum())
        said = int(predicted[at].sum())
        found[layer] = 2 * hits / max(1, said + int((rest.chosen[layer] >= 0).sum()))
    return found


def device_predictability(trace: RoutingTrace, layer: int, devices: int, rng: np.random.Generator, penalty: float) -> float:
    """Returns how well a token number predicts the devices of its experts in held-out requests: 1 is perfect, 0 is chance.

    Experts are clustered on the requests that are not held out. The overlap of a token's expected and real shares of the devices is
    compared with that of another token's expected shares. Tokens that choose freely among the experts of one device are predictable.
    """
    cut = max(1, round((1 - CHECKED) * trace.requests))
    if cut >= trace.requests or trace.experts % devices:
        return 0.0
    seen, rest = trace.take(np.arange(cut)), trace.take(np.arange(cut, trace.requests))
    weights = token_weights(seen.counts(layer), trace.k)
    device = cluster_experts(weights, devices, rng, penalty=penalty)
    share = np.asarray(weights @ np.eye(devices)[device])
    total = share.sum(axis=1)
    known = np.flatnonzero(rest.token_id < len(total))
    known = known[total[rest.token_id[known]] > 0]
    if not len(known):
        return 0.0
    chosen = rest.chosen[layer][known]
    there = chosen >= 0
    real = np.zeros((len(known), devices))
    np.add.at(real, (np.nonzero(there)[0], device[chosen[there]]), 1.0)
    real /= np.maximum(real.sum(axis=1, keepdims=True), 1.0)
    expected = share[rest.token_id[known]] / total[rest.token_id[known], None]
    right = float(np.minimum(expected, real).sum(axis=1).mean())
    chance = float(np.minimum(expected[rng.permutation(len(known))], real).sum(axis=1).mean())
    return (right - chance) / max(1e-9, 1.0 - chance)


@dataclass(frozen=True)
class SemMoE(ExpertTechnique):
    """Co-clusters experts and tokens, and directs requests and tokens by score."""

    devices: int = parameter(8, "the number of devices if `fit` is called directly", range=(1, 4096))
    penalty: float = parameter(0.1, "weight of the penalty on devices whose experts get more tokens than others", range=(0.0, 10.0))
    replicate: bool = parameter(False, "whether to fill slots with copies if the devices do not divide the experts")
    copies: int = parameter(0, "slots for copies on every device, beyond an equal part", range=(0, 64))
    hot: float = parameter(0.0, "the purpose of copies, from 0 for locality to 1 for the experts with the most tokens", range=(0.0, 1.0))

    by_score: ClassVar[bool] = True
    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "alltoall_bytes", over=RIVALS, by=Gain(percent=(40.0, None)), on=Kind("affinity"), source=_SOURCE,
            says="40 % less all-to-all than existing solutions where tokens' experts can be predicted",
        ),
        Claim(
            "token_throughput", over=RIVALS, by=Gain(ratio=(2.78, None)), on=Kind("affinity", "dp", "slow-link"), source=_SOURCE,
            says="up to 2.78 times the throughput with data-parallel attention", aggregate="max", honest=(1.2, 2.8), why=_WHY,
        ),
        Claim(
            "token_throughput", over=RIVALS, by=Gain(ratio=(1.05, 1.5)), on=Kind("affinity", "dp", "nvlink"), honest=(1.05, 1.5),
            says="more throughput on NVLink too", source=_SOURCE, why="our range: the paper gives the largest gain only",
        ),
        Claim(
            "latency", over=RIVALS, by=Gain(percent=(24.9, None)), on=Kind("affinity", "tp"), source=_SOURCE, aggregate="max",
            says="up to 24.9 % less latency with tensor-parallel attention",
        ),
        Claim(
            "token_throughput", over="vanilla", by=Gain(ratio=(0.97, None)), on=Kind("no-affinity"),
            says="does no harm where nothing can be predicted", source="ours",
        ),
    )  # fmt: skip

    def fit(self, trace: RoutingTrace) -> ExpertPlacement:
        """Learns the placement for `devices` from a trace."""
        return self.place(trace, self.devices)

    def place(self, trace: RoutingTrace, devices: int) -> ExpertPlacement:
        """Places layer by layer, and then relabels devices so that a token number's homes agree between layers."""
        if not (self.replicate and devices >= 1):
            check_devices(trace.experts, devices)
        slots = -(-trace.experts // devices)
        learnt = predictability(trace) >= PREDICTABLE
        mass = np.bincount(trace.token_id, minlength=trace.vocabulary).astype(float)
        physical = np.empty((trace.layers, devices, slots + self.copies), np.int16)
        before: npt.NDArray[np.int64] | None = None
        for layer, (weights, device) in enumerate(self._clustered(trace, devices, learnt)):
            share = np.asarray(weights @ np.eye(devices)[device])
            home, _ = homes(share, mass)
            if before is not None and learnt[layer]:
                label = agreeing_labels(before, home, mass, devices)
                device, home = label[device], label[home]
            before = home
            physical[layer] = with_copies(weights, device, home, devices, slots + self.copies, self.hot)
        return scored(ExpertPlacement(physical, trace.experts), trace, learnt)

    def _clustered(self, trace: RoutingTrace, devices: int, learnt: npt.NDArray[np.bool_]) -> Iterator[tuple[Any, npt.NDArray[np.int64]]]:
        """Yields every layer's weights and clusters, and completes `learnt`; each core works on one layer at a time."""

        def layer(number: int, rng: np.random.Generator) -> tuple[Any, npt.NDArray[np.int64]]:
            weights = token_weights(trace.counts(number), trace.k)
            if not learnt[number]:
                # Whoever chooses freely among the experts of one device is unpredictable by expert and predictable by device.
                learnt[number] = device_predictability(trace, number, devices, rng.spawn(1)[0], self.penalty) >= PREDICTABLE
            if not learnt[number]:
                return weights, np.arange(trace.experts) // -(-trace.experts // devices)
            return weights, cluster_experts(weights, devices, rng, penalty=self.penalty)

        # Matrix products use one thread, because two levels of threads would disturb each other.
        with threadpool_limits(1), ThreadPoolExecutor(min(trace.layers, os.cpu_count() or 1)) as cores:
            yield from cores.map(layer, range(trace.layers), self.rng.spawn(trace.layers))


def scored(placement: ExpertPlacement, trace: RoutingTrace, learnt: npt.NDArray[np.bool_]) -> ExpertPlacement:
    """Returns the placement with scores: the share of each token number's work that every device can do, in layers that were learnt."""
    mass = np.bincount(trace.token_id, minlength=trace.vocabulary).astype(float)
    score = np.zeros((trace.layers, trace.vocabulary, placement.devices), np.float16)
    total = np.zeros((trace.vocabulary, placement.devices), np.float32)
    holds = placement.holds()
    for layer in np.flatnonzero(learnt).tolist():
        weights = token_weights(trace.counts(layer), trace.k)
        chance = np.asarray(weights @ holds[layer].astype(float)) / np.maximum(mass, 1.0)[:, None]
        score[layer] = chance
        total += chance.astype(np.float32)
    return replace(placement, request_score=total, token_score=score)


def with_copies(
    weights: Any, device: npt.NDArray[np.int64], home: npt.NDArray[np.int64], devices: int, slots: int, hot: float
) -> npt.NDArray[np.int16]:
    """Returns the experts [devices, slots], with free slots filled by copies one at a time (our design).

    A copy on device d is worth (1 − hot)·(tokens at home on d that use the expert and find no copy there) + hot·(the expert's tokens per
    copy).
    """
    experts = weights.shape[1]
    there = np.zeros((devices, experts), bool)
    there[device, np.arange(experts)] = True
    load = np.asarray(weights.sum(axis=0)).ravel()
    wanted = np.stack([np.asarray(weights[home == d].sum(axis=0)).ravel() for d in range(devices)])
    for _ in range(devices * slots - experts):
        room = there.sum(axis=1) < slots
        worth = (1 - hot) * wanted + hot * (load / there.sum(axis=0))[None, :]
        worth[there | ~room[:, None]] = -np.inf
        d, e = divmod(int(np.argmax(worth)), experts)
        if not np.isfinite(worth[d, e]):  # every device with room has every expert
            break
        there[d, e] = True
    physical = np.empty((devices, slots), np.int16)
    for d in range(devices):
        physical[d] = np.resize(np.flatnonzero(there[d]), slots)
    return physical


def agreeing_labels(
    before: npt.NDArray[np.int64], home: npt.NDArray[np.int64], mass: npt.NDArray[np.float64], devices: int
) -> npt.NDArray[np.int64]:
    """Returns the new number of each device of this layer [devices], so that as much token mass as possible stays where it was."""
    both = np.zeros((devices, devices))
    np.add.at(both, (home, before), mass)
    rows, columns = linear_sum_assignment(-both)
    label = np.empty(devices, np.int64)
    label[rows] = columns
    return label
