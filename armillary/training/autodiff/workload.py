"""One piece of work: a kernel, its arguments, what it is differentiated by, and how much memory that may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .frontend.source import Source, of_function
from .kernels.catalogue import KERNELS, sizes


@dataclass(frozen=True)
class Problem:
    """A kernel to differentiate. The objective is the sum of its result."""

    name: str
    source: Source
    arguments: Mapping[str, Any]
    #: The arguments to differentiate by.
    active: tuple[str, ...]
    #: The argument whose final content is the result; None for what the kernel returns.
    output: str | None
    #: Bytes that tapes, snapshots and buffers may take; None for no limit.
    limit: int | None = None
    #: The built-in kernel, None for one from a file.
    kernel: str | None = None

    def fresh(self) -> dict[str, Any]:
        """The arguments as arrays of their own, which may be changed."""
        return {name: np.array(value, copy=True) if isinstance(value, np.ndarray) else value for name, value in self.arguments.items()}


def built_in(name: str, preset: str, rng: np.random.Generator, limit: int | None = None) -> Problem:
    """A built-in kernel at one of its sizes: tiny, S, M, L or paper."""
    kernel = KERNELS[name]
    arguments = kernel.arguments(sizes()[name][preset], rng)
    active = tuple(one for one, value in arguments.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f")
    return Problem(name, of_function(kernel.function), arguments, active, kernel.output, limit, name)
