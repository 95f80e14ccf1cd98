"""What a technique is to the training loop: a scheme that is told after every backward pass, and decides who talks when."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from armillary.arena import Technique

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.comm import Communicator

    from ..diloco import DiLoCo
    from .inner import Inner


#: Kinds of cases that train in one stage; only the arms of the study take the others.
ONE_STAGE = frozenset({"quick", "pretrain", "muon", "file"})


class Scheme(Protocol):
    """One worker's part in a stage."""

    @property
    def syncs(self) -> int:
        """Exchanges so far."""
        ...

    @property
    def hides_backward(self) -> bool:
        """Whether exchanges go on behind the backward pass."""
        ...

    @property
    def hidden_steps(self) -> int:
        """The inner steps that go on while an exchange is under way."""
        ...

    @property
    def gathers(self) -> bool:
        """Whether an exchange is an all-gather of codes rather than an all-reduce."""
        ...

    def step(self) -> None:
        """Use the gradients of one inner step: exchange, clip, update."""
        ...

    def finish(self) -> None:
        """After the last step of a stage."""
        ...

    def shared(self) -> Tensor:
        """The flat weights that would be evaluated now."""
        ...

    def watch(self, see: Callable[[Tensor], None]) -> None:
        """Call `see` with what this worker brings to an exchange, once per round."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All that the worker needs to go on."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        ...


@dataclass(frozen=True)
class Synchronised(Technique):
    """A technique of this arena: it makes a scheme for each stage."""

    @abstractmethod
    def scheme(self, stage: str, inner: Inner, every: int, ranks: Communicator) -> Scheme:
        """The scheme of one worker for one stage ("pretrain", "mid" or "sft"), with rounds of `every` inner steps."""

    def pretrains_as(self) -> Synchronised:
        """The technique whose pretraining this one has, so that arms of a study share it."""
        return self


class LocalSteps:
    """Inner steps alone, and rounds by `DiLoCo` or one of its kind."""

    def __init__(self, inner: Inner, outer: DiLoCo, *, keep: bool = True, hidden_steps: int = 0) -> None:
        self.hides_backward = False
        self.inner, self.outer, self.keep, self.hidden_steps = inner, outer, keep, hidden_steps
        self.gathers = outer.bits != 32

    @property
    def syncs(self) -> int:
        """Exchanges so far."""
        return self.outer.round

    def step(self) -> None:
        """An inner step, and the end of a round where it is due."""
        self.inner.done += 1
        self.inner.update()
        if self.outer.step() and not self.keep:
            self.inner.forget()

    def finish(self) -> None:
        """End the last round."""
        self.outer.finish()

    def shared(self) -> Tensor:
        """θ."""
        return self.outer.theta

    def watch(self, see: Callable[[Tensor], None]) -> None:
        """Look at pseudo-gradients."""
        self.outer.on_delta = see

    def state_dict(self) -> dict[str, Any]:
        """The state of the rounds, which holds that of the inner optimizer."""
        return self.outer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on, in the middle of a round too."""
        self.outer.load_state_dict(state)
