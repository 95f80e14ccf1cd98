"""The corpus `arith-mix`: questions with one right answer, of five kinds, for fine-tuning and for exact-match tests.

    Q: 17+305 A: 322          Q: 86-91 A: -5          Q: 517 mod 7 A: 6          Q: rev hxka A: akxh          Q: c=4 m=9 x=0 m? A: 9

A tenth of all questions, chosen by their text, is never trained on, and tests ask only these.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


@dataclass(frozen=True)
class Example:
    """A prompt that ends before the answer, and the answer with the end of its line."""

    prompt: str
    answer: str

    @property
    def held_out(self) -> bool:
        """Whether this question is for tests only."""
        return zlib.crc32(self.prompt.encode()) % 10 == 0


def _number(rng: np.random.Generator) -> int:
    digits = int(rng.integers(1, 4))
    return int(rng.integers(10 ** (digits - 1) if digits > 1 else 0, 10**digits))


def _add(rng: np.random.Generator) -> tuple[str, str]:
    a, b = _number(rng), _number(rng)
    return f"{a}+{b}", str(a + b)


def _subtract(rng: np.random.Generator) -> tuple[str, str]:
    a, b = _number(rng), _number(rng)
    return f"{a}-{b}", str(a - b)


def _modulo(rng: np.random.Generator) -> tuple[str, str]:
    a, m = _number(rng), int(rng.integers(2, 10))
    return f"{a} mod {m}", str(a % m)


def _reverse(rng: np.random.Generator) -> tuple[str, str]:
    word = bytes(rng.choice(_LETTERS, int(rng.integers(2, 6)))).decode()
    return f"rev {word}", word[::-1]


def _recall(rng: np.random.Generator) -> tuple[str, str]:
    keys = bytes(rng.permutation(_LETTERS)[:3]).decode()
    values = rng.integers(0, 10, 3)
    asked = int(rng.integers(3))
    return " ".join(f"{k}={v}" for k, v in zip(keys, values)) + f" {keys[asked]}?", str(values[asked])


TASKS: dict[str, Callable[[np.random.Generator], tuple[str, str]]] = {
    "add": _add, "subtract": _subtract, "modulo": _modulo, "reverse": _reverse, "recall": _recall,
}  # fmt: skip


def example(task: str, rng: np.random.Generator, *, held_out: bool = False) -> Example:
    """A random question of a task, from those that are trained on or from those that are held out."""
    while True:
        question, answer = TASKS[task](rng)
        found = Example(f"Q: {question} A: ", f"{answer}\n")
        if found.held_out == held_out:
            return found


def chance(examples: list[Example]) -> float:
    """The share of these examples that the most frequent answer gets right."""
    _, counts = np.unique([one.answer for one in examples], return_counts=True)
    return float(counts.max()) / len(examples)
