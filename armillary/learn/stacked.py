"""Many small models of one shape trained at once: their weights stand in stacked arrays, and one vectorised gradient moves them all.

A federation's clients, or the members of an ensemble, are too small to keep a core busy one by one. `torch.func.vmap` over the
gradient turns n small steps into one large one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from armillary.errors import InputError

from .determinism import deterministic
from .losses import Loss
from .optimiser import Adam


class StackedTrainer:
    """Trains `n` models that `factory(i)` makes, each on its own batches, with equal shapes.

    optimiser: "sgd", "momentum" (0.9) or "adamw", written on stacked arrays. `stacked=False` loops over the models instead and gives the
    same weights to 1e-5; so do models that vmap cannot take, such as those that contain recurrent layers of PyTorch.
    """

    def __init__(
        self, factory: Callable[[int], nn.Module], n: int, loss: Loss, *, optimiser: Literal["sgd", "momentum", "adamw"] = "adamw",
        lr: float = 1e-3, weight_decay: float = 0.0, stacked: bool = True,
    ) -> None:  # fmt: skip
        if n < 1:
            raise InputError(f"found {n} models; expected at least one")
        self.models = [factory(i) for i in range(n)]
        self.n, self.lr, self.weight_decay, self.optimiser = n, lr, weight_decay, optimiser
        held, self._buffers = stack_module_state(self.models)
        #: The weights of all models, by name, stacked on axis 0.
        self.parameters: dict[str, Tensor] = {name: value.detach().clone() for name, value in held.items()}
        self._adam = Adam(self.parameters.values(), lr, weight_decay=weight_decay) if optimiser == "adamw" else None
        self._velocity = [torch.zeros_like(value) for value in self.parameters.values()]
        plan = self.models[0]

        def of_one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
            return loss(functional_call(plan, (parameters, buffers), inputs), target)

        self._one = grad_and_value(of_one)
        recurrent = any(isinstance(module, nn.RNNBase) for module in plan.modules())
        self._all: Any = vmap(self._one) if stacked and not recurrent else self._looped

    def _looped(self, parameters: Any, buffers: Any, inputs: tuple[Tensor, ...], target: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        found = [
            self._one(
                {name: value[i] for name, value in parameters.items()},
                {name: value[i] for name, value in buffers.items()},
                tuple(one[i] for one in inputs),
                target[i],
            )
            for i in range(self.n)
        ]
        return {name: torch.stack([one[0][name] for one in found]) for name in parameters}, torch.stack([one[1] for one in found])

    def step(self, inputs: Tensor | tuple[Tensor, ...], target: Tensor) -> Tensor:
        """One step of every model on its own batch, [n, batch, …]; returns their losses [n]."""
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        if any(len(one) != self.n for one in (*given, target)):
            raise InputError(f"found batches for {len(target)} models; expected {self.n}")
        with deterministic():
            gradients, losses = self._all(self.parameters, self._buffers, given, target)
            self._move([gradients[name].detach() for name in self.parameters])
        found: Tensor = losses.detach()
        return found

    @torch.no_grad()
    def _move(self, gradients: list[Tensor]) -> None:
        if self._adam is not None:
            self._adam.lr = self.lr
            self._adam.step(gradients)
            return
        weights = list(self.parameters.values())
        if self.weight_decay:
            gradients = [g + self.weight_decay * w for g, w in zip(gradients, weights)]
        if self.optimiser == "momentum":
            torch._foreach_mul_(self._velocity, 0.9)
            torch._foreach_add_(self._velocity, gradients)
            gradients = self._velocity
        torch._foreach_add_(weights, gradients, alpha=-self.lr)

    def modules(self) -> list[nn.Module]:
        """The models with their present weights."""
        with torch.no_grad():
            for i, model in enumerate(self.models):
                for name, parameter in model.named_parameters():
                    parameter.copy_(self.parameters[name][i])
        return self.models
