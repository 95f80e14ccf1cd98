"""Trains TRACE: Huber loss of the QoS, ListMLE over eight hosts per VM, and cross entropy of whether a gated gain is one.

A step takes four snapshots: 128 VMs with eight hosts each are 1,024 pairs, for which 128 VMs and 40 hosts are encoded, and the own hosts
of a quarter of the VMs without them. QoS differs by hundredths, so errors and scores are counted in units of `UNIT` (ours).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as fn

from armillary.learn import Features, Model, Recipe, deterministic, list_mle
from armillary.learn.optimiser import Adam
from armillary.scheduling.vm.problem.state import WIDTH_V
from armillary.streams import stream

from .network import TraceNetwork
from .samples import Snapshot, schema, snapshots
from .standard import standardised

TOGETHER, LR, WEIGHT_DECAY = 4, 3e-3, 1e-2
#: Weights of ListMLE and of the gate's cross entropy, and the QoS that counts as one.
RANKING, GATING, UNIT = 0.3, 0.1, 0.02


def train(recipe: Recipe, progress: Callable[[float], None]) -> Model:
    """Trains the network of a recipe on the built-in training fleets."""
    p = recipe.parameters
    rows, held = snapshots(p["snapshots"], p["held"])
    return trained(rows, held, p, recipe.seed, progress)


def trained(
    rows: Sequence[Snapshot], held: Sequence[Snapshot], how: Mapping[str, Any], seed: int, progress: Callable[[float], None] | None = None,
    start: Model | None = None,
) -> Model:  # fmt: skip
    """Trains on snapshots and keeps the epoch with the least error on others. how: cross, sets and epochs. start: where to go on from."""
    network = TraceNetwork(cross=how["cross"], sets=how["sets"], seed=seed)
    features = schema(rows) if start is None or start.features is None else start.features
    if start is not None:
        start.load_into(network)
    steps = max(1, len(rows) // TOGETHER) * how["epochs"]
    best, kept, step = math.inf, None, 0
    with deterministic():
        ready = [Batch(features, [one]) for one in held]
        if start is not None and ready:
            with torch.no_grad():
                best = float(np.mean([mean_error(network, one) for one in ready]))
            kept = {name: value.clone() for name, value in network.state_dict().items()}
        optimiser = Adam(network.parameters(), LR, weight_decay=WEIGHT_DECAY)
        for epoch in range(how["epochs"]):
            order = stream(seed, "batches", str(epoch)).permutation(len(rows))
            for i in range(0, len(rows) - TOGETHER + 1 if len(rows) >= TOGETHER else 1, TOGETHER):
                optimiser.lr = LR * 0.5 * (1 + math.cos(math.pi * step / steps))
                optimiser.clear()
                value = loss(network, Batch(features, [rows[j] for j in order[i : i + TOGETHER]]))
                torch.autograd.backward(value)
                optimiser.step()
                step += 1
                if progress is not None:
                    progress(step / steps)
            with torch.no_grad():
                error = float(np.mean([mean_error(network, one) for one in ready])) if ready else 0.0
            # Without anything to choose by, the last epoch stays.
            if error < best or not ready:
                best, kept = error, {name: value.clone() for name, value in network.state_dict().items()}
    assert kept is not None
    network.load_state_dict(kept)
    metrics = {"qos_mae": best} if ready else {}
    return Model.of(network, features=features, steps=steps, seed=seed, metrics=metrics)


class Batch:
    """Snapshots as tensors, standardised, with the hosts of all of them in one table."""

    def __init__(self, features: Features, rows: Sequence[Snapshot]) -> None:
        mean, scale = np.array(features.mean, np.float32), np.array(features.scale, np.float32)
        vm = [standardised(one.x, mean[:WIDTH_V], scale[:WIDTH_V]) for one in rows]
        host = [standardised(one.host_x, mean[WIDTH_V:], scale[WIDTH_V:]) for one in rows]
        own = [standardised(one.source_x, mean[WIDTH_V:], scale[WIDTH_V:]) for one in rows]
        width = max(1, *(s.shape[1] for one in rows for s in (one.sets, one.source_sets)))
        offset = np.cumsum([0, *(len(one.host_x) for one in rows)])
        self.vms = torch.from_numpy(np.concatenate([x[one.vms] for x, one in zip(vm, rows)]))
        self.lists = torch.from_numpy(np.concatenate([one.lists + start for one, start in zip(rows, offset)]))
        self.qos = torch.from_numpy(np.concatenate([one.qos for one in rows]))
        # The own hosts of every fourth VM, because sets are what costs time; of all where nothing else is known.
        fourth = [np.arange(0, len(one.vms), 4 if one.lists.shape[1] else 1) for one in rows]
        start = np.cumsum([0, *(len(one.vms) for one in rows)])
        self.sourced = torch.from_numpy(np.concatenate([at + first for at, first in zip(fourth, start)]))
        self.source_qos = torch.from_numpy(np.concatenate([one.source_qos[at] for one, at in zip(rows, fourth)]))
        tables = [(x, one.sets) for x, one in zip(vm, rows)] + [(x, one.source_sets[at]) for x, one, at in zip(vm, rows, fourth)]
        index = [np.pad(sets, ((0, 0), (0, width - sets.shape[1])), constant_values=-1) for _, sets in tables]
        self.sets = torch.from_numpy(np.concatenate([x[np.maximum(at, 0)] for (x, _), at in zip(tables, index)]))
        self.real = torch.from_numpy(np.concatenate(index) >= 0)
        self.host = torch.from_numpy(np.concatenate([*host, *(x[at] for x, at in zip(own, fourth))]))
        self.pool = int(offset[-1])


def scored(network: TraceNetwork, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(q̂ of the lists [VMs, 8], q̂ of own hosts [sourced], e_p of the lists [VMs, 8, 32], e_s [sourced, 32])."""
    e_v = network.vm(batch.vms)
    e_p = network.encode_host(batch.host, batch.sets, batch.real)
    listed, source = e_p[: batch.pool][batch.lists], e_p[batch.pool :]
    q = torch.sigmoid(network.logit(e_v[:, None, :], listed))
    return q, torch.sigmoid(network.logit(e_v[batch.sourced], source)), listed, source


def loss(network: TraceNetwork, batch: Batch) -> Tensor:
    """The three losses together; what is not known of a list counts nothing."""
    q, own, listed, source = scored(network, batch)
    known = torch.isfinite(batch.qos)
    truth = torch.where(known, batch.qos, q.detach())
    own_known = torch.isfinite(batch.source_qos)
    own_truth = torch.where(own_known, batch.source_qos, own.detach())
    total = fn.huber_loss(torch.cat([q.reshape(-1), own]) / UNIT, torch.cat([truth.reshape(-1), own_truth]) / UNIT)
    if not q.shape[1]:
        return total
    total = total + RANKING * list_mle(q / UNIT, truth)
    gain = q[batch.sourced] - own[:, None]
    true_gain = truth[batch.sourced] - own_truth[:, None]
    openness = network.openness(source[:, None, :], listed[batch.sourced])
    both = (known[batch.sourced] & own_known[:, None]).float()
    wrong = fn.binary_cross_entropy_with_logits(openness * gain / UNIT, (true_gain > 0).float(), weight=both, reduction="sum")
    return total + GATING * wrong / both.sum().clamp(min=1.0)


def mean_error(network: TraceNetwork, batch: Batch) -> float:
    """The mean absolute error of q̂ on the lists and on own hosts."""
    q, own, *_ = scored(network, batch)
    wrong = torch.cat([(q - batch.qos).reshape(-1), own - batch.source_qos]).abs()
    return float(wrong[torch.isfinite(wrong)].mean())
