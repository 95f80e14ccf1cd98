"""How fast sharded training and the planner are on this machine, beside PyTorch's own FSDP in the same run.

python benchmarks/training_sharding.py [ranks] prints, for the tiny transformer with AdamW on processes over Gloo, the seconds of a step of
every technique and of `torch.distributed.fsdp.fully_shard`, whose steps take turns, and the median ratio of fully_shard's step to each
(above 1 is faster than PyTorch). Then the seconds of planning 1,000 tensors for 10,240 ranks (goal 0.3 s) and of laying out three models.
Last, one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np

ROUNDS, WARM = 40, 5
TECHNIQUES = ("fully_shard", "vescale-fsdp", "fsdp1-flat", "fsdp2-rowwise", "zero3-elementwise", "megatron-fsdp", "ddp")


def turns(ranks: Any) -> dict[str, list[float]]:
    """Seconds of each step of every technique on this rank, one step of each per round."""
    import torch

    from armillary.llm import TrainableTiny
    from armillary.llm.tiny.trainable import cross_entropy
    from armillary.llm.tiny.transformer import BUILT_IN, Shape
    from armillary.training.sharding import shard
    from armillary.training.sharding.arena import sharding

    torch.set_num_threads(1)
    shape = Shape.of(BUILT_IN["tiny-llama"])
    steps = {}
    for name in TECHNIQUES:
        model = TrainableTiny(shape)
        if name == "fully_shard":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (ranks.size,))
            for module in (model.model.embed_tokens, *model.model.layers, model.lm_head, model):
                fully_shard(module, mesh=mesh)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            steps[name] = (model, optimizer.step, optimizer.zero_grad)
        else:
            made = shard(model, ranks, sharding=sharding.make(name))  # type: ignore[arg-type]
            steps[name] = (made, made.step, lambda: None)
    ids = torch.randint(0, shape.vocab, (8, 65), generator=torch.Generator().manual_seed(0))
    each = 8 // ranks.size
    mine = ids[ranks.rank * each : (ranks.rank + 1) * each]
    seconds: dict[str, list[float]] = {name: [] for name in TECHNIQUES}
    for number in range(WARM + ROUNDS):
        # The order changes, so that nobody always comes after the same one.
        for name in np.roll(TECHNIQUES, number).tolist():
            model, step, clear = steps[name]
            ranks.barrier()
            began = time.perf_counter()
            clear()
            cross_entropy(model(mine[:, :-1]), mine[:, 1:]).backward()
            step()
            if number >= WARM:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def training(ranks: int) -> dict[str, float]:
    """Median seconds of a step, and the median ratio of PyTorch's to it, over rounds; the slowest rank counts."""
    from armillary import comm

    ran = comm.run("training_sharding:turns", ranks=ranks, backend="gloo", timeout=300).values
    slowest = {name: np.max([one[name] for one in ran], axis=0) for name in TECHNIQUES}
    found = {}
    for name, seconds in slowest.items():
        found[f"{name}, step"] = statistics.median(seconds.tolist())
        found[f"{name}, ratio"] = statistics.median((slowest["fully_shard"] / seconds).tolist())
    return found


def planning() -> dict[str, float]:
    """Seconds of plans, once the loops are compiled."""
    from armillary.llm import Model
    from armillary.training.sharding import VeScaleFsdp, ragged, shapes_of

    ragged.plan({"w": (64, 64)}, 4, [8, 0])
    found = {}
    shapes = {f"w{i}": (4096, 4096 if i % 3 else 11008) for i in range(1000)}
    weights = ragged.weights_of(shapes, [32, 0])
    began = time.perf_counter()
    plan = ragged.plan_weights(weights, 10240)
    found["1,000 tensors, 10,240 ranks"] = time.perf_counter() - began
    found["1,000 tensors, gap"] = plan.gap
    for name, block in (("llama-3-70b", [32, 0]), ("gpt-oss-120b", [32, 0]), ("deepseek-v3", [128, 128])):
        modules = [ragged.weights_of(module, block) for module in shapes_of(Model.preset(name))]
        began = time.perf_counter()
        VeScaleFsdp().groups(modules, 1024, 64)
        found[f"{name}, 1,024 ranks"] = time.perf_counter() - began
    return found


def main() -> None:
    """Print everything."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    found = {**training(ranks), **planning()}
    for name, value in found.items():
        print(f"{name:40} {value:.4g}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
