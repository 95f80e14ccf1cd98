"""Runs a gradient of ours and times it. Prepared gradients are kept, so that a repeat neither analyses nor compiles again."""

from __future__ import annotations

import time
from collections import OrderedDict

from armillary.arena import NotForThisCase
from armillary.errors import InputError

from ..forwarding.planning import Strategy
from ..pipeline.gradient import Choices, Gradient, gradient
from ..workload import Problem
from .measured import Measured, median_s

KEPT = 8
_kept: OrderedDict[tuple[object, ...], tuple[Gradient, float]] = OrderedDict()


def measure(problem: Problem, strategy: Strategy, choices: Choices) -> Measured:
    """The gradient of a problem by one strategy, within the problem's limit."""
    arguments = problem.fresh()
    shapes = tuple((name, getattr(value, "shape", value)) for name, value in arguments.items())
    key = (problem.name, problem.source.file, shapes, problem.limit, strategy, choices)
    if key not in _kept:
        made = gradient(problem.source, problem.active, memory=problem.limit, strategy=strategy, output=problem.output, choices=choices)
        begin = time.perf_counter()
        try:
            made(**arguments)
        except InputError as error:
            raise NotForThisCase(str(error)) from None
        _kept[key] = (made, time.perf_counter() - begin)
        made.forward(**arguments)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    made, compile_s = _kept[key]
    prepared = made.prepare(made.bind((), arguments))
    _, gradients, peak = prepared.run(arguments, limit=problem.limit)
    # Like JAX's compiled functions, it is timed without the look at types and shapes that chooses it.
    gradient_s = median_s(lambda: prepared.run(arguments, limit=problem.limit))
    forward = made.prepare_forward(made.bind((), arguments))
    forward_s = median_s(lambda: forward.run(arguments))
    return Measured(
        dict(zip(problem.active, gradients)), gradient_s, forward_s, compile_s, peak, 0, prepared.plan.bytes, prepared.plan.seconds,
        prepared.report(),
    )  # fmt: skip
