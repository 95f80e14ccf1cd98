"""How fast rounds are on this machine, beside PyTorch's own data parallelism and model averaging in the same run.

python benchmarks/training_lowcomm.py [ranks] trains the arena's model on processes over Gloo. In each turn every technique makes one
round of ten inner steps. It prints the seconds of a round on the slowest rank (the median over turns), and the median of the ratios of
PyTorch's round to each: `DistributedDataParallel` for the technique `ddp`, and `PeriodicModelAverager` for averaging and DiLoCo (above 1
is faster than PyTorch). Last, one JSON object.

Where torchft is installed (`pip install torchft==0.2.0`), the weights of `torchft.local_sgd.DiLoCo` are compared with ours too, whole and
in two fragments. Its manager needs a coordinator of its own, so an object that averages over our ranks takes its place.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from typing import Any

import numpy as np

EVERY, TURNS, WARM = 10, 12, 2
PEERS = {
    "ddp": "DistributedDataParallel", "local-sgd": "PeriodicModelAverager", "diloco": "PeriodicModelAverager",
    "streaming-diloco": "PeriodicModelAverager",
}  # fmt: skip


def turns(ranks: Any) -> dict[str, list[float]]:
    """Seconds of each round of every technique on this rank."""
    import torch

    from armillary.llm.tiny.trainable import cross_entropy
    from armillary.training.lowcomm import Ddp, Diloco, LocalSgd, StreamingDiloco
    from armillary.training.lowcomm.workers.inner import Inner
    from armillary.training.lowcomm.workers.training import made

    torch.set_num_threads(1)
    facts = {"width": 64, "layers": 2, "heads": 4, "vocabulary": 256, "context": 64, "seed": 0}
    ids = torch.randint(0, 256, (EVERY, 8, 65), generator=torch.Generator().manual_seed(ranks.rank))
    rounds: dict[str, Any] = {}
    for name, technique in {"ddp": Ddp(), "local-sgd": LocalSgd(), "diloco": Diloco(), "streaming-diloco": StreamingDiloco()}.items():
        inner = Inner(made(facts), 10**6)
        rounds[name] = (inner.model, technique.scheme("pretrain", inner, EVERY, ranks).step)
    model = torch.nn.parallel.DistributedDataParallel(made(facts), gradient_as_bucket_view=True)
    rounds["DistributedDataParallel"] = (model, _stepper(model))
    averaged = made(facts)
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    averager = PeriodicModelAverager(period=EVERY)
    rounds["PeriodicModelAverager"] = (averaged, _stepper(averaged, lambda: averager.average_parameters(averaged.parameters())))
    seconds: dict[str, list[float]] = {name: [] for name in rounds}
    for turn in range(WARM + TURNS):
        # The order changes, so that nobody always comes after the same one.
        for name in np.roll(list(rounds), turn).tolist():
            net, step = rounds[name]
            ranks.barrier()
            began = time.perf_counter()
            for batch in ids:
                cross_entropy(net(batch[:, :-1]), batch[:, 1:]).backward()
                step()
            if turn >= WARM:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def _stepper(model: Any, after: Any = None) -> Any:
    """A plain loop's inner step: clip, AdamW, clear, and what comes after it."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, (0.9, 0.95), weight_decay=0.1, fused=True)

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        if after is not None:
            after()

    return step


def training(ranks: int) -> dict[str, float]:
    """Median seconds of a round, and the median ratio of PyTorch's to it, over turns; the slowest rank counts."""
    from armillary import comm

    ran = comm.run("training_lowcomm:turns", ranks=ranks, backend="gloo", timeout=300).values
    slowest = {name: np.max([one[name] for one in ran], axis=0) for name in ran[0]}
    found = {f"{name}, round": statistics.median(seconds.tolist()) for name, seconds in slowest.items()}
    for name, peer in PEERS.items():
        found[f"{name}, {peer} over it"] = statistics.median((slowest[peer] / slowest[name]).tolist())
    return found


class Stand:
    """What torchft's DiLoCo asks of a manager, over ranks of `armillary.comm`: averages, and a commit of every round."""

    _use_async_quorum = False

    def __init__(self, ranks: Any) -> None:
        self.ranks, self.commits = ranks, 0

    def allreduce(self, tensor: Any, should_quantize: bool = False) -> Any:
        """Average a tensor in place; it is done when the call returns."""
        import torch

        tensor.copy_(torch.from_numpy(self.ranks.allreduce(tensor.numpy().copy(), order="rank")) / self.ranks.size)
        return type("Done", (), {"wait": lambda self: None})()

    def should_commit(self) -> bool:
        """Every round counts."""
        self.commits += 1
        return True

    def current_step(self) -> int:
        """The rounds so far."""
        return self.commits

    def start_quorum(self) -> None:
        """Everybody is here."""

    def register_state_dict_fn(self, key: str, load: Any, save: Any) -> None:
        """No checkpoints are taken."""

    disallow_state_dict_read = allow_state_dict_read = start_quorum


def semantics(ranks: Any, fragments: int, steps: int) -> float:
    """The largest distance between weights that torchft's DiLoCo and ours give after some steps, over their own largest change."""
    import torch
    from torchft.local_sgd import DiLoCo as Peer  # type: ignore[import-not-found]

    from armillary.training.lowcomm import StreamingDiLoCo

    def net() -> Any:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Linear(16, 4))

    ours, theirs = net(), net()
    mine, other = (torch.optim.AdamW(one.parameters(), lr=1e-2) for one in (ours, theirs))
    rounds = StreamingDiLoCo(ours, mine, 6, ranks, fragments=fragments, delay=0, mix=0.25 if fragments > 1 else 0.0)
    parts = list(theirs) if fragments > 1 else [theirs]
    outer = [torch.optim.SGD(part.parameters(), lr=0.7, momentum=0.9, nesterov=True) for part in parts]
    peer = Peer(Stand(ranks), parts, other, outer, 6, fragment_update_alpha=0.25 if fragments > 1 else 0.0)
    with peer:
        for step in range(steps):
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(10 * step + ranks.rank))
            for model, optimizer in ((ours, mine), (theirs, other)):
                optimizer.zero_grad()
                (model(x).sum(1) - x.square().sum(1)).square().mean().backward()
                optimizer.step()
            rounds.step()
    start = torch.cat([p.detach().reshape(-1) for p in net().parameters()])
    one, two = (torch.cat([p.detach().reshape(-1) for p in model.parameters()]) for model in (ours, theirs))
    return float((one - two).abs().max() / (one - start).abs().max())


def main() -> None:
    """Print everything."""
    from armillary import comm

    found = training(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    if importlib.util.find_spec("torchft") is not None:
        for fragments, name in ((1, "whole"), (2, "two fragments")):
            found[f"distance to torchft, {name}"] = comm.run(semantics, fragments, 24, ranks=2).values[0]
    for name, value in found.items():
        print(f"{name:60} {value:.4g}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
