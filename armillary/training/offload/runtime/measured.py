"""Real training of a tiny transformer whose parameters do not fit the memory that they are given: RAM and files, no GPU needed."""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from typing import Any

from armillary.extras import need
from armillary.timing import Stopwatch


@dataclass(frozen=True)
class RealWork:
    """A tiny transformer of this shape, `batch` × `tokens` tokens per iteration, and `share` of its parameters in RAM.

    Iterations are timed after the second: the first is recorded, and the second fills the memory that the schedule asks for.
    """

    hidden: int
    layers: int
    ffn: int
    vocab: int
    batch: int
    tokens: int
    share: float
    iterations: int
    seed: int


def measure(technique: Any, work: RealWork) -> dict[str, float]:
    """Seconds per iteration and seconds of waiting, as medians over the timed iterations."""
    torch = need("torch")
    from armillary.llm import TrainableTiny
    from armillary.llm.tiny.transformer import Shape

    from .offloader import Offloader

    heads = max(1, work.hidden // 32)
    shape = Shape(work.hidden, work.layers, heads, heads, work.hidden // heads, work.ffn, work.vocab, 1e4, 1e-5, work.tokens, False)
    model = TrainableTiny(shape, seed=work.seed)
    rng = torch.Generator().manual_seed(work.seed)
    total = sum(p.numel() * p.element_size() for p in model.parameters())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    seconds, waits = [], []
    try:
        with (
            tempfile.TemporaryDirectory(prefix="armillary-offload-") as folder,
            Offloader(model, gpu_bytes=work.share * total, nvme_dir=folder, technique=technique, fast="ram", slow="disk") as off,
        ):
            optimizer = off.optimizer(torch.optim.AdamW, lr=1e-3)
            for number in range(work.iterations + 2):
                ids = torch.randint(0, work.vocab, (work.batch, work.tokens + 1), generator=rng)
                off.tiers.take_stall()
                with Stopwatch() as watch:
                    optimizer.zero_grad()
                    model.loss(ids[:, :-1], ids[:, 1:]).backward()
                    waited = off.tiers.take_stall()
                    optimizer.step()
                if number >= 2:
                    seconds.append(watch.seconds)
                    waits.append(waited)
    finally:
        torch.set_num_threads(threads)
    return {"iteration_s": statistics.median(seconds), "stall_s": statistics.median(waits)}
