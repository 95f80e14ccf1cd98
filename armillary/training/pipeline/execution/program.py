"""What every process of a real pipeline does: builds its stages, loads the schedule into torch's runtime, and steps.

Stages either sleep for their seconds, so that four ranks on two cores are as good as four machines, or train the tiny transformer of
`armillary.llm`.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

#: Sizes of the tiny transformer: vocabulary, width, heads, tokens of a sequence, sequences of a micro-batch.
VOCABULARY, WIDTH, HEADS, TOKENS, SEQUENCES = 32, 16, 2, 8, 2


def sleeping(comm: Any, csv: str, micros: int, stages: int, seconds: Any, steps: int) -> list[float]:
    """Wall seconds of each step but the first, which warms up, on stages that sleep."""
    import torch

    seconds = np.asarray(seconds)
    mine = _stages(csv, comm.rank)
    examples = {s: (torch.zeros(1, 4, requires_grad=s > 0), torch.zeros(1, 4, requires_grad=True)) for s in mine}
    schedule = _schedule(csv, micros, stages, {s: _sleeper(s == 0, *seconds[:, s]) for s in mine}, examples, _sum)
    first, last = 0 in mine, stages - 1 in mine
    taken = []
    for _ in range(steps + 1):
        torch.distributed.barrier()
        began = time.perf_counter()
        given = (torch.ones(micros, 4),) if first else ()
        schedule.step(*given, **({"target": torch.zeros(micros, 4), "losses": []} if last else {}))
        torch.distributed.barrier()
        taken.append(time.perf_counter() - began)
    return taken[1:]


def training(comm: Any, csv: str, micros: int, stages: int, steps: int, rate: float, seed: int) -> dict[str, Any]:
    """Losses of each step (on the last stage's rank), and every parameter's first gradient, by stage and name."""
    import torch

    mine = _stages(csv, comm.rank)
    parts = parts_of(stages, seed)
    modules = {s: parts[s] for s in mine}
    schedule = _schedule(csv, micros, stages, modules, {s: _examples(s, stages) for s in mine}, loss_of(micros))
    first, last = 0 in mine, stages - 1 in mine
    words, wanted = batch(micros, seed)
    losses, gradients = [], {}
    for step in range(steps):
        found: list[Any] = []
        for part in modules.values():
            part.zero_grad()
        schedule.step(*((words,) if first else ()), **({"target": wanted, "losses": found} if last else {}))
        if last:
            losses.append(float(sum(each.detach() for each in found)))
        for s, part in modules.items():
            for name, parameter in part.named_parameters():
                if step == 0:
                    gradients[f"{s}.{name}"] = parameter.grad.numpy().copy()
                with torch.no_grad():
                    parameter -= rate * parameter.grad
    return {"losses": losses, "gradients": gradients}


def batch(micros: int, seed: int) -> tuple[Any, Any]:
    """Words and the words after them, drawn by a rule that can be learned (the next word is a fixed permutation)."""
    import torch

    rng = np.random.default_rng(seed)
    rule = rng.permutation(VOCABULARY)
    words = rng.integers(0, VOCABULARY, (micros * SEQUENCES, TOKENS))
    return torch.from_numpy(words), torch.from_numpy(rule[words])


def parts_of(stages: int, seed: int) -> list[Any]:
    """The tiny transformer in float64, cut into stages of one layer; the first has the embedding too, and the last the head."""
    import torch
    from torch import nn

    from armillary.llm import TrainableTiny
    from armillary.llm.tiny.transformer import Shape

    shape = Shape(
        hidden=WIDTH, layers=stages, heads=HEADS, kv_heads=1, head_dim=WIDTH // HEADS, ffn=4 * WIDTH, vocab=VOCABULARY, theta=1e4, eps=1e-5,
        positions=TOKENS, tied=False,
    )  # fmt: skip
    embedding, *layers, head = TrainableTiny(shape, style="llama", seed=seed, dtype=torch.float64).pieces()
    cut = [[layer] for layer in layers]
    cut[0].insert(0, embedding)
    cut[-1].append(head)
    return [nn.Sequential(*pieces) for pieces in cut]


def loss_of(micros: int) -> Any:
    """A micro-batch's share of the mean cross entropy of the batch: all have equally many tokens, so that the shares add up to it."""
    from armillary.llm.tiny.trainable import cross_entropy

    return lambda logits, targets: cross_entropy(logits, targets) / micros


def _examples(stage: int, stages: int) -> tuple[Any, Any]:
    """What a stage of the tiny transformer takes and gives for one micro-batch."""
    import torch

    def hidden(width: int) -> Any:
        return torch.zeros(SEQUENCES, TOKENS, width, dtype=torch.float64, requires_grad=True)

    words = torch.zeros(SEQUENCES, TOKENS, dtype=torch.int64)
    return hidden(WIDTH) if stage > 0 else words, hidden(WIDTH if stage < stages - 1 else VOCABULARY)


def _sum(output: Any, _: Any) -> Any:
    return output.sum()


def _sleeper(first: bool, forward: float, backward_input: float, backward_weight: float) -> Any:
    """A module whose passes sleep, the gradients of input and weight each for its own seconds."""
    import torch

    class Input(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            time.sleep(forward)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            time.sleep(backward_input)
            return grads[0]

    class Weight(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            time.sleep(backward_weight)
            return grads[0]

    class Sleeper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))
            # Without it nothing would ask for the gradient of the first stage's input.
            self.start = torch.nn.Parameter(torch.zeros(4)) if first else None

        def forward(self, x: Any) -> Any:
            begun = x if self.start is None else x + self.start
            return Input.apply(begun) * Weight.apply(self.weight)  # type: ignore[no-untyped-call]

    return Sleeper()


def _schedule(csv: str, micros: int, stages: int, modules: dict[int, Any], examples: dict[int, tuple[Any, Any]], loss: Any) -> Any:
    """This rank's stages in torch's runtime, with the schedule loaded.

    `examples` are the input and output of each stage; torch passes gradients on only where these ask for them.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    group = dist.new_group()
    built = [
        PipelineStage(part, s, stages, torch.device("cpu"), input_args=(examples[s][0],), output_args=(examples[s][1],), group=group)
        for s, part in modules.items()
    ]
    schedule = _PipelineScheduleRuntime(built, micros, loss_fn=loss, scale_grads=False)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.csv"
        path.write_text(csv)
        schedule._load_csv(str(path), format="compute_only")
    return schedule


def _stages(csv: str, rank: int) -> list[int]:
    """The stages in a rank's row of the schedule file."""
    return sorted({int(stage) for stage in re.findall(r"(\d+)[FIWB]\d+", csv.splitlines()[rank])})
