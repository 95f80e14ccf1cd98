"""The task of a run, in the form in which every backend gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    """A program with its arguments, the number of ranks, the seed of their random numbers, and the chosen collective algorithms."""

    #: A function, or `"module:function"`.
    program: Callable[..., Any] | str
    args: Sequence[Any]
    named: Mapping[str, Any]
    ranks: int
    seed: int
    #: By collective call: the name of an algorithm, or a function.
    choice: Mapping[str, Any]
