"""Batches of every stage, drawn before training begins, so that all techniques meet the same tokens in the same order.

Documents are divided into training (19 of 20) and validation. Workers draw random windows either from all training documents
(`iid`) or from documents of their own (`by-file`): neighbours in the given order, of about equal size, as where each site has its own
projects. The five tasks of `arith-mix` are its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .arith_mix import TASKS, Example, example
from .vocabulary import Vocabulary

Shards = Literal["iid", "by-file"]
Tokens = npt.NDArray[np.int16]
#: The target of a token that the loss leaves out.
NO_TARGET = -1
#: Share of documents for validation, share of rows of task text in pretraining and in mid-training.
HELD_OUT, RAW, MIXED = 0.05, 0.2, 0.5


@dataclass(frozen=True)
class Batches:
    """A stage: inputs and targets [steps, workers, batch, context], and those of validation [rows, context]."""

    name: str
    inputs: Tokens
    targets: Tokens
    val_inputs: Tokens
    val_targets: Tokens

    @property
    def steps(self) -> int:
        """The number of inner steps."""
        return len(self.inputs)

    def plain(self) -> dict[str, Any]:
        """The stage as a dictionary, which travels to other processes."""
        names = ("name", "inputs", "targets", "val_inputs", "val_targets")
        return {name: getattr(self, name) for name in names}


def divided(sizes: Sequence[int], parts: int) -> list[list[int]]:
    """The numbers of documents of these sizes in `parts` runs of neighbours of about equal size; none is empty if there are enough."""
    ends = np.cumsum(sizes)
    middle = ends - np.asarray(sizes) / 2
    owner = np.minimum((middle * parts / ends[-1]).astype(int), parts - 1)
    found = [np.flatnonzero(owner == part).tolist() for part in range(parts)]
    if all(found) or len(sizes) < parts:
        return found
    return [piece.tolist() for piece in np.array_split(np.arange(len(sizes)), parts)]


@dataclass(frozen=True)
class Text:
    """Tokens to draw windows from: one array per worker, or the same for all, and one of validation."""

    by_worker: tuple[Tokens, ...]
    validation: Tokens

    @classmethod
    def of(
        cls, documents: Sequence[bytes], workers: int, shards: Shards, vocabulary: Vocabulary, rng: np.random.Generator, context: int
    ) -> Text:
        """Documents, divided into training and validation at random and among workers."""
        count = len(documents)
        held = set(rng.permutation(count)[: max(1, round(HELD_OUT * count))].tolist()) if count > 1 else set()
        training = [vocabulary.encode(documents[i]) for i in range(count) if i not in held]
        training = [tokens for tokens in training if tokens.size]
        validation = [vocabulary.encode(documents[i]) for i in sorted(held)]
        if count == 1 and training:
            cut = int(training[0].size * (1 - HELD_OUT))
            training, validation = [training[0][:cut]], [training[0][cut:]]
        if shards == "by-file" and training and len(training) < workers:
            # Documents are few, so they are cut: each worker gets a piece of the text.
            training = np.array_split(np.concatenate(training), workers)
        pieces = [list(range(len(training)))] * workers
        if shards == "by-file" and training:
            pieces = divided([tokens.size for tokens in training], workers)
        whole = {tuple(p): np.concatenate([training[i] for i in p]) if p else np.empty(0, np.int16) for p in pieces}
        found = cls(tuple(whole[tuple(p)] for p in pieces), np.concatenate(validation) if validation else np.empty(0, np.int16))
        for what, tokens in (*((f"worker {i}", t) for i, t in enumerate(found.by_worker)), ("validation", found.validation)):
            if tokens.size < context + 1:
                raise InputError(f"found {tokens.size} tokens for {what}; expected at least one context of {context} and 1", where="corpus")
        return found

    def windows(self, worker: int, rows: int, context: int, rng: np.random.Generator) -> Tokens:
        """Random windows [rows, context + 1] of a worker's text; worker −1 is validation."""
        tokens = self.validation if worker < 0 else self.by_worker[worker]
        starts = rng.integers(0, tokens.size - context, rows)
        return tokens[starts[:, None] + np.arange(context + 1)]


def tasks_of(worker: int, workers: int, shards: Shards) -> list[str]:
    """The tasks that a worker sees; worker −1 sees all."""
    every = list(TASKS)
    if shards == "iid" or worker < 0:
        return every
    if workers <= len(every):
        return [every[i] for i in divided([1] * len(every), workers)[worker]]
    return [every[worker % len(every)]]


def task_rows(
    tasks: Sequence[str], rows: int, context: int, vocabulary: Vocabulary, rng: np.random.Generator, *, answers_only: bool,
    held_out: bool = False,
) -> tuple[Tokens, Tokens]:  # fmt: skip
    """Inputs and targets [rows, context] of whole examples, one after the other, until the context is full; the rest is padding."""
    inputs, targets = np.full((rows, context), ord("\n"), np.int16), np.full((rows, context), NO_TARGET, np.int16)
    for row in range(rows):
        at = 0
        while True:
            one = example(tasks[int(rng.integers(len(tasks)))], rng, held_out=held_out)
            prompt, answer = vocabulary.encode(one.prompt.encode()), vocabulary.encode(one.answer.encode())
            both = np.concatenate([prompt, answer])
            if at + both.size > context:
                break
            inputs[row, at : at + both.size] = both
            # Position i predicts token i + 1, so that the answer's first token is the target of the prompt's last.
            first = at + prompt.size - 1 if answers_only else at
            targets[row, first : at + both.size - 1] = both[first - at + 1 :]
            at += both.size
        if not at:
            raise InputError(f"found a context of {context} tokens; expected one that holds an example of every task", where="context")
    return inputs, targets


def prompts(count: int, vocabulary: Vocabulary, rng: np.random.Generator) -> dict[str, tuple[list[Tokens], list[Example]]]:
    """`count` held-out questions of every task, as tokens and as text."""
    found = {}
    for task in TASKS:
        asked = [example(task, rng, held_out=True) for _ in range(count)]
        found[task] = ([vocabulary.encode(one.prompt.encode()) for one in asked], asked)
    return found


def stage(
    name: Literal["pretrain", "mid", "sft"], text: Text, steps: int, workers: int, batch: int, context: int, shards: Shards,
    vocabulary: Vocabulary, rng: np.random.Generator, *, validation: int = 128, raw: float = RAW,
) -> Batches:  # fmt: skip
    """The batches of a stage. `raw` is the share of rows of task text in pretraining, which a user's own corpus does not need."""
    share = {"pretrain": raw, "mid": MIXED, "sft": 1.0}[name]
    parts = [_rows(name, text, steps * batch, share, i, workers, context, shards, vocabulary, rng) for i in range(workers)]
    shape = (steps, workers, batch, context)
    inputs, targets = (np.stack([part[k].reshape(steps, batch, context) for part in parts], 1).reshape(shape) for k in (0, 1))
    val = _rows(name, text, validation, share, -1, workers, context, shards, vocabulary, rng)
    return Batches(name, inputs, targets, *val)


def _rows(
    name: str, text: Text, rows: int, share: float, worker: int, workers: int, context: int, shards: Shards, vocabulary: Vocabulary,
    rng: np.random.Generator,
) -> tuple[Tokens, Tokens]:  # fmt: skip
    """Rows of one worker: windows of text, and examples in a random `share` of the rows."""
    windows = text.windows(worker, rows, context, rng)
    inputs, targets = windows[:, :-1].copy(), windows[:, 1:].copy()
    chosen = np.flatnonzero(rng.random(rows) < share)
    if chosen.size:
        tasks = tasks_of(worker, workers, shards)
        inputs[chosen], targets[chosen] = task_rows(
            tasks, chosen.size, context, vocabulary, rng, answers_only=name == "sft", held_out=worker < 0
        )  # fmt: skip
    return inputs, targets
