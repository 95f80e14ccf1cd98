"""Sequences to train on, the chunks that they are cut and packed into, and what a plan over chunks takes.

A chunk is {C, S}: a list S of slices, the first of which may continue a sequence after C tokens of context. A *batch* chunk holds whole
sequences, a *split* chunk one slice of a long sequence, and a *hybrid* chunk the last slice of a long one together with whole short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.llm import Fabric, LayerCosts, Model, Plan, layer_costs
from armillary.llm.cost.plan import RECOMPUTE

from ..planning.layers import even_cuts
from ..simulation.schedule import IntArray, Schedule
from ..simulation.simulator import Costs, FloatArray, Links, Simulated, simulate
from .polynomial import Polynomial

Seconds = tuple[FloatArray, FloatArray, FloatArray, dict[str, FloatArray]]


@dataclass(frozen=True)
class Chunk:
    """`slices` are (sequence, tokens); the first has `context` tokens before it, the others none. `previous` is the chunk before it."""

    slices: tuple[tuple[int, int], ...]
    context: int = 0
    previous: int = -1
    #: Whether a later chunk continues the sequence of the last slice.
    continued: bool = False

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return sum(length for _, length in self.slices)

    @property
    def segments(self) -> tuple[tuple[int, int], ...]:
        """(new tokens, context) of every slice, as `armillary.llm` takes them."""
        return tuple((length, self.context if i == 0 else 0) for i, (_, length) in enumerate(self.slices))

    @property
    def split_tokens(self) -> int:
        """Tokens of slices of sequences that are cut, whose keys and values stay for other slices."""
        count = self.slices[0][1] if self.context > 0 or (self.continued and len(self.slices) == 1) else 0
        return count + (self.slices[-1][1] if self.continued and len(self.slices) > 1 else 0)

    @property
    def kind(self) -> str:
        """batch, split or hybrid."""
        if self.context == 0 and not self.continued:
            return "batch"
        return "split" if len(self.slices) == 1 else "hybrid"

    def cu_seqlens(self) -> IntArray:
        """Where the chunk's slices begin, and its end, as kernels for variable lengths take it."""
        return np.concatenate([[0], np.cumsum([length for _, length in self.slices])]).astype(np.int32)


@dataclass(frozen=True, eq=False)
class TokenCosts:
    """What a transformer costs per token and chunk on one rank: all layers are alike, with a tail (loss) after the last.

    `forward` is the polynomial of a layer's forward pass, in seconds. `operators` gives the seconds of every operator where a model is
    known; without it the polynomial stands for them. Bytes are per token and layer; `state` is per layer.
    """

    layers: int
    forward: Polynomial
    kept: dict[str, float]
    keys: float = 0.0
    sent: float = 0.0
    state: float = 0.0
    head_state: float = 0.0
    tail_state: float = 0.0
    #: (forward, gradient of the input, gradient of the weights) seconds per token of the tail, and bytes per token that it keeps.
    tail: tuple[float, float, float] = (0.0, 0.0, 0.0)
    tail_kept: float = 0.0
    operators: Callable[[Sequence[Chunk]], LayerCosts] | None = field(default=None, repr=False)
    #: The chunks that were priced last, and what they cost: planners try several options on the same chunks.
    _last: list[tuple[Sequence[Chunk], Seconds]] = field(default_factory=list, repr=False, compare=False)

    def seconds(self, chunks: Sequence[Chunk]) -> Seconds:
        """(forward, gradient of the input, gradient of the weights, recomputation by option) of one layer for every chunk."""
        if not self._last or self._last[0][0] is not chunks:
            self._last[:] = [(chunks, self._priced(chunks))]
        return self._last[0][1]

    def _priced(self, chunks: Sequence[Chunk]) -> Seconds:
        if self.operators is None:
            forward, backward = self.forward.seconds(chunks), self.forward.backward_seconds(chunks)
            core = self.forward.attention(chunks)
            weight = self.forward.b * np.array([float(chunk.tokens) for chunk in chunks])
            again = {"none": 0.0 * forward, "selective": core, "full": forward}
            return forward, np.maximum(backward - weight, 0.0), weight, again
        found = self.operators(chunks)
        again = {**found.recompute, "full": found.recompute["full"] + found.collective}
        return found.forward + found.collective, found.backward_input + found.collective, found.backward_weight, again

    @staticmethod
    def of_model(model: Model, plan: Plan, device: Any, fabric: Fabric, *, head_state: float, tail_state: float, state: float,
                 tail: tuple[float, float, float], tail_kept: float) -> TokenCosts:  # fmt: skip
        """The costs of a model whose layers are all alike, with a polynomial fitted to its operators."""
        if len(model.kinds) != 1:
            raise InputError(f"{model.name} has {len(model.kinds)} kinds of layers; batches of sequences need a model with one")
        kind = model.layer(0)

        def operators(chunks: Sequence[Chunk]) -> LayerCosts:
            return layer_costs(model, kind, [chunk.segments for chunk in chunks], plan, device, fabric)

        one = operators([Chunk(((0, 1024),))])
        ways = plan.tp if plan.sequence_parallel else 1
        plain = TokenCosts(
            model.layers, Polynomial(0.0, 0.0, 0.0), {name: float(one.kept[name][0]) / 1024 for name in RECOMPUTE},
            float(one.keys[0]) / 1024, 2.0 * model.hidden / ways, state, head_state, tail_state, tail, tail_kept, operators,
        )  # fmt: skip
        return replace(plain, forward=Polynomial.fitted(plain.seconds), _last=[])


@dataclass(frozen=True, eq=False)
class SequenceWork:
    """A batch of sequences for `ranks` ranks of a pipeline. `longest` is the model's limit of tokens.

    `slowdown` are factors per layer by which the seconds turn out to be longer than planners were told. `parallel` prices the same work
    without a pipeline (see `sequence_parallel`).
    """

    lengths: IntArray
    costs: TokenCosts
    ranks: int
    capacity: float
    longest: int
    links: Links = Links()  # noqa: RUF009 - frozen
    overhead: float = 0.0
    device: str = ""
    slowdown: FloatArray | None = None
    parallel: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.ranks <= self.costs.layers:
            raise InputError(f"found {self.ranks} ranks for {self.costs.layers} layers; expected at least one layer per rank")
        static = self.static(even_cuts(self.costs.layers, self.ranks)) + self.overhead
        if not self.capacity > static.max():
            at = int(static.argmax())
            raise InputError(f"stage {at} needs {static[at]:,.0f} bytes for its parameters; the capacity is {self.capacity:,.0f}")

    @property
    def tokens(self) -> int:
        """The tokens of the batch."""
        return int(self.lengths.sum())

    def static(self, cuts: IntArray) -> FloatArray:
        """Bytes of parameters per stage."""
        static = np.diff(cuts) * self.costs.state
        static[0] += self.costs.head_state
        static[-1] += self.costs.tail_state
        return static

    def stage_costs(self, plan: ChunkPlan, *, actual: bool = True) -> Costs:
        """What the plan's chunks cost on its stages, as the simulator takes it."""
        costs, chunks = self.costs, plan.chunks
        layers = np.diff(plan.cuts).astype(float)
        factor = layers
        if actual and self.slowdown is not None:
            factor = np.array([self.slowdown[a:b].sum() for a, b in zip(plan.cuts[:-1], plan.cuts[1:])])
        forward, backward_input, backward_weight, again = costs.seconds(chunks)
        tokens = np.array([chunk.tokens for chunk in chunks], float)
        last = np.zeros(len(layers))
        last[-1] = 1.0
        f, i, w = (
            np.outer(factor, each) + np.outer(last, tail * tokens)
            for each, tail in zip((forward, backward_input, backward_weight), costs.tail)
        )
        if plan.option is None:
            share = plan.recompute.T / layers[:, None]
            extra = share * np.outer(factor, again["full"])
            kept = np.outer(layers, tokens * costs.kept["none"]) - plan.recompute.T * tokens * (costs.kept["none"] - costs.kept["full"])
            workspace = np.where(plan.recompute.T > 0, tokens * (costs.kept["none"] - costs.kept["full"]), 0.0)
        else:
            extra = np.outer(factor, again[plan.option])
            kept = np.outer(layers, tokens * costs.kept[plan.option])
            workspace = np.broadcast_to(tokens * (costs.kept["none"] - costs.kept[plan.option]), kept.shape)
        kept = kept + np.outer(last, costs.tail_kept * tokens)
        split = np.array([chunk.split_tokens for chunk in chunks], float)
        return Costs(
            f, i, w, recompute=extra, kept=kept, keys=np.outer(layers, split * costs.keys), workspace=workspace,
            sent=np.broadcast_to(tokens * costs.sent, kept.shape), static=self.static(plan.cuts), overhead=self.overhead,
        )  # fmt: skip

    def simulate(self, plan: ChunkPlan, *, actual: bool = True) -> Simulated:
        """Runs a plan on the seconds as they turn out, or as planners know them."""
        if plan.elsewhere is not None:
            return plan.elsewhere(actual)
        return simulate(plan.schedule, self.stage_costs(plan, actual=actual), self.links)

    def fits(self, found: Simulated) -> bool:
        """Whether a simulated plan stays within the memory of every rank."""
        return bool((found.peak <= self.capacity * (1 + 1e-12)).all())


@dataclass(frozen=True, eq=False)
class ChunkPlan:
    """Chunks with their schedule, and how many layers each chunk recomputes on each stage.

    `recompute[k, s]` counts fully recomputed layers of chunk k on stage s; where `option` names one, all layers use that instead.
    """

    chunks: tuple[Chunk, ...]
    schedule: Schedule
    cuts: IntArray
    recompute: IntArray
    option: str | None = None
    predicted: float = 0.0
    order: str = ""
    #: Replaces the simulation of the schedule where the plan is no pipeline.
    elsewhere: Callable[[bool], Simulated] | None = field(default=None, repr=False)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def granularity(self) -> str:
        """ "batch" if no sequence is cut, "token" if every chunk is a slice, else "mixed"."""
        kinds = {chunk.kind for chunk in self.chunks}
        return "batch" if kinds == {"batch"} else "token" if kinds == {"split"} else "mixed"


def previous_slices(chunks: Sequence[Chunk]) -> IntArray:
    """The chunk before each chunk in its sequence, or −1."""
    return np.array([chunk.previous for chunk in chunks], np.int64)


def check_chunks(chunks: Sequence[Chunk], lengths: IntArray) -> None:
    """Raises an `InputError` unless every token is in exactly one chunk, and every context is what came before."""
    seen = np.zeros(len(lengths), np.int64)
    for number, chunk in enumerate(chunks):
        for place, (sequence, count) in enumerate(chunk.slices):
            if place == 0 and chunk.context != seen[sequence]:
                raise InputError(f"chunk {number}: context {chunk.context} after {seen[sequence]} tokens of sequence {sequence}")
            if place > 0 and seen[sequence]:
                raise InputError(f"chunk {number}: sequence {sequence} goes on in the middle of a chunk")
            seen[sequence] += count
    if not np.array_equal(seen, lengths):
        wrong = int(np.flatnonzero(seen != lengths)[0])
        raise InputError(f"sequence {wrong}: {seen[wrong]} of {lengths[wrong]} tokens are in chunks")
