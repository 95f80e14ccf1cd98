"""The program of a rank: train the tiny transformer with one sharding, and report what it took.

It is importable by name, and its arguments and results are numbers, text and arrays, so that it runs on every backend of `armillary.comm`.
The first steps are counted (peaks of memory, bytes), the others are timed.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from armillary.comm import Communicator
from armillary.llm import TrainableTiny
from armillary.llm.tiny.trainable import cross_entropy
from armillary.llm.tiny.transformer import Shape

from ..layouts.sharding import Sharding
from .sharded import Sharded, shard

#: Steps in which memory and bytes are counted instead of time.
COUNTED = 2


def train(ranks: Communicator, target: str, settings: Mapping[str, Any], work: Mapping[str, Any], tokens: Any) -> dict[str, Any]:
    """Train for all steps in `tokens` [steps, sequences, tokens + 1] and return seconds, counts, losses and (rank 0) the weights.

    `target` is the sharding's `module:Class`, `settings` its parameters, and `work` holds config, seed, dtype, optimizer, lr and blocks.
    """
    torch.set_num_threads(1)
    module, _, name = target.partition(":")
    sharding: Sharding = getattr(importlib.import_module(module), name)(**settings).on_ranks()
    sharded, plan_s = _prepared(ranks, sharding, work)
    ids = torch.from_numpy(np.array(tokens)).long()
    each = ids.shape[1] // ranks.size
    mine = ids[:, ranks.rank * each : (ranks.rank + 1) * each]
    peak, inside = [0], [True]

    def count() -> None:
        peak[0] = max(peak[0], sharded.state_bytes())
        inside[0] = inside[0] and addresses_inside(sharded)

    seconds, losses = [], []
    copied = sent = 0
    for number, batch in enumerate(mine):
        counted = number < min(COUNTED, len(mine))
        sharded.on_event = count if counted else None
        copied, sent = (sharded.copied, sharded.wires.bytes) if number == 0 else (copied, sent)
        ranks.barrier()
        began = time.perf_counter()
        loss = cross_entropy(sharded(batch[:, :-1]), batch[:, 1:])
        loss.backward()  # type: ignore[no-untyped-call]
        sharded.step()
        if not counted:
            seconds.append(time.perf_counter() - began)
        if number == 0:
            copied, sent = sharded.copied - copied, sharded.wires.bytes - sent
        losses.append(float(ranks.allreduce(np.array([loss.item()]))[0]) / ranks.size)
    state = sharded.state_dict()
    found = {"seconds": seconds, "losses": losses, "plan_s": plan_s, "copied": copied, "sent": sent, "peak": peak[0], "inside": inside[0]}
    elements = sum(bucket.elements for bucket in sharded.buckets())
    found["padding"] = sum(bucket.padded for bucket in sharded.buckets()) / elements - 1
    found["cut"] = sum(bucket.cut_blocks() for bucket in sharded.buckets())
    found["state"] = {name: weight.numpy() for name, weight in state.items()} if ranks.rank == 0 else {}
    return found


def _prepared(ranks: Communicator, sharding: Sharding, work: Mapping[str, Any]) -> tuple[Sharded, float]:
    """The sharded model, and the seconds of laying it out once compiled loops are there."""
    from ..ragged.granularity import weights_of
    from .sharded import divided

    model = TrainableTiny(Shape.of(work["config"]), seed=work["seed"], dtype=getattr(torch, work["dtype"]))
    parts, _ = divided(model)
    weights = [weights_of(dict(shapes), work["blocks"]) for _, shapes, _ in parts]
    align = 128 // next(model.parameters()).element_size()
    sharding.buckets(weights[0][:1], ranks.size, align)
    began = time.perf_counter()
    sharding.groups(weights, ranks.size, align)
    plan_s = time.perf_counter() - began
    made = shard(model, ranks, sharding=sharding, blocks=work["blocks"], align=align, optim=work["optimizer"], lr=work["lr"])
    return made, plan_s


def addresses_inside(sharded: Sharded) -> bool:
    """Whether every gathered weight lies inside the communication buffer of its bucket, so that nothing had to be copied."""
    for group in sharded.groups:
        for shards in group.shards:
            if shards.whole is None or not group.ready:
                continue
            first = shards.whole.data_ptr()
            last = first + shards.whole.nbytes
            if not all(first <= w.data_ptr() < last for w in shards.weights):
                return False
    return True
