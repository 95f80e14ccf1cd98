"""How fast checkpoints are planned and simulated on this machine, and what real ones cost beside PyTorch's own in the same run.

python benchmarks/training_checkpoint.py [ranks] prints seconds of: 1,000 iterations of 32 layers with 64 experts, simulated under MoE-Rckpt
(goal 3 s); and one plan of such an iteration (goal 1 ms). Then it trains a tiny mixture of experts on processes over Gloo: iterations
without checkpoints, with `Rckpt`, with `torch.distributed.checkpoint.async_save` and, where it is installed, with torchsnapshot's
`async_take` take turns in blocks, each with a checkpoint of every iteration. It prints the seconds that each adds to an iteration, the
ratio of Rckpt's to each peer's (goal 0.5), and the share of an iteration that Rckpt's bookkeeping takes (goal 1 %). Last, one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

BLOCKS, EACH = 5, 6
WORK = {
    "hidden": 128,
    "layers": 3,
    "ffn": 512,
    "experts": 8,
    "sequences": 2,
    "tokens": 64,
    "iterations": 0,
    "seed": 1,
    "kill": -1,
    "victim": 0,
}


def simulated() -> dict[str, float]:
    """Seconds of 1,000 simulated iterations, and of one plan."""
    from armillary.llm import Model
    from armillary.training.checkpoint import Machine, MoeRckpt, expert_load, moe_work, plan_chunks

    config = {
        "model_type": "mixtral", "hidden_size": 2048, "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 16,
        "intermediate_size": 1408, "num_local_experts": 64, "num_experts_per_tok": 6, "vocab_size": 32000,
    }  # fmt: skip
    rng = np.random.default_rng(0)
    model, machine = Model.from_config(config, name="large"), Machine.of("dgx-a100", 32)
    load = expert_load(rng, 1000, 32, 64, 4096 * 32 * 6)
    few = moe_work(model, machine, load[:30], ep=32, sequences=1, length=4096, rng=rng)
    MoeRckpt().train(few)
    began, cpu = time.perf_counter(), time.process_time()
    work = moe_work(model, machine, load, ep=32, sequences=1, length=4096, rng=rng)
    MoeRckpt().train(work)
    found = {"1,000 iterations": time.perf_counter() - began, "1,000 iterations, CPU": time.process_time() - cpu}
    began = time.perf_counter()
    for t in range(200):
        plan_chunks(work.spans[t], work.state, machine.alpha_s, machine.rate(2), chunk=32 * 2.0**20)
    return {**found, "plan": (time.perf_counter() - began) / 200}


def _block(comm: Any, name: str, run: Any, folder: str, first: int, own: Any) -> None:
    """Some iterations with a checkpoint each; a checkpoint waits for the one before it, and the last one is waited for."""
    import torch.distributed.checkpoint as dcp

    from armillary.training.checkpoint.runtime import program

    ranks, model, optimizer, ckpt = run
    wait: Any = None
    for number in range(first, first + EACH):
        program._iteration(model, optimizer, ckpt, ranks, WORK, number)
        if ckpt is not None:
            ckpt.step()
        elif name != "none":
            if wait is not None:
                wait()
            state = {f"rank{comm.rank}": {"model": model.state_dict(), "optimizer": optimizer.state_dict()}}
            where = str(Path(folder) / f"{name}-{number}")
            if name == "dcp":
                wait = dcp.async_save(state, checkpoint_id=where, process_group=own).result
            else:
                import torchsnapshot

                wait = torchsnapshot.Snapshot.async_take(where, {"state": torchsnapshot.StateDict(**state)}, pg=own).wait
    if ckpt is not None:
        ckpt._finish()
    elif wait is not None:
        wait()


def turns(comm: Any, folder: str, peers: list[str]) -> dict[str, Any]:
    """Seconds per iteration of blocks with each kind of checkpoint on this rank."""
    import torch

    from armillary.training.checkpoint import Rckpt
    from armillary.training.checkpoint.runtime import program
    from armillary.training.checkpoint.runtime.expert_parallel import Ranks

    torch.set_num_threads(1)
    # Its thread must not meet the collectives of training.
    own = torch.distributed.new_group(backend="gloo")
    runs: dict[str, Any] = {}
    for name in ("none", "rckpt", *peers):
        ranks = Ranks(comm)
        model, optimizer = program._made(ranks, WORK)
        ckpt = None
        if name == "rckpt":
            ckpt = Rckpt(model, optimizer)
            ranks.busy, ranks.routed = ckpt.busy, ckpt.routed
        runs[name] = (ranks, model, optimizer, ckpt)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    number = 0
    for block in range(1 + BLOCKS):
        # The order changes, so that nobody always comes after the same one; the first block warms up.
        for name in np.roll(list(runs), block).tolist():
            comm.barrier()
            began = time.perf_counter()
            _block(comm, name, runs[name], folder, number, own)
            number += EACH
            if block:
                seconds[name].append((time.perf_counter() - began) / EACH)
    ckpt = runs["rckpt"][3]
    ckpt.close()
    state_bytes = ckpt._flat.total
    return {
        "seconds": seconds,
        "bookkeeping_s": ckpt.bookkeeping_s / ((1 + BLOCKS) * EACH),
        "stall_s": ckpt.stall_s / ((1 + BLOCKS) * EACH),
        "bytes": state_bytes,
    }


def main() -> None:
    """Prints everything."""
    from armillary import comm

    found = simulated()
    for what, value in found.items():
        print(f"{what}: {value:.4g} s")
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    peers = ["dcp", *(["torchsnapshot"] if find_spec("torchsnapshot") else [])]
    with tempfile.TemporaryDirectory(prefix="armillary-checkpoint-") as folder:
        ran = comm.run("training_checkpoint:turns", folder, peers, ranks=ranks, backend="gloo", timeout=600).values
    slowest = {name: np.max([one["seconds"][name] for one in ran], axis=0) for name in ran[0]["seconds"]}
    plain = statistics.median(slowest["none"].tolist())
    print(f"an iteration without checkpoints: {plain:.4f} s on {ranks} ranks, {ran[0]['bytes'] / 1e6:.1f} MB of state per rank")
    added = {name: statistics.median((times - slowest["none"]).tolist()) for name, times in slowest.items() if name != "none"}
    for name, value in added.items():
        said = "" if name == "rckpt" else f"; Rckpt's is {added['rckpt'] / value:.2f} of that" if value > 0 else ""
        print(f"{name} adds {1e3 * value:.2f} ms ({100 * value / plain:.1f} %){said}")
    share = max(one["bookkeeping_s"] for one in ran) / plain
    print(
        f"bookkeeping of Rckpt: {100 * share:.2f} % of an iteration; updates wait {1e3 * max(one['stall_s'] for one in ran):.2f} ms for it"
    )
    print(json.dumps({**found, "plain_s": plain, "added_s": added, "bookkeeping_share": share}))


if __name__ == "__main__":
    main()
