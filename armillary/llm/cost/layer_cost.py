"""Seconds and bytes of one layer in training, for chunks of tokens: packed sequences, slices of a long one, or both.

`train` prices whole sequences on whole stages. Schedules that cut sequences or move single layers need the cost of one layer for some
segments (n new tokens after c tokens of context), with every choice of recomputation. For whole sequences both give equal seconds.
Everything is modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.llm.cost.counts import Segment, pair_flops, pairs
from armillary.llm.cost.device import Chip, Fabric, chip
from armillary.llm.cost.memory import Term, activation_terms
from armillary.llm.cost.operators import Setting, attention_seconds, collective_seconds, token_operators
from armillary.llm.cost.plan import RECOMPUTE, Plan
from armillary.llm.cost.training_step import _EXPERTS, _PRODUCTS, _passes, _transposed
from armillary.llm.model.shapes import Layer, Model

FloatArray = npt.NDArray[np.float64]
Chunk = Iterable[Segment | tuple[int, int]]
Part = Literal["layer", "attention", "mlp"]


@dataclass(frozen=True)
class LayerCosts:
    """One layer on one device, one entry per chunk: seconds of the passes, and by option of recomputation the extra seconds and kept bytes.

    `collective` are the seconds of the tensor-parallel collectives of a forward pass, and `exchange` those in which tokens go to their
    experts and back; a backward pass has as many of both. They are not part of the other seconds. `keys` are the bytes of the chunk's keys
    and values, which later slices of its sequence attend to.
    """

    tokens: npt.NDArray[np.int64]
    forward: FloatArray
    backward_input: FloatArray
    backward_weight: FloatArray
    collective: FloatArray
    exchange: FloatArray
    recompute: dict[str, FloatArray]
    kept: dict[str, FloatArray]
    keys: FloatArray


def layer_costs(
    model: Model, kind: Layer, chunks: Sequence[Chunk], plan: Plan, device: Chip | str, fabric: Fabric | None = None, *,
    part: Part = "layer",
) -> LayerCosts:  # fmt: skip
    """What one layer of this kind costs for each chunk of segments, on one of the plan's devices.

    The plan gives tp, ep, sequence parallelism and the kind of attention (fused only); its recomputation, stages and micro-batch do not
    matter. A chunk's segments attend to their own context and are otherwise computed together. `part` is the whole layer, or one of its
    halves: attention with its norm, or the MLP with its norm, where a pipeline is cut inside layers.
    """
    if part not in get_args(Part):
        raise unknown("part of a layer", str(part), get_args(Part))
    if plan.attention != "flash" or plan.cp != 1:
        raise InputError("plan: layers of segments are priced with fused attention and without context parallelism")
    plan.check(model)
    on = chip(device)
    met = min(plan.ep, plan.dp)
    setting = Setting(on, fabric or Fabric.of(on), plan.tp, plan.ep, expert_tp=plan.expert_tp, gathered=met)
    work = [[Segment(*each) for each in chunk] for chunk in chunks]
    tokens = np.array([sum(each.new for each in chunk) for chunk in work], np.int64)
    if len(tokens) == 0 or tokens.min() < 1:
        raise InputError("a chunk without tokens; expected at least one segment of at least one token")
    core = np.array([0.0 if part == "mlp" else _core(model, kind, plan, chunk, setting) for chunk in work])
    known = {int(n): _token_seconds(model, kind, plan, int(n), setting, part) for n in np.unique(tokens)}
    forward, backward_input, backward_weight, mlp = (np.array([known[int(n)][i] for n in tokens]) for i in range(4))
    forward = core + forward
    collective, exchange = (np.array([known[int(n)][i] for n in tokens]) for i in (4, 5))
    again = {"none": np.zeros(len(tokens)), "selective": core, "mlp": mlp, "full": forward}
    ways = {"tensor": plan.tp, "sequence": plan.tp if plan.sequence_parallel else 1}
    terms = [t for t in activation_terms(model, kind, int(tokens.max()), plan.attention) if part in ("layer", _half(t))]
    dropped = {"none": "", "selective": "core", "mlp": "mlp"}
    kept = {
        option: tokens * sum(t.per_token / ways[t.split] for t in terms if t.group != group) for option, group in dropped.items()
    } | {"full": tokens * 2.0 * model.hidden / ways["sequence"]}  # fmt: skip
    share = 1.0 if model.mla else 1 / min(plan.tp, model.kv_heads)
    return LayerCosts(
        tokens, forward, core * 2.5 + backward_input, backward_weight, collective, exchange, {name: again[name] for name in RECOMPUTE},
        {name: kept[name].astype(np.float64) for name in RECOMPUTE},
        tokens.astype(np.float64) * (0.0 if part == "mlp" else 2.0 * model.kv_numbers * share),
    )  # fmt: skip


def _core(model: Model, kind: Layer, plan: Plan, chunk: Sequence[Segment], s: Setting) -> float:
    """Seconds of the core of attention in the forward pass: all pairs of the chunk in one kernel."""
    seen = sum(pairs(each.new, each.context, kind.window, model.causal) for each in chunk)
    key, value = model.attention_widths
    rows = sum(2 * each.new + each.context for each in chunk)
    moved = 2.0 * rows * (model.heads // plan.tp) * (key + value)
    return attention_seconds(s.device, pair_flops(model) * seen / plan.tp, moved)


def _half(term: Term) -> Part:
    """The half of a layer that keeps a tensor."""
    moe = ("router logits", "dispatched tokens", "experts' outputs")
    return "mlp" if term.group == "mlp" or term.name.startswith("MLP ") or term.name in moe else "attention"


def _token_seconds(model: Model, kind: Layer, plan: Plan, tokens: int, s: Setting, part: Part) -> tuple[float, ...]:
    """(forward, backward for inputs, backward for weights, what "mlp" recomputes, collectives, exchange) without the core of attention."""
    key = ("layer_costs", part, id(kind), tokens, plan.tp, plan.ep, plan.dp, plan.sequence_parallel, s.device, s.fabric)
    found: tuple[float, ...] | None = model.memo.get(key)
    if found is not None:
        return found
    forward = backward_input = backward_weight = mlp = collective = exchange = 0.0
    spread, norms = plan.tp if plan.sequence_parallel else 1, 0
    for name, seconds in token_operators(model, kind, tokens, s):
        one = float(seconds)
        norms += name == "norm"
        if name == "residual":
            one *= 1.0 if part == "layer" else 0.5  # One of the two sums belongs to each half.
        elif part != "layer" and (norms > 1) != (part == "mlp"):
            continue
        if name in ("all-reduce", "dispatch", "combine"):
            seconds = _collective(model, name, tokens, plan, s)
            collective, exchange = (collective + seconds, exchange) if name == "all-reduce" else (collective, exchange + seconds)
            continue
        if name in ("norm", "residual"):
            one /= spread
        forward += one
        if name.endswith("gate_up") or name == "act":
            mlp += one
        if name in _PRODUCTS:
            back = _transposed(model, kind.role(name), tokens, s)
            backward_input, backward_weight = backward_input + back[0], backward_weight + back[1]
        elif name in _EXPERTS:
            backward_input, backward_weight = backward_input + one, backward_weight + one
        else:
            backward_input += _passes(name, model.gated) * one
    found = model.memo[key] = (forward, backward_input, backward_weight, mlp, collective, exchange)
    return found


def _collective(model: Model, name: str, tokens: int, plan: Plan, s: Setting) -> float:
    """Seconds of one collective of a layer, over the far links where its group spans nodes."""
    byte = 2.0 * model.hidden * tokens
    if name == "all-reduce":
        return float(collective_seconds(s.fabric, name, byte, plan.tp, far=plan.tp > s.fabric.node))
    assert model.moe is not None
    here = byte * s.gathered * model.moe.top_k / plan.ep
    return float(collective_seconds(s.fabric, "all-to-all", here, plan.ep, far=plan.ep * plan.expert_tp > s.fabric.node))
