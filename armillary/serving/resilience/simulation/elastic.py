"""One tensor-parallel group over all available GPUs, however many, which shrinks with a loss and grows with a repair.

After a loss, requests in flight stop, and the survivors get a layout that moves little. Missing weights, and keys and values from the
mirror, are copied over all links at once (`recovery`). Serving goes on when the weights have arrived, and each request when its keys and
values have. Surviving keys and values that the new layout would put elsewhere stay where they are until their request ends (`lazy`), or
move over NVLink at once. A further loss begins again from what has arrived. When the survivors no longer hold the model, the service
stops, keeps what it has, and goes on after the next repair. A repaired GPU starts its process and fetches its weights while the others
work, and joins between two iterations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.llm.serving import state as st

from ..planning.layout import DATA_PARALLEL, Layout, Owners, Placement
from ..planning.recovery import Held, Recovery, recover, spread
from ..workload import ResilienceWork
from .mirror import Mirror
from .ranks import Ranks
from .service import DETECTION_S, REGROUP_S, RESTART_S, Service

Ints = npt.NDArray[np.int64]
TICK_S = 0.25


class Elastic(Service):
    """The service of FailSafe and of the techniques that have some of its parts."""

    def __init__(
        self, work: ResilienceWork, *, placement: Placement, load_aware: bool, backup_share: float, lazy: bool, migrate_above: float = 0.2,
    ) -> None:  # fmt: skip
        node = work.node
        self.placement, self.backup_share, self.lazy = placement, backup_share, lazy
        mirror = node.kv_blocks(node.layout(node.gpus, placement)) * node.block * node.kv_token_bytes
        if backup_share > 0 and mirror + node.model.weight_bytes() > node.host_bytes:
            raise InputError(
                f"host_bytes: {node.host_bytes / 1e9:,.0f} GB do not hold the weights and a mirror of {mirror / 1e9:,.0f} GB; "
                "expected more, or backup_share=0"
            )
        least = node.least_gpus(placement)
        sizes = range(node.gpus, least - 1, -1)
        super().__init__(work, [node.layout(g, placement) for g in sizes], [0], side_by_side=load_aware)
        self.replica_of = {g: r for r, g in enumerate(sizes)}
        self.layout: Layout = self.layouts[0]
        self.alive = list(range(node.gpus))
        self.held = Held.of(self.layout, node.gpus)
        self.mirror = Mirror(len(work.requests), node.block)
        self.ranks = Ranks(len(work.requests), load_aware=load_aware, migrate_above=migrate_above)
        #: The places of requests' keys and values, as one map of owners per number; new requests get the last map.
        self.maps: list[Owners] = [self.layout.heads]
        self.map_of: Ints = np.full(len(work.requests), -1, np.int64)
        #: Requests between two replicas, with the tokens kept and the (layer, head) still missing, and those that only wait.
        self.limbo: dict[int, tuple[int, npt.NDArray[np.bool_]]] = {}
        self.queue: list[int] = []
        self.recovery: Recovery | None = None
        self.recovery_began = 0.0
        self.serves = True
        self._dense: dict[int, npt.NDArray[np.float64]] = {}
        self.tick_s = TICK_S if backup_share > 0 or placement == "hybrid" else 0.0
        self._first = 0
        self._shaped: tuple[Layout | None, tuple[float, float, float, float]] = (None, (0.0, 0.0, 0.0, 0.0))
        #: The starting GPUs with the number of the start, so that one that was lost meanwhile does not join.
        self._joining: dict[int, int] = {}

    @property
    def current(self) -> int:
        """The replica for the present number of GPUs."""
        return self.replica_of[self.layout.gpus]

    # -- while it serves --

    def _running(self) -> Ints:
        """Returns the running requests in the order of arrival."""
        seq, came = self.serving.state.seq, int(self.serving.feed.state[0])
        status = seq[self._first : came, st.STATUS]
        going = status != st.FINISHED
        if len(going) and not going[0]:
            ended = int(np.argmax(going)) if going.any() else len(going)
            self._first += ended
            status = status[ended:]
        return np.flatnonzero(status == st.RUNNING) + self._first

    def tick(self) -> None:
        """Assigns ranks to admitted requests, updates the mirror, and sets the price of the present spread."""
        running = self._running()
        self.map_of[running[self.map_of[running] < 0]] = len(self.maps) - 1
        r = self.current
        if self.layout.dp_heads.any() or len(self.maps) > 1:
            self._spread(running, r)
        if self.backup_share > 0:
            rate = self.backup_share * self.node.pcie / self._shape()[0]
            self.mirror.update(self.now, running, self.serving.state.seq[running, st.COMPUTED], rate)
            self.mirrored_bytes = self.mirror.copied_tokens * float(self.node.kv_token_bytes)

    def _spread(self, running: Ints, r: int) -> None:
        p, devices = self.prices[r], sorted(self.layout.devices)
        shares = (p.even, p.even, p.even)
        if self.layout.dp_heads.any():
            ratio = p.pair_s[1] / p.context_s[1] if p.context_s[1] > 0 else 0.0
            _, tp, dp, free = self._shape()
            room = (free - float(self.serving.state.seq[running, st.COMPUTED].sum()) * tp) / dp
            self.ranks.assign(self.serving, running, devices, ratio, room)
            token_s = (p.bodies[-1, -1] - p.bodies[0, -1]) / (p.grid[-1] * (1 - p.even)) if len(p.shares) > 1 else 0.0
            shares = self.ranks.look(self.serving, r, devices, (token_s, p.pair_s[1], p.context_s[1]))
            self.imbalance_seen.append((tp + dp * max(shares[2], p.even)) / (tp + dp * p.even))
        if r not in self._dense:
            tokens = np.arange(self.serving.prices.body.shape[1], dtype=float)
            self._dense[r] = np.stack([np.interp(tokens, p.grid, row) for row in p.bodies])
        body = self._dense[r]
        if len(p.shares) > 1:
            weights = np.array([np.interp(shares[0], p.shares, column) for column in np.eye(len(p.shares))])
            self.serving.prices.body[r] = weights @ body
        pair_s, context_s = p.rates(shares[1], shares[2])
        scale = self._old_maps(running)
        self.serving.prices.rate[r, 0], self.serving.prices.rate[r, 1] = pair_s * scale, context_s * scale

    def _shape(self) -> tuple[float, float, float, float]:
        """Returns a token's KV bytes on the fullest GPU, in tensor-parallel and in data-parallel heads, and the bytes free for KV."""
        if self._shaped[0] is not self.layout:
            b, layout = self.node.head_layer_bytes, self.layout
            sizes = (
                float(layout.head_layers().max()) * b,
                float(layout.heads_per_gpu.sum(axis=0).max()) * b,
                float(layout.dp_heads.sum()) * b,
            )
            self._shaped = (layout, (*sizes, float(self.node.free_bytes(layout).min())))
        return self._shaped[1]

    def _old_maps(self, running: Ints) -> float:
        """Returns the factor by which attention is slower because some requests' keys and values are still placed by an older layout."""
        if len(self.maps) == 1 or not len(running):
            return 1.0
        context = self.serving.state.seq[running, st.COMPUTED].astype(float)
        weight = np.bincount(self.map_of[running], weights=context, minlength=len(self.maps))
        if weight[:-1].sum() == 0 or weight.sum() == 0:
            return 1.0
        now = _slowest(self.maps[-1], self.layout)
        return float(sum(w * _slowest(m, self.layout) for w, m in zip(weight, self.maps, strict=True) if w) / weight.sum() / now)

    def repriced(self) -> None:
        """Computes the prices again, and the tables for the spread of requests."""
        self._dense.clear()
        super().repriced()

    def _next_layout(self) -> Layout:
        """Returns the layout of the available GPUs that moves as little as the placement allows."""
        return self.node.layout(tuple(self.alive), self.placement, keep=None if self.placement == "naive" else self.layout)

    # -- a loss --

    def down(self, device: int) -> None:
        """Stops the requests in flight and recovers on the survivors, if they hold the model."""
        self._joining.pop(device, None)
        if device not in self.alive:
            return
        self.tick()
        self.generation += 1
        if self.recovery is not None:
            self.recovery.arrive(self.held, max(0.0, self.now - self.recovery_began), self.node.pcie)
        self.alive.remove(device)
        self.held.forget(device)
        running, waiting = self.halt(self.current) if self.serves or self.current in self.opened else ([], [])
        self.interrupt(running)
        for q, computed in running:
            kept = min(computed, int(self.mirror.safe[q])) if self.backup_share > 0 else 0
            self.lost_tokens += computed - kept
            self.limbo[q] = (kept, np.zeros(self.layout.heads.shape, bool))
        for q, (kept, missing) in self.limbo.items():
            lies = self.maps[self.map_of[q]]
            gone = (lies == device) | ((lies == DATA_PARALLEL) & (self.ranks.of[q] == device))
            self.limbo[q] = (kept, missing | gone)
        self.map_of[waiting] = -1
        self.queue += waiting
        self._recover(f"GPU {device} is lost", DETECTION_S + REGROUP_S)

    def _recover(self, why: str, noticed_s: float) -> None:
        layout = self._next_layout() if self.alive else None
        if layout is None or layout.gpus not in self.replica_of or not self.node.fits(layout):
            self.serves, self.recovery = False, None
            self.say(f"{why}; the {len(self.alive)} left do not hold the model: stopped with {len(self.limbo)} requests held")
            return
        self.layout, self.serves = layout, True
        self.ranks.forget()
        self._place(layout)
        who = sorted(self.limbo)
        kept = np.array([self.limbo[q][0] for q in who], np.int64)
        missing = np.stack([self.limbo[q][1] for q in who]) if who else np.zeros((0, *layout.heads.shape), bool)
        rank = self.ranks.of[who] if who else np.zeros(0, np.int64)
        # Short requests come first, because they are restored soonest.
        plan = recover(self.node, layout, self.held, kept, missing, rank, order=np.argsort(kept, kind="stable"))
        moved = 0.0 if self.lazy else self._move_all(layout, who)
        begin = self.now + noticed_s
        self.recovery, self.recovery_began = plan, begin
        r = self.current
        self.say(
            f"{why}; {layout.gpus} GPUs go on: {plan.weight_bytes / 1e9:.1f} GB of weights, {plan.kv_bytes / 1e9:.2f} GB of KV, "
            f"{1e3 * (noticed_s + plan.seconds + moved):.0f} ms"
        )
        self.later(begin + plan.weights_s + moved, lambda: self._opened(r))
        times = begin + np.maximum(plan.kv_s, plan.weights_s) + moved
        for time_s in np.unique(times):
            group = [q for q, t in zip(who, times, strict=True) if t == time_s]
            self.later(float(time_s), lambda group=group: self._back(group))  # type: ignore[misc]
        self.later(float(times.max(initial=begin + plan.weights_s + moved)) + 1e-9, self._restored)

    def _place(self, layout: Layout) -> None:
        """Assigns new owners to what is missing, and a rank to the requests that need one."""
        new_map = layout.heads
        if layout.dp_heads.any():
            who = np.array(sorted(self.limbo), np.int64)
            here = np.where(np.isin(self.ranks.of[who], layout.devices), self.ranks.of[who], -1)
            self.ranks.of[who] = spread(self.serving.state.seq[who, st.KNOWN], layout.devices, here)
        lies = {q: np.where(missing | (kept == 0), new_map, self.maps[self.map_of[q]]) for q, (kept, missing) in self.limbo.items()}
        known: dict[bytes, int] = {}
        for found in (*(m for m in lies.values() if not np.array_equal(m, new_map)), new_map):
            if found.tobytes() not in known:
                self.maps.append(found)
                known[found.tobytes()] = len(self.maps) - 1
        for q, found in lies.items():
            self.map_of[q] = known[found.tobytes()]

    def _move_all(self, layout: Layout, who: list[int]) -> float:
        """Returns the seconds to move all surviving keys and values over NVLink to their places in the new layout."""
        sent = 0.0
        for q in who:
            lies = self.maps[self.map_of[q]]
            sent += float((lies != layout.heads).sum()) * self.limbo[q][0] * self.node.head_layer_bytes
            self.map_of[q] = len(self.maps) - 1
        return sent / (layout.gpus * self.node.nvlink)

    def _opened(self, r: int) -> None:
        self._dense.clear()
        self.open(r, self.layout)

    def _back(self, group: list[int]) -> None:
        for q in group:
            kept, _ = self.limbo.pop(q)
            self.mirror.back(q, kept)
            self.send(q, self.current, kept=kept)

    def _restored(self) -> None:
        if self.recovery is not None:
            self.recovery.arrive(self.held, np.inf, self.node.pcie)
        self.recovery = None
        self.held = Held.of(self.layout, self.node.gpus)
        queue, self.queue = self.queue, []
        for q in queue:
            self.send(q, self.current)

    # -- a repair --

    def up(self, device: int) -> None:
        """Lets the GPU start its process and fetch its weights, after which it joins."""
        began = len(self.story)
        self.say(f"GPU {device} is back and starts")
        layout = self.node.layout((*sorted(self.alive), device), self.placement, keep=self.layout if self.placement != "naive" else None)
        fetch = float(self.node.weight_bytes(layout)[-1]) / self.node.pcie
        self._joining[device] = began
        self.serving.at(self.now + RESTART_S + fetch, lambda: self._joins(device, began))

    def _joins(self, device: int, began: int) -> None:
        """Lets a GPU join between two iterations, unless it was lost again."""
        if self._joining.get(device) != began:
            return
        if self.recovery is not None:
            self.serving.at(self.now + 0.05, lambda: self._joins(device, began))
            return
        del self._joining[device]
        self.alive = sorted([*self.alive, device])
        layout = self._next_layout()
        for part, full in zip(self.held.parts(), Held.of(layout, self.node.gpus).parts(), strict=True):
            part[device] = full[device]
        if not self.serves:
            self.generation += 1
            self._recover(f"GPU {device} joins", 0.0)
            return
        old = self.current
        self.serving.pause(old)
        end = float(self.serving.state.clock[old, st.END])
        self.later(max(self.now, end) if np.isfinite(end) else self.now, lambda: self._grown(old, device))

    def _grown(self, old: int, device: int, moved: bool = False) -> None:
        layout = self._next_layout()
        running, waiting = self.serving.running(old), self.serving.waiting(old)
        seq = self.serving.state.seq
        if not self.lazy and not moved:
            cells = sum(float((self.maps[self.map_of[q]] != layout.heads).sum()) * int(seq[q, st.COMPUTED]) for q in running)
            seconds = cells * self.node.head_layer_bytes / (layout.gpus * self.node.nvlink)
            self.later(self.now + seconds, lambda: self._grown(old, device, True))
            return
        self.layout = layout
        self.held = Held.of(layout, self.node.gpus)
        self.maps.append(layout.heads)
        if not self.lazy:
            self.map_of[running] = len(self.maps) - 1
        new = self.current
        for q in (*running, *waiting):
            self.serving.migrate(q, new)
        self.opened.discard(old)
        self.ranks.forget()
        self._dense.clear()
        self.open(new, layout)
        self.say(f"GPU {device} joins; {layout.gpus} GPUs serve")


def _slowest(owners: Owners, layout: Layout) -> float:
    """Returns the attention, in heads, for which layers wait in total, if keys and values are placed so and ranks are even."""
    counts = np.stack([(owners == d).sum(axis=1) for d in layout.devices], axis=1)
    return float(counts.max(axis=1).sum() + (owners == DATA_PARALLEL).sum() / layout.gpus)
