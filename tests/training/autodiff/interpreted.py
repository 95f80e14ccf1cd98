"""Runs generated gradients as plain Python, so that thousands of programs can be tried without compiling any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from armillary.training.autodiff.forwarding.counting import Balance
from armillary.training.autodiff.frontend.source import Source
from armillary.training.autodiff.pipeline.gradient import Choices, Gradient, gradient

#: Fixed, so that plans do not depend on the machine.
BALANCE = Balance()


def plain(function: Callable[..., Any] | Source, wrt: Any = None, **options: Any) -> Gradient:
    """The gradient of a function, not compiled."""
    made = gradient(function, wrt, balance=BALANCE, **options)
    prepare, prepare_forward = made.prepare, made.prepare_forward

    def uncompiled(bound: Mapping[str, Any]) -> Any:
        found = prepare(bound)
        found.function, found.with_value = (getattr(one, "py_func", one) for one in (found.function, found.with_value))
        return found

    def uncompiled_forward(bound: Mapping[str, Any]) -> Any:
        found = prepare_forward(bound)
        found.function = getattr(found.function, "py_func", found.function)
        return found

    made.prepare, made.prepare_forward = uncompiled, uncompiled_forward  # type: ignore[method-assign]
    return made


def complex_step(run: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> np.ndarray:
    """The gradient of the sum of what `run(**arguments)` returns, element by element, by complex steps."""
    value = np.asarray(arguments[name])
    made = np.zeros(value.shape)
    for place in np.ndindex(*value.shape):
        moved = {key: np.asarray(one).astype(complex)[()] if np.asarray(one).dtype.kind == "f" else one for key, one in arguments.items()}
        if value.shape:
            moved[name][place] += 1e-30j
        else:
            moved[name] = np.complex128(value) + 1e-30j
        made[place] = np.sum(run(**moved)).imag / 1e-30
    return made


def all_parts_off() -> list[Choices]:
    """Every way to switch parts off."""
    return [Choices(a, b, c) for a in (True, False) for b in (True, False) for c in (True, False)]
