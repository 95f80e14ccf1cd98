"""Muon (Jordan, 2024): momentum whose matrices are made orthogonal before they are applied.

PyTorch's own Muon runs the Newton–Schulz steps in bfloat16. Here their type is a parameter: bfloat16 gives PyTorch's bits, float32 and
float64 what the mathematics says. `muon_update` takes one matrix, so that a technique may run it wherever it holds that matrix whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from armillary.errors import InputError, unknown

#: The coefficients of one Newton–Schulz step, X ← aX + (bA + cA²)X with A = XXᵀ.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
#: How the learning rate depends on the shape of a matrix: √max(1, rows/columns), or 0.2·√max(rows, columns), which has AdamW's size.
Scaling = Literal["original", "match_rms_adamw"]


def orthogonalised(matrix: Tensor, *, steps: int = 5, dtype: torch.dtype = torch.bfloat16, eps: float = 1e-7) -> Tensor:
    """Return the matrix [rows, columns] with its singular values brought near 1 by Newton–Schulz steps in `dtype`."""
    if matrix.dim() != 2:
        raise InputError(f"found a tensor of {matrix.dim()} dimensions; expected a matrix", where="Muon")
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(dtype).T if tall else matrix.to(dtype)
    # The order of operations is PyTorch's, because bfloat16 tells orders apart.
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def muon_update(
    gradient: Tensor, velocity: Tensor, *, momentum: float = 0.95, nesterov: bool = True, dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """Take a gradient [rows, columns] into its velocity, in place, and return the direction of the step, still without a learning rate."""
    velocity.lerp_(gradient, 1 - momentum)
    return orthogonalised(gradient.lerp(velocity, momentum) if nesterov else velocity, dtype=dtype)


def scaled(lr: float, shape: Iterable[int], scaling: Scaling) -> float:
    """Return the learning rate for a matrix of this shape."""
    rows, columns = shape
    return lr * (0.2 * math.sqrt(max(rows, columns)) if scaling == "match_rms_adamw" else math.sqrt(max(1, rows / columns)))


class Muon(torch.optim.Optimizer):
    """Muon for matrices; other parameters belong to another optimiser."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        *,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        scaling: Scaling = "original",
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        if scaling not in get_args(Scaling):
            raise unknown("scaling", scaling, get_args(Scaling), where="Muon")
        how = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "scaling": scaling, "dtype": dtype}
        super().__init__(params, how)
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.dim() != 2:
                    raise InputError(f"found a parameter of shape {tuple(weight.shape)}; expected matrices", where="Muon")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step with the gradients that are there."""
        answer = None
        if closure is not None:
            with torch.enable_grad():
                answer = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight.grad)
                direction = muon_update(
                    weight.grad, state["momentum_buffer"], momentum=group["momentum"], nesterov=group["nesterov"], dtype=group["dtype"]
                )
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(direction, alpha=-scaled(group["lr"], weight.shape, group["scaling"]))
        return answer
