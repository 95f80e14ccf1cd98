"""Plans what must be copied after a loss, from where, and how long that takes.

Every survivor fetches only the shards of the new layout that it does not hold, over its own PCIe link from the host or over NVLink from
a survivor that has them. Bytes that several need are fetched once, by each of them in turn, and passed on over NVLink. Then the new
owners read the lost keys and values from the mirror over all links at once, and what was not mirrored is computed again.

FailSafe (arXiv 2511.14116); passing on from holders and the order of the copies are our design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from .layout import DATA_PARALLEL, Layout
from .models import find_model
from .node import Node

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
HOST = -1


@dataclass(frozen=True)
class Transfer:
    """Bytes that go from the host (HOST) or a device to a device."""

    what: Literal["weights", "kv"]
    source: int
    target: int
    nbytes: float


@dataclass
class Held:
    """The weights that each device has: heads [devices, layers, heads], ffn [devices, layers, units], vocab [devices, 1, units]."""

    heads: Mask
    ffn: Mask
    vocab: Mask

    @classmethod
    def of(cls, layout: Layout, devices: int) -> Held:
        """Returns what a layout puts on each of `devices` devices."""
        each = np.arange(devices)[:, None, None]
        member = np.isin(np.arange(devices), layout.devices)[:, None, None]
        return cls((layout.heads == each) | (member & (layout.heads == DATA_PARALLEL)), layout.ffn == each, layout.vocab == each)

    def forget(self, device: int) -> None:
        """Removes everything that a lost device had."""
        self.heads[device], self.ffn[device], self.vocab[device] = False, False, False

    def parts(self) -> tuple[Mask, Mask, Mask]:
        """Returns the three kinds of shard."""
        return self.heads, self.ffn, self.vocab


@dataclass(frozen=True)
class Recovery:
    """A plan of transfers and recomputation, with the times of arrival in seconds from its start.

    Everything is back after `seconds`, serving can go on after `weights_s`, and each request's keys and values are there after `kv_s`
    [requests]. `lower_bound_s` is bytes over bandwidth, which no order of the copies can beat.
    """

    layout: Layout
    transfers: tuple[Transfer, ...]
    kept: npt.NDArray[np.int64]
    rank: npt.NDArray[np.int64]
    recompute_tokens: int
    weights_s: float
    kv_s: Floats
    seconds: float
    lower_bound_s: float
    #: Bytes over all PCIe links together for weights and for keys and values.
    weight_bytes: float
    kv_bytes: float
    _fetches: tuple[tuple[int, Floats, npt.NDArray[np.int64]], ...]

    def arrive(self, held: Held, after_s: float, pcie: float) -> None:
        """Marks in `held` what has arrived `after_s` seconds from the start, which is where a further loss begins."""
        done = after_s >= self.weights_s
        for device, nbytes, shard in self._fetches:
            there = np.cumsum(nbytes) <= pcie * after_s + 1e-6
            for kind, part in enumerate(held.parts()):
                mine = shard[(shard[:, 0] == kind) & there]
                part[device, mine[:, 1], mine[:, 2]] = True
        if done:
            full = Held.of(self.layout, len(held.heads))
            for part, new in zip(held.parts(), full.parts(), strict=True):
                part |= new


def plan_recovery(
    layout_old: Layout, dead: int | Sequence[int], kv_tokens: int | npt.ArrayLike, mirrored: int | npt.ArrayLike, *,
    node: Node | None = None, rank: npt.ArrayLike | None = None,
) -> Recovery:  # fmt: skip
    """Plans the recovery when `dead` of `layout_old` is lost while requests hold the keys and values of `kv_tokens` tokens each.

    `mirrored` of these are in host memory. `rank` gives each request's data-parallel device (without it they are spread evenly). `node`
    has the model's bytes and the links; its default is Llama-3.1-70B on eight H100s, if the layout has that shape. Raises `InputError`
    if the weights do not fit on the survivors.
    """
    on = node or Node(find_model("llama-3.1-70b"))
    shape = (on.model.layers, on.model.kv_heads)
    if layout_old.heads.shape != shape:
        raise InputError(f"a layout of {layout_old.heads.shape} (layers, heads); {on.model.name} has {shape}: give its node")
    gone = (dead,) if isinstance(dead, int) else tuple(dead)
    for d in gone:
        if d not in layout_old.devices:
            raise InputError(f"dead: found device {d}; expected one of {', '.join(map(str, layout_old.devices))}")
    left = tuple(d for d in layout_old.devices if d not in gone)
    if not left:
        raise InputError("dead: no device is left")
    tokens = np.atleast_1d(np.asarray(kv_tokens, np.int64))
    safe = np.broadcast_to(np.asarray(mirrored, np.int64), tokens.shape)
    if len(tokens) and (tokens.min() < 0 or safe.min() < 0):
        raise InputError("kv_tokens, mirrored: expected tokens, 0 or more, for each request")
    kept = np.minimum(tokens, safe)
    if layout_old.ffn.shape[1] == 0:
        layout_old = _with_matrices(on, layout_old)
    new = on.layout(left, layout_old.placement, keep=None if layout_old.placement == "naive" else layout_old)
    on.check(new)
    held = Held.of(layout_old, max(layout_old.devices) + 1)
    before = spread(kept, layout_old.devices) if rank is None else np.asarray(rank, np.int64)
    if before.shape != tokens.shape:
        raise InputError(f"rank: found {before.shape} devices; expected one for each of {len(tokens)} requests")
    missing = np.zeros((len(tokens), *shape), bool)
    for d in gone:
        held.forget(d)
        missing |= (layout_old.heads == d) | ((layout_old.heads == DATA_PARALLEL) & (before == d)[:, None, None])
    after = np.where(np.isin(before, gone) | (layout_old.dp_heads.sum() == 0), -1, before)
    after = spread(kept, left, after)
    return recover(on, new, held, kept, missing, after, recompute_tokens=int((tokens - kept).sum()))


def _with_matrices(node: Node, layout: Layout) -> Layout:
    """Returns the layout with the model's MLP and vocabulary on the same devices."""
    full = node.layout(layout.devices, layout.placement)
    return Layout(layout.placement, layout.devices, layout.heads, full.ffn, full.vocab)


def spread(tokens: npt.NDArray[np.int64], devices: Sequence[int], fixed: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """Assigns a device to each request without one (-1), longest first, each to the device with the fewest tokens."""
    out = np.full(len(tokens), -1, np.int64) if fixed is None else fixed.copy()
    load = {d: float(tokens[out == d].sum()) for d in devices}
    for q in np.argsort(-tokens, kind="stable"):
        if out[q] == -1:
            best = min(devices, key=lambda d: (load[d], d))
            out[q] = best
            load[best] += float(tokens[q])
    return out


def recover(
    node: Node, new: Layout, held: Held, kept: npt.NDArray[np.int64], missing: Mask, rank: npt.NDArray[np.int64], *,
    recompute_tokens: int = 0, order: npt.NDArray[np.int64] | None = None,
) -> Recovery:  # fmt: skip
    """Plans the copies that lead to `new`, given what is `held` and which (layer, head) of each request's `kept` tokens are `missing`."""
    devices = new.devices
    at = {d: j for j, d in enumerate(devices)}
    g = len(devices)
    exclusive, shared, sent = np.zeros(g), np.zeros(g), np.zeros((g, g))
    fetch_bytes: list[list[Floats]] = [[] for _ in devices]
    fetch_shards: list[list[npt.NDArray[np.int64]]] = [[] for _ in devices]
    wanted = Held.of(new, len(held.heads))
    per_layer = node.bytes_by_layer
    sizes = (per_layer[:, 0], per_layer[:, 1], np.array([node.vocab_unit_bytes]))
    turn = 0
    for kind, (need, have, size) in enumerate(zip(wanted.parts(), held.parts(), sizes, strict=True)):
        lacking = (need & ~have)[list(devices)]  # [GPUs, layers, units]
        holders = have[list(devices)]
        count = lacking.sum(axis=0)
        for j in range(g):
            for i in range(g):
                # From the first survivor that has it.
                first = holders[i] & ~holders[:i].any(axis=0)
                sent[i, j] += float((size[:, None] * (lacking[j] & first)).sum())
            alone = lacking[j] & ~holders.any(axis=0) & (count == 1)
            where = np.argwhere(alone)
            exclusive[j] += float((size[:, None] * alone).sum())
            fetch_shards[j].append(np.column_stack([np.full(len(where), kind), where]))
            fetch_bytes[j].append(size[where[:, 0]])
        for layer, unit in np.argwhere(~holders.any(axis=0) & (count > 1)):
            need_it = np.flatnonzero(lacking[:, layer, unit])
            j = int(need_it[turn % len(need_it)])
            turn += 1
            shared[j] += size[layer]
            fetch_shards[j].insert(0, np.array([[kind, layer, unit]]))
            fetch_bytes[j].insert(0, size[[layer]])
            for other in need_it:
                sent[j, other] += size[layer] * (int(other) != j)
    kv = _kv_bytes(node, new, kept, missing, rank)
    sequence = np.arange(len(kept)) if order is None else order
    weights_s, kv_s, seconds = _timed(node, exclusive, shared, sent, kv, sequence)
    found = [Transfer("weights", HOST, d, float(exclusive[at[d]] + shared[at[d]])) for d in devices]
    found += [Transfer("weights", devices[i], devices[j], float(sent[i, j])) for i in range(g) for j in range(g)]
    found += [Transfer("kv", HOST, d, float(kv[:, at[d]].sum())) for d in devices]
    own = exclusive + kv.sum(axis=0)
    bound = max(
        float(own.max()) / node.pcie, float(own.sum() + shared.sum()) / (g * node.pcie), float(sent.sum(axis=0).max()) / node.nvlink,
        float(sent.sum(axis=1).max()) / node.nvlink,
    )  # fmt: skip
    fetches = tuple(
        (d, np.concatenate(fetch_bytes[j]), np.concatenate(fetch_shards[j]).astype(np.int64)) for j, d in enumerate(devices)
    )  # fmt: skip
    return Recovery(
        new, tuple(t for t in found if t.nbytes > 0), kept, rank, recompute_tokens, weights_s, kv_s, seconds, bound,
        float(exclusive.sum() + shared.sum()), float(kv.sum()), fetches,
    )  # fmt: skip


def _kv_bytes(node: Node, new: Layout, kept: npt.NDArray[np.int64], missing: Mask, rank: npt.NDArray[np.int64]) -> Floats:
    """Returns the bytes of keys and values that each GPU reads from the mirror, [requests, GPUs]."""
    flat = missing.reshape(len(kept), new.heads.size).astype(np.float32)
    owner = new.heads.reshape(-1)
    counts = np.stack([flat @ (owner == d).astype(np.float32) for d in new.devices], axis=1).astype(np.float64)
    own = flat @ (owner == DATA_PARALLEL).astype(np.float32)
    counts += own[:, None] * (rank[:, None] == np.asarray(new.devices)[None, :])
    return np.asarray(counts * (kept[:, None] * node.head_layer_bytes))


def _timed(
    node: Node, exclusive: Floats, shared: Floats, sent: Floats, kv: Floats, order: npt.NDArray[np.int64]
) -> tuple[float, Floats, float]:
    """Returns the times at which the weights, each request's keys and values, and everything have arrived, as flows over the links."""
    from armillary.engine import Activity, Pool, Simulation

    g = len(exclusive)
    with Simulation() as sim:
        lane = [Pool(sim, node.pcie, f"pcie {j}") for j in range(g)]
        out, into = [Pool(sim, node.nvlink, f"from {j}") for j in range(g)], [Pool(sim, node.nvlink, f"to {j}") for j in range(g)]
        weights, begun, ended = [0.0], np.zeros(g), np.zeros(g)

        def noted(_: object) -> None:
            weights.append(sim.now)

        def passed_on(j: int) -> None:
            for i in range(g):
                if sent[j, i] > 0:
                    Activity(sim, float(sent[j, i]), [out[j], into[i]]).callbacks.append(noted)  # type: ignore[union-attr]

        def one(j: int):  # type: ignore[no-untyped-def]
            if shared[j] > 0:
                yield Activity(sim, float(shared[j]), [lane[j]])
            passed_on(j)
            if exclusive[j] > 0:
                yield Activity(sim, float(exclusive[j]), [lane[j]])
            weights.append(sim.now)
            begun[j] = sim.now
            if kv[:, j].sum() > 0:
                yield Activity(sim, float(kv[:, j].sum()), [lane[j]])
            ended[j] = sim.now

        for j in range(g):
            sim.process(one(j))
        sim.run()
    ready = max(weights)
    there = np.full(len(kv), ready)
    for j in range(g):
        done = begun[j] + np.cumsum(kv[order, j]) / node.pcie
        there[order] = np.maximum(there[order], np.where(kv[order, j] > 0, done, 0.0))
    return ready, there, float(max(ready, ended.max(initial=0.0)))
