"""Adam with decoupled weight decay over lists of tensors.

PyTorch's own imports its compiler when it is made, which costs 1.4 s of CPU time per process: more than many trainings here take.

Adam: A Method for Stochastic Optimization, ICLR 2015; Decoupled Weight Decay Regularization, ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Adam:
    """Adam for tensors whose gradients stand in `.grad`, or are given; `lr` may be changed between steps."""

    def __init__(self, tensors: Iterable[Tensor], lr: float, *, weight_decay: float = 0.0, eps: float = 1e-8) -> None:
        self.tensors = list(tensors)
        self.lr, self.weight_decay, self.eps, self.steps = lr, weight_decay, eps, 0
        self._first = [torch.zeros_like(tensor) for tensor in self.tensors]
        self._second = [torch.zeros_like(tensor) for tensor in self.tensors]

    def clear(self) -> None:
        """Forgets the gradients of the last step."""
        for tensor in self.tensors:
            tensor.grad = None

    @torch.no_grad()
    def step(self, gradients: list[Tensor] | None = None) -> None:
        """Moves the tensors against their gradients; a tensor without one stays, as if its gradient were zero."""
        if gradients is None:
            gradients = [torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in self.tensors]
        self.steps += 1
        if self.weight_decay:
            torch._foreach_mul_(self.tensors, 1 - self.lr * self.weight_decay)
        torch._foreach_lerp_(self._first, gradients, 0.1)
        torch._foreach_mul_(self._second, 0.999)
        torch._foreach_addcmul_(self._second, gradients, gradients, 0.001)
        under = torch._foreach_sqrt(self._second)
        torch._foreach_div_(under, (1 - 0.999**self.steps) ** 0.5)
        torch._foreach_add_(under, self.eps)
        torch._foreach_addcdiv_(self.tensors, self._first, under, -self.lr / (1 - 0.9**self.steps))
