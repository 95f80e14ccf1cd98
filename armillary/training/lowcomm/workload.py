"""What is trained: a small transformer in nanochat's style, the batches of each stage, the workers, and the network between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from armillary.errors import InputError

from .corpora.arith_mix import TASKS, Example, chance
from .corpora.batches import RAW, Batches, Shards, Text, Tokens, prompts, stage
from .corpora.vocabulary import Vocabulary, learned
from .cost.wall_clock import Network

#: The most tokens that are drawn before training begins, which bounds what options can ask for.
MOST_TOKENS = 1 << 28
#: The most weights of all replicas together.
MOST_WEIGHTS = 1 << 31
#: What a worker runs.
PROGRAM = "armillary.training.lowcomm.workers.training:train"


@dataclass(frozen=True)
class Sizes:
    """The model and how it is trained."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 64
    batch: int = 8
    workers: int = 4
    every: int = 30
    #: Inner steps of pretraining, mid-training and fine-tuning; the last two may be 0.
    steps: tuple[int, int, int] = (400, 0, 0)
    shards: Shards = "iid"
    optimizer: Literal["adamw", "muon"] = "adamw"
    schedule: Literal["cosine", "warmdown"] = "cosine"
    #: A factor on the inner learning rate.
    lr: float = 1.0
    #: Rows of validation and of the comparison of features, and test prompts per task.
    validation: int = 128
    compared: int = 256
    prompts: int = 512
    device: str = "cpu"

    def check(self) -> None:
        """Raise where sizes do not go together or ask for more tokens than fit."""
        if self.every < 1:
            raise InputError(f"found rounds of {self.every} steps; expected at least 1", where="every")
        if self.width % (2 * self.heads):
            said = f"found a width of {self.width} for {self.heads} heads"
            raise InputError(f"{said}; expected a multiple of {2 * self.heads}", where="width")
        tokens = sum(self.steps) * self.workers * self.batch * self.context
        if tokens > MOST_TOKENS:
            raise InputError(f"found work of {tokens:,} tokens; expected at most {MOST_TOKENS:,}", where="steps")
        weights = self.workers * self.layers * 12 * self.width**2
        if weights > MOST_WEIGHTS:
            raise InputError(f"found replicas of {weights:,} weights; expected at most {MOST_WEIGHTS:,}", where="width")


@dataclass(frozen=True)
class Training:
    """One piece of work."""

    sizes: Sizes
    stages: tuple[Batches, ...]
    vocabulary: Vocabulary
    #: The seed of the first weights.
    seed: int
    #: Held-out text [rows, context] on which features are compared.
    compared: Tokens
    #: Held-out questions by task, as tokens and as text.
    questions: Mapping[str, tuple[list[Tokens], list[Example]]] = field(default_factory=dict)
    network: Network = field(default_factory=Network)

    def plain(self) -> dict[str, Any]:
        """The work of a worker, in values that travel to other processes."""
        s = self.sizes
        names = ("width", "layers", "heads", "context", "every", "optimizer", "schedule", "device")
        found = {name: getattr(s, name) for name in names}
        stages = [one.plain() for one in self.stages]
        return {**found, "vocabulary": self.vocabulary.size, "seed": self.seed, "lr": s.lr, "stages": stages}

    @property
    def chance(self) -> float:
        """The accuracy of the most frequent answer, as a mean over tasks."""
        return float(np.mean([chance(asked) for _, asked in self.questions.values()]))


def training(
    documents: Sequence[bytes], sizes: Sizes, rng: np.random.Generator, *, merges: int = 0, raw: float = RAW, network: Network | None = None
) -> Training:
    """The work of training on these documents; `raw` is the share of rows of task text in pretraining, and `merges` of byte pairs."""
    sizes.check()
    vocabulary = learned(b"\n".join(documents), merges) if merges else Vocabulary()
    text = Text.of(documents, sizes.workers, sizes.shards, vocabulary, rng, sizes.context)
    names: tuple[Literal["pretrain", "mid", "sft"], ...] = ("pretrain", "mid", "sft")
    s = sizes
    stages = tuple(
        stage(name, text, steps, s.workers, s.batch, s.context, s.shards, vocabulary, rng, validation=s.validation, raw=raw)
        for name, steps in zip(names, s.steps) if steps
    )  # fmt: skip
    compared = text.windows(-1, sizes.compared, sizes.context, rng)[:, :-1]
    asked = prompts(sizes.prompts, vocabulary, rng) if sizes.steps[2] else {}
    return Training(sizes, stages, vocabulary, int(rng.integers(1 << 31)), compared, asked, network or Network())


__all__ = ["MOST_TOKENS", "PROGRAM", "TASKS", "Sizes", "Training", "training"]
