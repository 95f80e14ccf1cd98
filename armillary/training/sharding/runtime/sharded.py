"""A PyTorch module whose parameters are sharded over ranks: gathered when a part of it computes, reduced when its gradients are there.

Hooks do the work, so that the module is called and differentiated as before. While a group computes, the next one is gathered, and while
the backward pass goes on, gradients are averaged. After `loss.backward()` every rank has the gradient of its shard, and any element-wise
optimizer of PyTorch may step on `parameters()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from armillary.comm import Communicator
from armillary.errors import InputError, unknown

from ..layouts.bucket import Bucket, Flat
from ..layouts.sharding import Group as Layout
from ..layouts.sharding import Sharding
from ..ragged.granularity import Weight, weights_of
from ..ragged.planner import ALIGN, Plan
from .groups import Buffers, Group, Pool
from .shards import Shards
from .wires import Wires

OPTIMIZERS = ("adamw", "adam8bit", "muon", "shampoo", "none")


class Sharded:
    """A module whose weights are spread over ranks. Call it as the module; `step()` makes a step of its optimizer."""

    def __init__(
        self, module: nn.Module, ranks: Communicator, sharding: Sharding, layouts: Sequence[Layout], units: Sequence[nn.Module],
        rest: Layout | None, *, dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        self.module, self.sharding = module, sharding
        self.wires = Wires(ranks)
        self.optimizer: Any = None
        self._by_name = dict(module.named_parameters())
        self._dtype = dtype
        #: The groups in the order of the forward pass; weights outside the units come last, and stay gathered.
        self.groups: list[Group] = []
        self._units: list[list[nn.Module]] = []
        at = 0
        for layout in layouts:
            self._units.append(list(units[at : at + layout.modules]))
            at += layout.modules
            self.groups.append(self._group(layout, resident=False))
        if rest is not None:
            self.groups.append(self._group(rest, resident=True))
        self._make_buffers()
        self._ends_queued = False
        #: Groups whose gradients were being averaged, the newest last.
        self._reducing: list[Group] = []
        #: The numbers of the groups whose gradients were reduced in this backward pass.
        self._reduced: set[int] = set()
        #: Called at moments when memory may be at its peak.
        self.on_event: Callable[[], None] | None = None
        for number, modules in enumerate(self._units):
            self._hook(number, modules)
        for group in self.groups:
            for shards in group.shards:
                for weight in (w for w in shards.weights if w.requires_grad):
                    weight.register_post_accumulate_grad_hook(self._accumulated(group))  # type: ignore[no-untyped-call]
        module.register_forward_pre_hook(self._before)

    def _group(self, layout: Layout, *, resident: bool) -> Group:
        how = self.sharding
        made = [
            Shards(
                bucket, [self._by_name[w.name] for w in bucket.weights], self.wires, views=how.has_views,
                gradient_views=how.has_gradient_views, dtype=None if how.replicated else self._dtype,
            )
            for bucket in layout.buckets
        ]  # fmt: skip
        return Group(len(self.groups), made, resident=resident, replicated=how.replicated)

    def _make_buffers(self) -> None:
        if self.sharding.replicated:
            for group in self.groups:
                for shards in group.shards:
                    shards.point_at(shards.local.detach(), lasting=True)
            return
        sizes = [[s.bucket.padded for s in group.shards] for group in self.groups]
        pools: dict[int, Pool] = {}
        dtype = self.groups[0].shards[0].dtype
        if self.sharding.pooled:
            for place in (0, 1):
                turn = [sum(size) for g, size in zip(self.groups, sizes) if not g.resident and g.number % 2 == place]
                if turn:
                    pools[place], pools[2 + place] = Pool(max(turn), dtype), Pool(max(turn), dtype)
        for group, size in zip(self.groups, sizes):
            own = group.resident or not self.sharding.pooled
            group.gathered = Buffers(size, dtype, None if own else pools[group.number % 2])
            group.gradients = Buffers(size, dtype, None if own else pools[2 + group.number % 2])
            for shards, part in zip(group.shards, group.gathered.parts):
                if shards.views:
                    shards.point_at(part, lasting=not own)
            group.gathered.give()
            group.gradients.give()

    # The forward pass

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the module."""
        return self.module(*args, **named)

    def _before(self, module: nn.Module, args: Any) -> None:
        self._ends_queued = False
        for group in self.groups:
            # What an earlier pass left gathered may have changed in the shards.
            if group.under_way:
                group.end_gather()
            group.release()
            if group.resident:
                group.begin_gather()
                group.end_gather()
                # Nothing announces the first gradient of weights outside the units, so their memory is prepared here.
                if torch.is_grad_enabled():
                    group.begin_backward()

    def _hook(self, number: int, modules: Sequence[nn.Module]) -> None:
        group = self.groups[number]

        def before(module: nn.Module, args: Any) -> None:
            self._need(group, 1)

        def after(module: nn.Module, args: Any, out: Any) -> None:
            for tensor in _tensors_in(out):
                if tensor.requires_grad:
                    tensor.register_hook(before_backward)  # type: ignore[no-untyped-call]
            # The last group is the first that the backward pass needs.
            if module is modules[-1] and (group.number + 1 < len(self._units) or not torch.is_grad_enabled()):
                group.release()

        def before_backward(gradient: Tensor) -> None:
            self._queue_end()
            self._need(group, -1)
            if group.pending is None and group.number not in self._reduced:
                self._room_for_gradients(group)
                group.begin_backward()
                self._event()

        for module in modules:
            module.register_forward_pre_hook(before)
            module.register_forward_hook(after)

    def _need(self, group: Group, direction: int) -> None:
        """Have a group gathered, and begin with the next one in the direction of the pass."""
        if group.ready:
            return
        for other in self._in_its_place(group):
            other.end_gather()
            other.release()
        group.begin_gather()
        group.end_gather(self._event)
        ahead = group.number + direction
        if self.sharding.prefetches and 0 <= ahead < len(self._units) and not self._in_its_place(self.groups[ahead]):
            self.groups[ahead].begin_gather()
        self._event()

    def _in_its_place(self, group: Group) -> list[Group]:
        """The groups that were gathered into the memory of this one: none, unless units run in another order than they were given in."""
        if not self.sharding.pooled or group.ready or group.under_way:
            return []
        same = [g for g in self.groups if not g.resident and g is not group and g.number % 2 == group.number % 2]
        return [g for g in same if g.ready or g.under_way]

    # The backward pass

    def _room_for_gradients(self, group: Group) -> None:
        """Wait for the reduction that still uses the memory in which this group's gradients go."""
        if self.sharding.replicated or group.resident:
            return
        self._reducing = [g for g in self._reducing if g.reducing]
        if self.sharding.pooled:
            others = [g for g in self._reducing if g.number % 2 == group.number % 2]
        else:
            # The newest reduction may go on while this group's gradients are made.
            others = self._reducing[:-1]
        for other in others:
            other.end_reduce()

    def _accumulated(self, group: Group) -> Callable[[nn.Parameter], None]:
        def hook(weight: nn.Parameter) -> None:
            self._queue_end()
            if group.pending is None:
                raise RuntimeError("a gradient arrived for a unit whose backward pass had not begun")
            group.pending -= 1
            if group.pending == 0 and not group.resident:
                self._reduce(group)

        return hook

    def _reduce(self, group: Group) -> None:
        self._event()
        self._room_for_gradients(group)
        group.begin_reduce(self._event)
        self._reduced.add(group.number)
        if not group.resident:
            self._reducing.append(group)
        self._event()
        group.release()

    def _queue_end(self) -> None:
        if not self._ends_queued:
            self._ends_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        """The end of the backward pass: reduce what is left, and wait for all gradients."""
        for group in self.groups:
            if not group.reducing and (group.resident or group.pending is not None):
                self._reduce(group)
        for group in self.groups:
            group.end_reduce()
            group.release()
            if group.number not in self._reduced:
                # No part of it took part in this pass.
                for shards in group.shards:
                    shards.gradient.zero_()
        self._reduced.clear()
        self._ends_queued = False

    # What a user asks for

    def parameters(self) -> Iterator[nn.Parameter]:
        """This rank's shards, one flat tensor per bucket, each with its gradient after the backward pass."""
        for group in self.groups:
            for shards in group.shards:
                yield shards.local

    def shares(self) -> Iterator[tuple[Weight, Any, Tensor, Tensor]]:
        """This rank's share of every weight: (weight, piece, flat values, flat gradient); the last two are views of the shard."""
        for group in self.groups:
            for shards in group.shards:
                bucket = shards.bucket
                for i, weight in enumerate(bucket.weights):
                    piece = bucket.piece(i, self.wires.rank)
                    cut = slice(piece.at, piece.at + piece.size)
                    yield weight, piece, shards.local.detach()[cut], shards.gradient[cut]

    def buckets(self) -> Iterator[Bucket]:
        """All buckets."""
        for group in self.groups:
            for shards in group.shards:
                yield shards.bucket

    def step(self) -> None:
        """Make a step of the optimizer with the gradients of the last backward pass."""
        if self.optimizer is None:
            raise InputError("found no optimizer; expected one of adamw, adam8bit, muon and shampoo", where="optim")
        self.optimizer.step()
        self._event()

    def clip(self, most: float) -> float:
        """Scale all gradients so that their norm over all ranks is at most `most`; returns the norm before. It takes one all-reduce."""
        mine = [shards.gradient for group in self.groups for shards in group.shards]
        square = sum(float(g.double().square().sum()) for g in mine)
        norm = float((square if self.sharding.replicated else self.wires.total(square)) ** 0.5)
        if norm > most:
            for gradient in mine:
                gradient.mul_(most / norm)
        return norm

    @torch.no_grad()
    def state_dict(self) -> dict[str, Tensor]:
        """All weights in full, on every rank."""
        found = {}
        for group in self.groups:
            for shards in group.shards:
                bucket, full = shards.bucket, shards.local.dtype
                if self.sharding.replicated:
                    whole = shards.local.detach()
                else:
                    whole = torch.empty(bucket.padded, dtype=full)
                    self.wires.gather(whole, shards.local.detach()).wait()
                for i, weight in enumerate(bucket.weights):
                    values = torch.empty(weight.size, dtype=full)
                    for rank in range(1 if self.sharding.replicated else bucket.n):
                        piece = bucket.piece(i, rank)
                        at = rank * bucket.shard * (not self.sharding.replicated) + piece.at
                        values[piece.start : piece.stop] = whole[at : at + piece.size]
                    found[weight.name] = values.view(weight.shape)
        return {name: found[name] for name in self._by_name if name in found}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take this rank's shares of full weights."""
        for weight, piece, values, _ in self.shares():
            if weight.name not in state or tuple(state[weight.name].shape) != weight.shape:
                raise InputError(f'"{weight.name}": expected a tensor of shape {weight.shape}', where="state")
            values.copy_(state[weight.name].reshape(-1)[piece.start : piece.stop])

    def local_state_dict(self) -> dict[str, Tensor]:
        """This rank's share of every weight, flat; empty where it has none. The tensors are views of the shards."""
        return {weight.name: values for weight, _, values, _ in self.shares()}

    def export(self, path: Any) -> None:
        """Write all weights to a safetensors file, from rank 0."""
        from armillary.extras import need

        state = self.state_dict()
        if self.wires.rank == 0:
            need("safetensors.torch").save_file(state, str(path))

    # What is measured

    def _event(self) -> None:
        if self.on_event is not None:
            self.on_event()

    @property
    def copied(self) -> int:
        """Bytes copied between weights and communication buffers so far."""
        return sum(shards.copied for group in self.groups for shards in group.shards)

    def state_bytes(self) -> int:
        """Bytes of parameters, gradients, optimizer state and communication buffers that live now on this rank, each memory once."""
        seen: dict[int, int] = {}
        for tensor in self._held():
            storage = tensor.untyped_storage()
            if storage.nbytes():
                seen[storage.data_ptr()] = storage.nbytes()
        return sum(seen.values())

    def _held(self) -> Iterable[Tensor]:
        for group in self.groups:
            for shards in group.shards:
                yield from shards.held()
            for buffers in (group.gathered, group.gradients):
                if buffers is not None:
                    yield buffers.whole
        if self.optimizer is not None:
            yield from _tensors(self.optimizer)


def _tensors_in(out: Any) -> Iterator[Tensor]:
    """The tensors in what a module returned."""
    if isinstance(out, Tensor):
        yield out
    elif isinstance(out, dict | list | tuple):
        for each in out.values() if isinstance(out, dict) else out:
            yield from _tensors_in(each)


def _tensors(optimizer: Any) -> Iterator[Tensor]:
    state = optimizer.state.values() if isinstance(optimizer, torch.optim.Optimizer) else optimizer.states()
    for each in state:
        for value in each.values() if isinstance(each, dict) else (each,):
            if isinstance(value, Tensor):
                yield value


def shard(
    module: nn.Module, ranks: Communicator, plan: Plan | Sequence[Plan] | None = None, *, sharding: Sharding | None = None,
    blocks: Any = None, units: Sequence[str] | None = None, align: int = ALIGN, optim: str = "adamw", lr: float = 1e-3,
    dtype: torch.dtype | None = None, **options: Any,
) -> Sharded:  # fmt: skip
    """Spread a module's parameters over ranks, each of which holds the same module.

    `units` are the names of the submodules that are gathered one after the other, in the order of the forward pass; by default the
    embeddings and linear maps of the module itself and of its body, and every entry of its lists of layers. Weights outside stay gathered
    through a step, and so do those that two units share. `plan` is one plan for all of them, or one for each unit and one for the rest;
    without it, `sharding` (veScale-FSDP by default) lays out `blocks` (see `ragged.weights_of`).

    `optim` is adamw, adam8bit, muon, shampoo or none; `options` go to it. With `dtype` (bfloat16), weights are gathered and gradients
    reduced in that type while shards stay as they are.
    """
    if optim not in OPTIMIZERS:
        raise unknown("optimizer", optim, OPTIMIZERS)
    for name, weight in module.named_parameters():
        if not weight.is_contiguous():
            raise InputError(f'"{name}": found a tensor whose elements are not contiguous; expected row-major order', where="shard")
    if sharding is None:
        from ..vescale_fsdp import VeScaleFsdp

        sharding = VeScaleFsdp()
    sharding = sharding.on_ranks()
    parts, outside = divided(module, units)
    modules = [made for _, _, made in parts]
    shapes = [weights for _, weights, _ in parts]
    if plan is None:
        groups = [weights_of(dict(w), blocks) for w in shapes]
        layouts = sharding.groups(groups, ranks.size, align)
        rest = Layout(0, tuple(sharding.buckets(weights_of(dict(outside), blocks), ranks.size, align))) if outside else None
    else:
        layouts, rest, modules = _planned(plan, shapes, outside, modules, ranks.size)
    made = Sharded(module, ranks, sharding, layouts, modules, rest, dtype=dtype)
    if optim != "none":
        from ..optimizers.choice import optimizer

        made.optimizer = optimizer(optim, made, lr, options)
    return made


def _planned(
    plan: Plan | Sequence[Plan], shapes: Sequence[Any], outside: Any, modules: list[nn.Module], n: int
) -> tuple[list[Layout], Layout | None, list[nn.Module]]:
    plans = [plan] if isinstance(plan, Plan) else list(plan)
    for one in plans:
        if one.n != n:
            raise InputError(f"found a plan for {one.n} ranks; expected {n}", where="plan")
    expected = [dict(w) for w in shapes] + ([dict(outside)] if outside else [])
    if len(plans) == 1:
        expected = [{name: shape for each in expected for name, shape in each.items()}]
    if len(plans) != len(expected):
        raise InputError(f"found {len(plans)} plans; expected one, or one for each of {len(expected)} groups", where="plan")
    for one, names in zip(plans, expected):
        if {w.name: w.shape for w in one.weights} != names:
            raise InputError("found a plan for other parameters than the module has", where="plan")
    made = [Layout(1, (Flat.of(one),)) for one in plans]
    if len(plans) == 1:
        return [], Layout(0, made[0].buckets), []
    return made[: len(shapes)], (made[-1] if outside else None), modules


Shapes = list[tuple[str, tuple[int, ...]]]


def divided(module: nn.Module, units: Sequence[str] | None = None) -> tuple[list[tuple[str, Shapes, nn.Module]], Shapes]:
    """The units of a module as (name, weights, submodule), and the weights outside of them."""
    chosen = list(units) if units is not None else default_units(module)
    known = dict(module.named_modules())
    for name in chosen:
        if name not in known:
            raise unknown("module", name, known, where="units")
    names: dict[int, str] = {id(p): name for name, p in module.named_parameters()}
    uses: dict[int, int] = {}
    for name in chosen:
        for weight in known[name].parameters():
            uses[id(weight)] = uses.get(id(weight), 0) + 1
    parts: list[tuple[str, Shapes, nn.Module]] = []
    taken: set[int] = set()
    for name in chosen:
        mine = [p for p in known[name].parameters() if uses[id(p)] == 1]
        if mine:
            parts.append((name, [(names[id(p)], tuple(p.shape)) for p in mine], known[name]))
            taken.update(id(p) for p in mine)
    outside = [(names[id(p)], tuple(p.shape)) for p in module.parameters() if id(p) not in taken]
    return parts, outside


def default_units(module: nn.Module) -> list[str]:
    """Every entry of the outermost lists of modules, and the embeddings and linear maps beside and above them, in order of definition."""
    found: list[str] = []

    def walk(prefix: str, inside: nn.Module) -> None:
        for name, child in inside.named_children():
            path = f"{prefix}{name}"
            if isinstance(child, nn.ModuleList):
                found.extend(f"{path}.{i}" for i in range(len(child)))
            elif isinstance(child, nn.Embedding | nn.Linear):
                found.append(path)
            elif any(isinstance(c, nn.ModuleList) for c in child.modules()):
                walk(f"{path}.", child)

    walk("", module)
    return found
