"""Offloading on a CUDA device: 10Cache's window beside ZeRO-Infinity's buckets, one layer at a time, and FSDP2 with CPU offload.

python benchmarks/gpu/offload.py [layers] [--share 0.67] [--sequences 8] [--tokens 512] [--only 10cache,fsdp2] prints a table and one JSON
object. Needs PyTorch with CUDA; without Numba the planners run as plain Python. The model is a Llama of 4096 wide layers in bf16 with a
vocabulary of 32,000, 202 million parameters per layer. All runs are of one process, one after another: seconds of forward and backward, of
the update (AdamW on the host, 32-bit master copies) and of waiting for parameters, as medians; the peak of the GPU's memory; and whether
the losses of the first three steps are equal. FSDP2 keeps 32-bit parameters in the host and computes in bf16, with one group per layer.
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib.util
import json
import os
import statistics
import sys
import time
import types
from typing import Any

import torch

if importlib.util.find_spec("numba") is None:
    # Loops that are not compiled give the same schedules, more slowly.
    plain: Any = types.ModuleType("armillary.kernels")
    plain.loop = plain.kernel = plain.part = plain.parallel_loop = lambda function=None, **options: function or (lambda inner: inner)
    sys.modules["armillary.kernels"] = plain

from armillary.llm.tiny.trainable import TrainableTiny
from armillary.llm.tiny.transformer import Shape
from armillary.training.offload.layer_to_layer import LayerToLayer
from armillary.training.offload.lru import Lru
from armillary.training.offload.runtime.offloader import Offloader
from armillary.training.offload.tencache import TenCache
from armillary.training.offload.zero_infinity import ZeroInfinity

HIDDEN, FFN, VOCAB, HEADS = 4096, 11008, 32_000, 32
WARM, TIMED = 3, 5


def shape(layers: int, tokens: int) -> Shape:
    """A Llama of this many layers."""
    return Shape(HIDDEN, layers, HEADS, HEADS, HIDDEN // HEADS, FFN, VOCAB, 1e4, 1e-5, tokens, False)


def batch(number: int, sequences: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids, the same for every run."""
    ids = torch.randint(0, VOCAB, (sequences, tokens + 1), generator=torch.Generator().manual_seed(number)).cuda()
    return ids[:, :-1], ids[:, 1:]


def timed(model: Any, optimizer: Any, sequences: int, tokens: int, off: Offloader | None = None) -> dict[str, Any]:
    """Medians of the passes, the update and the waiting, and the first losses."""
    passes, updates, waits, losses = [], [], [], []
    torch.cuda.reset_peak_memory_stats()
    for number in range(WARM + TIMED):
        ids, targets = batch(number, sequences, tokens)
        optimizer.zero_grad()
        if off is not None:
            off.tiers.take_stall()
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(model(ids).float().flatten(0, 1), targets.flatten())
        loss.backward()
        torch.cuda.synchronize()
        middle = time.perf_counter()
        waited = off.tiers.take_stall() if off is not None else 0.0
        optimizer.step()
        torch.cuda.synchronize()
        if number < WARM:
            losses.append(loss.item())
        else:
            passes.append(middle - start)
            updates.append(time.perf_counter() - middle)
            waits.append(waited)
    return {
        "passes_s": statistics.median(passes), "update_s": statistics.median(updates), "stall_s": statistics.median(waits),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30, "losses": losses,
    }  # fmt: skip


def offloaded(base: TrainableTiny, technique: Any, args: argparse.Namespace, share: float) -> dict[str, Any]:
    """One of the arena's techniques, with a share of the parameters on the device."""
    model = copy.deepcopy(base)
    total = sum(p.numel() * p.element_size() for p in model.parameters())
    with Offloader(model, gpu_bytes=share * total, device="cuda", technique=technique) as off:
        optimizer = off.optimizer(torch.optim.AdamW, lr=1e-4, fused=True)
        found = timed(model, optimizer, args.sequences, args.tokens, off)
        return found | {"parameters_peak_gib": off.peak_bytes / 2**30, "moved_gb": {k: v / 1e9 for k, v in off.tiers.moved.items()}}


def resident(base: TrainableTiny, args: argparse.Namespace) -> dict[str, Any]:
    """All parameters and the optimizer on the device: what there is to lose."""
    model = copy.deepcopy(base).cuda()
    return timed(model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), args.sequences, args.tokens)


def fsdp2(base: TrainableTiny, args: argparse.Namespace) -> dict[str, Any]:
    """PyTorch's own: one rank, parameters in pinned host memory, one group per layer."""
    import torch.distributed as dist
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29571")
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl", rank=0, world_size=1)
    model = copy.deepcopy(base).float()
    how = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
           "offload_policy": CPUOffloadPolicy(pin_memory=True)}  # fmt: skip
    for layer in model.model.layers:
        fully_shard(layer, **how)
    fully_shard(model, **how)
    try:
        return timed(model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), args.sequences, args.tokens)
    except (RuntimeError, NotImplementedError) as error:
        print("fsdp2 without the fused update:", error)
        return timed(model, torch.optim.AdamW(model.parameters(), lr=1e-4), args.sequences, args.tokens)


def main() -> None:
    """Runs everything in turns and prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("layers", nargs="?", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.67)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    base = TrainableTiny(shape(args.layers, args.tokens), seed=1, dtype=torch.bfloat16)
    runs = {
        "resident": lambda: resident(base, args),
        "fsdp2": lambda: fsdp2(base, args),
        "10cache": lambda: offloaded(base, TenCache(slack=0), args, args.share),
        "10cache-third": lambda: offloaded(base, TenCache(slack=0), args, 0.33),
        "zero-infinity": lambda: offloaded(base, ZeroInfinity(), args, args.share),
        "lru": lambda: offloaded(base, Lru(), args, args.share),
        "layer-to-layer": lambda: offloaded(base, LayerToLayer(), args, args.share),
    }
    found: dict[str, Any] = {}
    for name, run in runs.items():
        if args.only and name not in args.only.split(","):
            continue
        try:
            found[name] = run()
        except (RuntimeError, ImportError, AttributeError) as error:  # One that cannot run must not cost the others.
            found[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        gc.collect()  # Hooks and modules refer to each other, and what a run leaves behind would count as the next one's peak.
        torch.cuda.empty_cache()
        print(name, found[name], flush=True)
    peer = found.get("fsdp2", {}).get("passes_s")
    print(f"{'':18} {'passes':>9} {'update':>9} {'waiting':>9} {'peak':>9}  fsdp2's passes over these")
    for name, row in found.items():
        if "passes_s" in row:
            ratio = f"{peer / row['passes_s']:.2f}" if peer else "–"
            print(f"{name:18} {row['passes_s']:8.3f}s {row['update_s']:8.3f}s {row['stall_s']:8.3f}s {row['peak_gib']:6.1f}GiB  {ratio}")
    losses = {name: row["losses"] for name, row in found.items() if "losses" in row}
    ours = [value for name, value in losses.items() if name not in ("resident", "fsdp2")]
    print("losses of the offloaded runs are equal:", all(value == ours[0] for value in ours) if ours else "none was run")
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "layers": args.layers, "share": args.share,
                      "sequences": args.sequences, "tokens": args.tokens, "runs": found}))  # fmt: skip


if __name__ == "__main__":
    main()
