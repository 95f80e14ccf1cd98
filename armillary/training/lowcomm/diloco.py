"""DiLoCo: let each worker train alone for H steps, and treat the distance that the workers moved as a gradient.

All workers begin a round at the shared weights θ. Each makes H steps with its own inner optimizer, whose state it keeps from round to
round. Then the pseudo-gradient Δ = θ − mean θᵢ is all-reduced, and an outer optimizer with Nesterov momentum takes it:

    v ← μ·v + Δ        θ ← θ − η·(Δ + μ·v)

So workers talk once per H steps instead of every step. With η = 1 and μ = 0 this is averaging (local SGD), and with H = 1 and plain SGD
inside it is data parallelism.

`DiLoCo` is the mechanism for any PyTorch training loop; `Diloco` is the technique that the arena compares.

What happens when nanochat meets DiLoCo?, arXiv 2511.13761, which puts DiLoCo (arXiv 2311.08105) under a whole pipeline of pretraining,
mid-training and supervised fine-tuning.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from armillary.arena import Claim, Gain, Kind, Parity, parameter
from armillary.errors import InputError, unknown

from .exchange.mean import DIAGNOSE, SYNCHRONISE, Bits, agreed, mean_over, ranks_of
from .workers.scheme import LocalSteps, Scheme, Synchronised

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from armillary.comm import Communicator

    from .workers.inner import Inner

#: The outer optimizers; `average` takes the mean of the workers' weights and has no state.
OUTER = ("nesterov", "momentum", "average")
_NANOCHAT, _ORIGINAL = "arXiv 2511.13761, abstract", "arXiv 2311.08105"


def outer_step(theta: Tensor, delta: Tensor, velocity: Tensor, lr: float, momentum: float, *, nesterov: bool = True) -> None:
    """One step of the outer optimizer on flat tensors, in place: that of `torch.optim.SGD`, bit for bit, with Δ as the gradient."""
    velocity.mul_(momentum).add_(delta)
    theta.add_(delta.add(velocity, alpha=momentum) if nesterov else velocity, alpha=-lr)


class Stateful(Protocol):
    """An optimizer, of which only the state is of interest here."""

    def state_dict(self) -> dict[str, Any]:
        """Its state."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Take a state."""
        ...


class DiLoCo:
    """Trains `model` with few synchronisations: call `step()` after each `inner.step()`, and `finish()` after the last one.

    `inner` is the optimizer of this worker, `every` is H, and `group` holds the workers: a communicator of `armillary.comm`, a group of
    `torch.distributed`, or None for torch's default group (for this process alone where there is none). Worker 0's weights are the first
    θ of all. `bits` is the size of an element of Δ on the wire: 32, 16 (bfloat16) or 4.

    The model holds the worker's own weights inside a round and θ at its end; `state_dict` has θ, v, the round, and all that a
    worker needs to go on in the middle of a round.
    """

    def __init__(
        self, model: torch.nn.Module, inner: Stateful | None = None, outer: Literal["nesterov", "momentum", "average"] = "nesterov",
        every: int = 30, group: Any = None, *, lr: float = 0.7, momentum: float = 0.9, bits: Bits = 32,
    ) -> None:  # fmt: skip
        if outer not in OUTER:
            raise unknown("outer optimizer", outer, OUTER, where="DiLoCo")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InputError(f"every: found {every!r}; expected a whole number of inner steps from 1", where="DiLoCo")
        if bits not in (32, 16, 4):
            raise InputError(f"bits: found {bits!r}; expected 32, 16 or 4", where="DiLoCo")
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise InputError("found a model without trainable parameters", where="DiLoCo")
        self.inner, self.outer, self.every, self.bits = inner, outer, every, bits
        self.lr, self.momentum = (1.0, 0.0) if outer == "average" else (lr, momentum)
        self.ranks: Communicator | None = ranks_of(group)
        #: Rounds that have ended, inner steps so far, and inner steps of the round under way.
        self.round = self.steps = self.inside = 0
        #: Called with this worker's own θ − θᵢ before each exchange.
        self.on_delta: Callable[[Tensor], None] | None = None
        agreed(self.ranks, list(zip(self.names, (tuple(p.shape) for p in self.parameters))))
        #: θ and v, flat, in the order of the parameters.
        self.theta = self.local()
        if self.ranks is not None and self.ranks.size > 1:
            self.theta.copy_(_broadcast(self.ranks, self.theta))
            self.take(self.theta)
        self.velocity = self.theta.new_zeros(self.theta.shape)

    @property
    def rank(self) -> int:
        """The number of this worker."""
        return 0 if self.ranks is None else self.ranks.rank

    def step(self, loss: Tensor | float | None = None) -> bool:
        """Count an inner step, and end the round if it was the last one; returns whether workers synchronised."""
        self._count(loss)
        if self.inside < self.every:
            return False
        self.synchronise()
        return True

    def _count(self, loss: Tensor | float | None) -> None:
        self.steps += 1
        self.inside += 1
        if loss is not None:
            check_loss(loss, self.steps, self.rank)

    def finish(self) -> None:
        """End a round that is shorter than the others; nothing happens between rounds."""
        if self.inside:
            self.synchronise()

    def synchronise(self) -> None:
        """End the round now: exchange Δ, make the outer step, and let every worker begin again at θ."""
        mine = self.local()
        if self.on_delta is not None:
            self.on_delta(self.theta - mine)
        with counted(self.ranks, SYNCHRONISE):
            # Weights are averaged in float32, so that averaging alone gives the mean itself; fewer bits are only enough for differences.
            mean = mean_over(self.ranks, mine) if self.bits == 32 else self.theta - mean_over(self.ranks, self.theta - mine, self.bits)
        check_weights(mean, mine, self.ranks, self.steps)
        if (self.lr, self.momentum) == (1.0, 0.0):
            self.theta.copy_(mean)
        else:
            outer_step(self.theta, self.theta - mean, self.velocity, self.lr, self.momentum, nesterov=self.outer == "nesterov")
        self.take(self.theta)
        self.round += 1
        self.inside = 0

    def local(self) -> Tensor:
        """A flat copy of this worker's weights, in float32 or wider."""
        import torch

        wide = torch.promote_types(self.parameters[0].dtype, torch.float32)
        return torch.cat([p.detach().reshape(-1).to(wide) for p in self.parameters])

    def take(self, flat: Tensor) -> None:
        """Put flat weights into the model."""
        at = 0
        for p in self.parameters:
            p.detach().copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()

    def state_dict(self) -> dict[str, Any]:
        """θ, v and the round, this worker's own weights, and the state of its inner optimizer."""
        return {
            "round": self.round, "steps": self.steps, "inside": self.inside, "theta": self.theta.clone(), "velocity": self.velocity.clone(),
            "local": self.local(), "inner": None if self.inner is None else self.inner.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken, in the middle of a round too."""
        found = state["theta"].numel()
        if found != self.theta.numel():
            raise InputError(f"found a state of {found:,} weights; expected {self.theta.numel():,}", where="DiLoCo")
        self.round, self.steps, self.inside = (int(state[name]) for name in ("round", "steps", "inside"))
        self.theta.copy_(state["theta"])
        self.velocity.copy_(state["velocity"])
        self.take(state["local"])
        if self.inner is not None and state["inner"] is not None:
            self.inner.load_state_dict(state["inner"])


def counted(ranks: Communicator | None, phase: str) -> contextlib.AbstractContextManager[Any]:
    """Counts what ranks send under this phase."""
    return contextlib.nullcontext() if ranks is None else ranks.phase(phase)


def check_loss(loss: Tensor | float, step: int, worker: int) -> float:
    """The loss as a number; raises with the step (from 1) and the worker unless it is finite."""

    value = float(loss if isinstance(loss, float) else loss.detach())
    if not math.isfinite(value):
        raise InputError(f"the loss is {value} at step {step} of worker {worker}; a lower learning rate may help", where="training")
    return value


def check_weights(mean: Tensor, mine: Tensor, ranks: Communicator | None, step: int) -> None:
    """Raise on every worker, with the number of the first one whose weights are not finite."""
    import numpy as np

    if bool(mean.isfinite().all()):
        return
    bad = np.array([not bool(mine.isfinite().all())], np.uint8)
    every = bad if ranks is None else ranks.allgather(bad).ravel()
    worker = int(np.argmax(every))
    raise InputError(f"weights of worker {worker} are not finite at step {step}; a lower learning rate may help", where="training")


def _broadcast(ranks: Communicator, flat: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(ranks.bcast(flat.cpu().numpy().copy())).to(flat.device)


class Diagnosis:
    """The mean cosine between the workers' own pseudo-gradients (or gradients), over all exchanges that it saw."""

    def __init__(self, ranks: Communicator | None) -> None:
        self.ranks = ranks
        self.cosines: list[float] = []

    def __call__(self, delta: Tensor) -> None:
        """Exchange directions and note the mean cosine over pairs of workers: (‖Σ d̂ᵢ‖² − k) / (k(k − 1))."""
        norm = delta.norm()
        k = 1 if self.ranks is None else self.ranks.size
        if self.ranks is None or k == 1:
            return
        with counted(self.ranks, DIAGNOSE):
            mean = mean_over(self.ranks, delta / norm.clamp(min=1e-30))
        self.cosines.append((float((k * mean).double().square().sum()) - k) / (k * (k - 1)))


@dataclass(frozen=True)
class Diloco(Synchronised):
    """DiLoCo in every stage: rounds of H inner steps, and Nesterov momentum over pseudo-gradients."""

    outer: Literal["nesterov", "momentum", "average"] = parameter("nesterov", "the outer optimizer; average takes the workers' mean")
    lr: float = parameter(0.7, "the outer learning rate η", range=(0.0, 10.0))
    momentum: float = parameter(0.9, "the outer momentum μ", range=(0.0, 0.999))
    bits: Literal[32, 16, 4] = parameter(32, "bits per element of Δ on the wire: float32, bfloat16 or four bits")
    keep: bool = parameter(True, "whether workers keep the state of their inner optimizers from round to round")

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "comm_bytes", over="ddp", by=Gain(ratio=(100, None)), on=Kind("pretrain"), aggregate="max", source=_NANOCHAT,
            says="orders of magnitude less traffic than data parallelism, which follows from the number of rounds",
        ),
        Claim(
            "val_loss", over="ddp", by=Parity(within=0.05), on=Kind("pretrain"), source=_NANOCHAT,
            says="a pretraining loss that is competitive with data parallelism",
        ),
        Claim(
            "val_loss", over="large-batch", by=Gain(ratio=(1.0, None)), on=Kind("pretrain"), source="ours",
            says="a lower pretraining loss than large batches with the same traffic",
        ),
        Claim(
            "val_loss", over=("large-batch", "local-sgd", "streaming-diloco"), by=Gain(ratio=(1.0, None)), on=Kind("pretrain"),
            source="ours", says="a lower pretraining loss than the best other technique with about the same traffic",
        ),
    )  # fmt: skip

    def scheme(self, stage: str, inner: Inner, every: int, ranks: Communicator) -> Scheme:
        """Rounds of `every` inner steps."""
        made = DiLoCo(inner.model, inner, self.outer, every, ranks, lr=self.lr, momentum=self.momentum, bits=self.bits)
        return LocalSteps(inner, made, keep=self.keep)
