"""What a placement policy sees, what it answers, and when it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.arena import Technique
from armillary.errors import InputError
from armillary.parameters import parameter
from armillary.scheduling.mesh.octree.mesh import MOST_BLOCKS, Floats, Graph, Ints
from armillary.wording import counted

if TYPE_CHECKING:
    from armillary.scheduling.mesh.simulation.machine import Machine

#: Microseconds of one block; sums stay far from the largest float.
MOST_COST = 1e15


def checked(costs: npt.ArrayLike, ranks: int) -> Floats:
    """The costs as an array, after it is sure that a policy can place them; if all are zero, all blocks cost the same."""
    found = np.asarray(costs, np.float64)
    if found.ndim != 1 or len(found) > MOST_BLOCKS:
        raise InputError(f"costs: found an array of shape {found.shape}; expected one cost per block, of at most {MOST_BLOCKS:,} blocks")
    if isinstance(ranks, bool) or not isinstance(ranks, int | np.integer) or ranks < 1:
        raise InputError(f"ranks: found {ranks!r}; expected a whole number from 1 on")
    if len(found) < ranks:
        raise InputError(f"found {counted(len(found), 'block')} for {counted(ranks, 'rank')}; expected at least one block per rank")
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0) & (found <= MOST_COST)))
    if len(wrong):
        raise InputError(f"block {wrong[0]}: found the cost {found[wrong[0]]}; expected microseconds from 0 to {MOST_COST:g}")
    return found if found.any() else np.ones(len(found))


def loads(costs: Floats, placement: Ints, ranks: int) -> Floats:
    """The sum of the costs of each rank's blocks."""
    return np.asarray(np.bincount(placement, costs, minlength=ranks), np.float64)


@dataclass(frozen=True, eq=False)
class State:
    """What is known when a placement is asked for."""

    #: Microseconds per block, in the order of the curve, as known from earlier steps.
    costs: Floats
    ranks: int
    graph: Graph
    machine: Machine
    step: int = 0


@dataclass(frozen=True)
class Policy(Technique):
    """One way to place blocks on ranks. The answer is the rank of each block, in the order of the curve."""

    trigger: str = parameter("mesh", "when blocks are placed anew: if the mesh changed, or also after this number of steps")

    def validate(self) -> None:
        """The trigger is a word or a number."""
        if self.trigger != "mesh" and not (self.trigger.isascii() and self.trigger.isdigit() and 0 < int(self.trigger[:9]) < 10**6):
            raise InputError(f'found "{self.trigger}"; expected mesh, or a number of steps from 1 to 999,999', where="trigger")

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        raise NotImplementedError

    def session(self) -> Session:
        """A run of this policy over the steps of one simulation."""
        return Session(self)


class Session:
    """Asks a policy when it is due. Unchanged costs on an unchanged mesh get the last answer again."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._last: tuple[State, Ints] | None = None

    def due(self, step: int, changed: bool) -> bool:
        """Whether blocks are placed before this step."""
        every = 0 if self.policy.trigger == "mesh" else int(self.policy.trigger)
        return changed or step == 0 or (every > 0 and step % every == 0)

    def prepare(self, state: State) -> None:
        """What a code would have at hand when it asks, and what is therefore not timed."""

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        if self._last is not None:
            before, answer = self._last
            if before.graph is state.graph and np.array_equal(before.costs, state.costs):
                return answer
        answer = self.answer(state)
        self._last = (state, answer)
        return answer

    def answer(self, state: State) -> Ints:
        """A new answer."""
        return self.policy.place(state)

    def observe(self, state: State, costs: Floats, step_us: float) -> None:
        """What a step cost per block, and how long it took without migrations."""
