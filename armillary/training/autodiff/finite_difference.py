"""Central differences: two runs of the kernel for every element of every active argument.

No analysis and no memory, and the usual answer to "is the gradient right?" (Nocedal and Wright, Numerical Optimization, 2006). Errors are
those of the step, about the two thirds power of the rounding error. It declines where it would take too long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arena import NotForThisCase, Technique
from armillary.errors import InputError
from armillary.parameters import parameter

from .pipeline.gradient import gradient
from .running.measured import CALLS, Measured, median_s
from .workload import Problem


@dataclass(frozen=True)
class FiniteDifference(Technique):
    """Two runs of the compiled kernel per element. Nocedal and Wright, 2006."""

    step: float = parameter(6e-6, "the step, relative to the element's size where that is above 1", range=(1e-12, 1e-1))
    most_operations: float = parameter(2e9, "kernel runs times operations per run beyond which it declines", range=(1.0, None))

    def measure(self, problem: Problem) -> Measured:
        """Differentiates a problem element by element."""
        from .forwarding.counting import cost

        arguments = problem.fresh()
        begin = time.perf_counter()
        made = gradient(problem.source, problem.active, output=problem.output)
        try:
            made.forward(**arguments)
        except InputError as error:
            raise NotForThisCase(str(error)) from None
        forward = made.prepare_forward(made.bind((), arguments))
        program = forward.program
        elements = sum(problem.arguments[name].size for name in problem.active)
        work = [cost(one, (), program.arrays) for one in program.root]
        operations = 2.0 * elements * (1000.0 + sum(one.flops + one.blas for one in work))
        if operations * CALLS > self.most_operations * CALLS:
            raise NotForThisCase(f"{2 * elements} runs of the kernel, {operations:.1e} operations; at most {self.most_operations:.1e}")
        compile_s = time.perf_counter() - begin
        found: dict[str, np.ndarray[Any, Any]] = {}

        def all_elements() -> None:
            for name in problem.active:
                found[name] = self._by(forward.run, arguments, name)

        gradient_s = median_s(all_elements)
        return Measured(found, gradient_s, median_s(lambda: forward.run(arguments)), compile_s, 0.0)

    def _by(self, forward: Callable[[Any], Any], arguments: dict[str, Any], name: str) -> np.ndarray[Any, Any]:
        value = arguments[name]
        made = np.zeros_like(value)
        for place in range(value.size):
            before = value.flat[place]
            step = self.step * max(1.0, abs(float(before)))
            value.flat[place] = before + step
            above = float(np.sum(forward(arguments), dtype=float))
            value.flat[place] = before - step
            below = float(np.sum(forward(arguments), dtype=float))
            value.flat[place] = before
            made.flat[place] = (above - below) / (2 * step)
        return made
