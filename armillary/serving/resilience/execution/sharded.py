"""Runs a real transformer on a layout, where each rank holds only its shards, and survives a loss with the mirror's data (PyTorch).

`Tiny` of `armillary.llm` runs over ranks of `armillary.comm`. A rank has the weights of its heads, of the data-parallel heads, of its MLP
columns and its vocabulary rows, and the keys and values of its heads and of its own requests' data-parallel heads. Every layer has an
all-reduce in its middle and one at its end. Full blocks go to a mirror, as in the simulation. After a loss the survivors keep what they
have or pass it on, the lost keys and values come from the mirror, and what was not in it is computed again. The logits equal those of
the unsharded model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.arrays import aligned
from armillary.errors import InputError

from ..planning.layout import DATA_PARALLEL, Layout, failsafe_layout

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.comm import Communicator
    from armillary.llm import Tiny

#: (request, layer, head) -> keys and values [2, tokens, head size].
Cache = dict[tuple[int, int, int], "Tensor"]
#: Tokens per block; only full blocks are mirrored.
BLOCK = 4


@dataclass
class Ranked:
    """One rank with its device, its shards, and its keys and values."""

    device: int
    weights: dict[str, Tensor]
    cache: Cache = field(default_factory=dict)


@dataclass(frozen=True)
class Survived:
    """Logits [requests][steps, vocabulary] of each new token, before and after the loss, and what the recovery did.

    `restored` and `moved` count (request, layer, head) entries that came from the mirror and from another survivor.
    """

    logits: list[Tensor]
    restored: int
    moved: int
    recomputed_tokens: int
    layouts: tuple[Layout, Layout]


def tiny_layout(model: Tiny, gpus: int | Sequence[int], *, keep: Layout | None = None, **options: Any) -> Layout:
    """Returns a layout of a tiny model, with units of 8 columns and 8 rows because it has few."""
    s = model.shape
    return failsafe_layout(s.kv_heads, s.layers, gpus, ffn=s.ffn, vocab=s.vocab, ffn_unit=8, vocab_unit=8, keep=keep, **options)


def shard(model: Tiny, layout: Layout, device: int) -> dict[str, Tensor]:
    """Returns the weights that a device holds, cut by heads, columns and rows; norms are whole."""
    import torch

    s, w = model.shape, model.weights
    if s.experts:
        raise InputError("experts are not sharded here; expected a dense model")
    group = s.heads // s.kv_heads * s.head_dim
    rows = _units(layout.vocab[0] == device, layout.vocab_unit, s.vocab)
    out = {"model.norm.weight": w["model.norm.weight"], "embed": w["model.embed_tokens.weight"][rows], "rows": rows}
    out["head"] = w["model.embed_tokens.weight" if s.tied else "lm_head.weight"][rows]
    for i in range(s.layers):
        at = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[f"{at}{name}"] = w[f"{at}{name}.weight"]
        for h in held_heads(layout, i, device):
            q, kv = slice(h * group, (h + 1) * group), slice(h * s.head_dim, (h + 1) * s.head_dim)
            for name, cut in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
                out[f"{at}{name}.{h}"] = w[f"{at}self_attn.{name}.weight"][cut]
                if s.qkv_bias:
                    out[f"{at}{name}.{h}.bias"] = w[f"{at}self_attn.{name}.bias"][cut]
            out[f"{at}o_proj.{h}"] = w[f"{at}self_attn.o_proj.weight"][:, q]
        columns = _units(layout.ffn[i] == device, layout.ffn_unit, s.ffn)
        out[f"{at}gate"], out[f"{at}up"] = w[f"{at}mlp.gate_proj.weight"][columns], w[f"{at}mlp.up_proj.weight"][columns]
        out[f"{at}down"] = w[f"{at}mlp.down_proj.weight"][:, columns]
    return {key: value if value.dtype == torch.int64 else value.clone() for key, value in out.items()}


def held_heads(layout: Layout, layer: int, device: int) -> list[int]:
    """Returns the heads whose weights a device holds: its own and the data-parallel ones."""
    row = layout.heads[layer]
    return [int(h) for h in np.flatnonzero((row == device) | (row == DATA_PARALLEL))]


def _units(mine: Any, unit: int, width: int) -> Tensor:
    import torch

    units = torch.from_numpy(np.flatnonzero(mine))
    found = (units[:, None] * unit + torch.arange(unit)).reshape(-1)
    return found[found < width]


def forward(
    comm: Communicator, model: Tiny, layout: Layout, rank: Ranked, work: Sequence[tuple[int, Sequence[int], int, int]]
) -> list[Tensor]:
    """Returns logits [vocabulary] after the last token of each item (request, its new tokens, tokens before, its data-parallel device).

    Embedding rows are summed over the ranks that have them, as are the parts of attention and the MLP in each layer. The rows of the head
    are concatenated. New keys and values are kept where the layout puts them.
    """
    import torch

    from armillary.llm.tiny.transformer import rms_norm, rotate, rotation

    s, w = model.shape, rank.weights
    found = []
    for request, tokens, before, home in work:
        ids = torch.as_tensor(tokens, dtype=torch.int64)
        x = torch.zeros(len(ids), s.hidden, dtype=w["embed"].dtype)
        hit = ids[:, None] == w["rows"][None, :]
        where = hit.nonzero()
        x[where[:, 0]] = w["embed"][where[:, 1]]
        x = _sum(comm, x)
        cos, sin = (a.to(x.dtype) for a in rotation(torch.arange(before, before + len(ids)), s.head_dim, s.theta))
        for i in range(s.layers):
            at = f"model.layers.{i}."
            h = rms_norm(x, w[f"{at}input_layernorm"], s.eps)
            part = torch.zeros_like(x)
            for head in held_heads(layout, i, rank.device):
                if layout.heads[i, head] == DATA_PARALLEL and home != rank.device:
                    continue
                q, k, v = (_linear(w, f"{at}{name}.{head}", h) for name in ("q_proj", "k_proj", "v_proj"))
                q = rotate(q.view(len(ids), -1, s.head_dim), cos, sin)
                k = rotate(k.view(len(ids), 1, s.head_dim), cos, sin)[:, 0]
                part += _attended(rank.cache, (request, i, head), q, k, v, before) @ w[f"{at}o_proj.{head}"].T
            x = x + _sum(comm, part)
            h = rms_norm(x, w[f"{at}post_attention_layernorm"], s.eps)
            x = x + _sum(comm, (torch.nn.functional.silu(h @ w[f"{at}gate"].T) * (h @ w[f"{at}up"].T)) @ w[f"{at}down"].T)
        last = rms_norm(x[-1:], w["model.norm.weight"], s.eps)
        logits = torch.zeros(s.vocab, dtype=x.dtype)
        logits[w["rows"]] = (last @ w["head"].T)[0]
        found.append(_sum(comm, logits))
    return found


def _linear(w: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    import torch

    return torch.nn.functional.linear(x, w[name], w.get(f"{name}.bias"))


def _attended(cache: Cache, key: tuple[int, int, int], q: Tensor, k: Tensor, v: Tensor, before: int) -> Tensor:
    """Returns the attention of new queries [tokens, queries of the head, size] to the head's cache up to each of them."""
    import torch

    new = torch.stack([k, v])
    old = cache.get(key)
    if (0 if old is None else old.shape[1]) < before:
        raise RuntimeError(f"keys and values of {key} are not here")
    cache[key] = new if old is None else torch.cat([old[:, :before], new], dim=1)
    keys, values = cache[key]
    score = torch.einsum("ngd,td->gnt", q, keys) / q.shape[-1] ** 0.5
    ahead = torch.arange(before + len(q)) > torch.arange(before, before + len(q))[:, None]
    score.masked_fill_(ahead, float("-inf"))
    return torch.einsum("gnt,td->ngd", torch.softmax(score, -1), values).reshape(len(q), -1)


def _sum(comm: Communicator, part: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(aligned(comm.allreduce(np.ascontiguousarray(part.numpy()))))


def serve_through_loss(
    model: Tiny, prompts: Sequence[Sequence[int]], *, gpus: int = 3, dead: int = 1, tokens_before: int = 3, tokens_after: int = 3,
    block: int = BLOCK, mirror: bool = True, backend: str = "threads",
) -> Survived:  # fmt: skip
    """Generates greedily over `gpus` ranks, loses device `dead`, recovers on the others and goes on; returns every step's logits.

    Requests get data-parallel ranks in turn. Without a `mirror` all keys and values are computed again. `backend` is one of
    `armillary.comm`.
    """
    from armillary import comm

    if not 1 < gpus <= 16 or not 0 <= dead < gpus:
        raise InputError(f"gpus, dead: found {gpus}, {dead}; expected at least 2 ranks and one of them")
    if not prompts or any(not len(p) for p in prompts):
        raise InputError("prompts: expected at least one, none of them empty")
    old = tiny_layout(model, gpus)
    home = [old.devices[q % gpus] for q in range(len(prompts))]
    ranks = [Ranked(d, shard(model, old, d)) for d in old.devices]
    said: list[list[int]] = [list(p) for p in prompts]
    first = comm.run(_generate, model, old, ranks, said, [0] * len(said), home, tokens_before, ranks=gpus, backend=backend).values[0]
    for q, new in enumerate(first[0]):
        said[q] += new
    safe = {key: kv[:, : kv.shape[1] // block * block].clone() for r in ranks for key, kv in r.cache.items()} if mirror else {}

    left = [d for d in old.devices if d != dead]
    new_layout = tiny_layout(model, left, keep=old)
    survivors = [r for r in ranks if r.device != dead]
    for r in survivors:
        r.weights = shard(model, new_layout, r.device)
    home = [d if d != dead else left[q % len(left)] for q, d in enumerate(home)]
    restored, moved, kept = _restore(new_layout, survivors, safe, said, home)
    second = comm.run(_generate, model, new_layout, survivors, said, kept, home, tokens_after, ranks=len(left), backend=backend).values[0]
    import torch

    logits = [torch.stack([*a, *b]) for a, b in zip(first[1], second[1], strict=True)]
    again = sum(len(s) - 1 - k for s, k in zip(said, kept, strict=True))
    return Survived(logits, restored, moved, again, (old, new_layout))


def _restore(layout: Layout, ranks: list[Ranked], safe: Cache, said: list[list[int]], home: list[int]) -> tuple[int, int, list[int]]:
    """Gives each new owner what it lacks; returns (entries from the mirror, entries from survivors, tokens of each request kept)."""
    kept = [len(tokens) - 1 for tokens in said]
    there: Cache = {key: kv for rank in ranks for key, kv in rank.cache.items()}
    restored = moved = 0
    for rank in ranks:
        own: Cache = {}
        for q in range(len(said)):
            for i in range(layout.layers):
                for h in held_heads(layout, i, rank.device):
                    key = (q, i, h)
                    if layout.heads[i, h] == DATA_PARALLEL and home[q] != rank.device:
                        continue
                    found = there.get(key, safe.get(key))
                    restored += key not in there and key in safe
                    moved += key in there and key not in rank.cache
                    kept[q] = min(kept[q], 0 if found is None else found.shape[1])
                    if found is not None:
                        own[key] = found
        rank.cache = own
    return restored, moved, kept


def _generate(
    ranks_comm: Communicator,
    model: Tiny,
    layout: Layout,
    ranks: list[Ranked],
    said: list[list[int]],
    kept: list[int],
    home: list[int],
    steps: int,
) -> tuple[list[list[int]], list[list[Tensor]]]:
    """Generates greedy tokens and their logits on one rank, after the prompts or the parts of them that are not kept."""
    mine = ranks[ranks_comm.rank]
    tokens, done = [list(t) for t in said], list(kept)
    new: list[list[int]] = [[] for _ in tokens]
    logits: list[list[Tensor]] = [[] for _ in tokens]
    for _ in range(steps):
        work = [(q, t[done[q] :], done[q], home[q]) for q, t in enumerate(tokens)]
        for q, out in enumerate(forward(ranks_comm, model, layout, mine, work)):
            done[q] = len(tokens[q])
            tokens[q].append(int(out.argmax()))
            new[q].append(tokens[q][-1])
            logits[q].append(out)
    return new, logits
