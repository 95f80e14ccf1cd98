"""Programs of ranks that are processes, which find them by name."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

from armillary.llm import TrainableTiny
from armillary.llm.tiny.trainable import cross_entropy
from armillary.llm.tiny.transformer import Shape
from armillary.training.sharding import RaggedLoadPlanner, RaggedSavePlanner, Sharded, shard
from armillary.training.sharding.arena import sharding

CONFIG = {
    "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "intermediate_size": 20, "vocab_size": 32,
}  # fmt: skip


def batch(step: int) -> torch.Tensor:
    """Four sequences."""
    return torch.randint(0, 32, (4, 9), generator=torch.Generator().manual_seed(step))


def model(seed: int = 0) -> TrainableTiny:
    """A model in double precision."""
    return TrainableTiny(Shape.of(CONFIG), seed=seed, dtype=torch.float64)


def steps(sharded: Any, rank: int, size: int, count: int) -> None:
    """Train for some steps."""
    each = 4 // size
    for step in range(count):
        ids = batch(step)[rank * each : (rank + 1) * each]
        cross_entropy(sharded(ids[:, :-1]), ids[:, 1:]).backward()
        sharded.step()


def weights(sharded: Sharded) -> dict[str, Any]:
    """All weights as arrays."""
    return {name: value.numpy() for name, value in sharded.state_dict().items()}


def everything(ranks: Any, folder: str) -> dict[str, Any]:
    """Every technique and optimizer, a checkpoint, and PyTorch's own FSDP, in one job."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"fully_shard": fully_shard(ranks)}
    for name in sharding.techniques:
        for optim in ("adamw", "adam8bit"):
            made = shard(model(), ranks, sharding=sharding.make(name), optim=optim, blocks=[4, 0], lr=1e-2, align=4)  # type: ignore[arg-type]
            steps(made, ranks.rank, ranks.size, 4)
            found[f"{name} {optim}"] = weights(made)
            found[f"{name} {optim} bytes"] = [made.copied, made.wires.bytes]
    if folder:
        import torch.distributed.checkpoint as dcp

        made = shard(model(), ranks, blocks=[4, 0], align=4)
        dcp.save(made.local_state_dict(), checkpoint_id=folder, planner=RaggedSavePlanner(made))
        other = shard(model(seed=1), ranks, sharding=sharding.make("fsdp2-rowwise"), align=4)  # type: ignore[arg-type]
        dcp.load(other.local_state_dict(), checkpoint_id=folder, planner=RaggedLoadPlanner(other))
        found["loaded"] = weights(other)
    return found


def fully_shard(ranks: Any) -> dict[str, Any]:
    """The same training with PyTorch's FSDP2; on other backends than Gloo with PyTorch alone."""
    made = model()
    if ranks.native is not None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard as shard_fully

        mesh = init_device_mesh("cpu", (ranks.size,))
        for layer in made.model.layers:
            shard_fully(layer, mesh=mesh)
        shard_fully(made, mesh=mesh)
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-2, weight_decay=0.01)
    each = 4 // ranks.size
    for step in range(4):
        ids = batch(step)[ranks.rank * each : (ranks.rank + 1) * each]
        optimizer.zero_grad()
        cross_entropy(made(ids[:, :-1]), ids[:, 1:]).backward()
        optimizer.step()
    return {name: (w.full_tensor() if hasattr(w, "full_tensor") else w).detach().numpy() for name, w in made.named_parameters()}


def dies(ranks: Any) -> None:
    """Rank 1 is killed in the middle of the backward pass."""
    torch.set_num_threads(1)
    made = shard(model(), ranks, blocks=[4, 0], align=4)
    steps(made, ranks.rank, ranks.size, 1)
    if ranks.rank == 1:
        made.groups[1].shards[0].weights[0].register_post_accumulate_grad_hook(lambda weight: os.kill(os.getpid(), signal.SIGKILL))
    steps(made, ranks.rank, ranks.size, 1)
