"""Data parallelism: the workers' gradients are averaged after every step, so that all of them make the same step.

It trains as one worker with the batch of all would, and it is what the others are measured against. Buckets of gradients travel
while the backward pass goes on, which the modelled wall clock counts in its favour.

PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from armillary.arena import Claim, Gain, Kind, parameter

from .diloco import counted
from .exchange.mean import SYNCHRONISE, Bits, mean_over
from .workers.scheme import Scheme, Synchronised

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.comm import Communicator

    from .workers.inner import Inner

_SOURCE = "arXiv 2511.13761, abstract"
_TASKS = "synthetic tasks for MMLU, GSM8K and HumanEval"


class GradientAverage:
    """Gradients are added up over `accumulate` inner steps, averaged over workers, and used once with `scale` times the learning rate."""

    def __init__(
        self, inner: Inner, ranks: Communicator | None, *, accumulate: int = 1, scale: float = 1.0, bits: Bits = 32, watch_every: int = 1
    ) -> None:
        self.inner, self.ranks, self.accumulate, self.scale, self.bits = inner, ranks, accumulate, scale, bits
        self.watch_every = watch_every
        self.hides_backward, self.hidden_steps = True, 0
        self.gathers = bits != 32
        #: Exchanges so far, and inner steps whose gradients wait for the next one.
        self.syncs = self.waiting = 0
        self._see: Callable[[Tensor], None] | None = None

    def step(self) -> None:
        """Take the gradients of an inner step, and use them when there are enough."""
        self.inner.done += 1
        self.waiting += 1
        if self.waiting == self.accumulate:
            self._exchange()

    def finish(self) -> None:
        """Use the gradients that still wait."""
        if self.waiting:
            self._exchange()

    def _exchange(self) -> None:
        mine = self.inner.gradients
        if self._see is not None and self.inner.done % self.watch_every == 0:
            self._see(mine)
        with counted(self.ranks, SYNCHRONISE):
            mean = mean_over(self.ranks, mine, self.bits)
        mine.copy_(mean).div_(self.waiting)
        self.inner.update(self.scale, self.waiting)
        self.syncs += 1
        self.waiting = 0

    def shared(self) -> Tensor:
        """The weights, which all workers have."""
        return self.inner.weights

    def watch(self, see: Callable[[Tensor], None]) -> None:
        """Look at gradients, once per round of the techniques that have rounds."""
        self._see = see

    def state_dict(self) -> dict[str, Any]:
        """The state of the inner optimizer, and the gradients that wait."""
        return {"inner": self.inner.state_dict(), "syncs": self.syncs, "waiting": self.waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self.inner.load_state_dict(state["inner"])
        self.syncs, self.waiting = int(state["syncs"]), int(state["waiting"])


@dataclass(frozen=True)
class Ddp(Synchronised):
    """One all-reduce of the gradients per step."""

    bits: Literal[32, 16] = parameter(32, "bits per element of the gradients on the wire: float32 or bfloat16")

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "task_accuracy", over="diloco", by=Gain(difference=(0, None)), on=Kind("sft"), source=_SOURCE, stand_in=_TASKS,
            says="better downstream scores after data parallelism throughout than after DiLoCo throughout",
        ),
        Claim(
            "task_accuracy", over="diloco-then-ddp", by=Gain(difference=(0, None)), on=Kind("sft"), source=_SOURCE, stand_in=_TASKS,
            says="better downstream scores than after DiLoCo in pretraining, which data parallelism afterwards does not recover",
        ),
    )  # fmt: skip

    def scheme(self, stage: str, inner: Inner, every: int, ranks: Communicator) -> Scheme:
        """An exchange after every step."""
        return GradientAverage(inner, ranks, bits=self.bits, watch_every=every)
