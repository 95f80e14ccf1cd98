"""A module whose parameters are offloaded while it trains.

The first iteration is recorded: hooks see which module runs when, forward and backward, and its parameters come on demand. From the record
a technique makes its schedule, the same one that the simulator would time, and the following iterations carry it out: before and after
each module the planned moves are begun, and a module waits only for its own parameters. If a module runs that the record did not
expect, the schedule is dropped, parameters come on demand again, and the next iteration is recorded anew.

Autograd saves parameters for the backward pass, as views of their memory. While a module runs forward, such a view is replaced by its
place in the parameter and made again when backward asks for it, so buffers can be reused in between. An absent parameter is one NaN that is
expanded to the parameter's shape: a module that reads it without being seen by the hooks computes NaN, never with another tensor's bytes.
"""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from armillary.errors import InputError
from armillary.training.offload.planning.prefetch_table import PrefetchTable
from armillary.training.offload.simulation.machine import STATE_BYTES, WORKSPACE, Machine
from armillary.training.offload.simulation.schedule import DROP, GPU, IN, OUT, READ, Schedule
from armillary.training.offload.workload import BACKWARD, FORWARD, OffloadWork

from .optimizer import OffloadedOptimizer
from .spill import SpillFolder
from .tiers import Tiers

#: Modules that use parameters of modules inside them without calling those.
LEAVES: tuple[type[nn.Module], ...] = (nn.MultiheadAttention,)
#: Iterations that one schedule covers.
HORIZON = 32
#: Bytes per parameter of the files that Adam's states and a master copy may need.
_STATES = 12


class Offloader:
    """Parameters of `module` in three memories. `gpu_bytes` is the budget of the fast tier, `host_bytes` that of the host (None: no limit).

    With `fast="ram", slow="disk"` the fast tier is RAM and all else is in files in `nvme_dir`; `host_bytes` then bounds the optimizer's
    states in RAM. Otherwise the module is on a GPU, or is moved to `device`. `technique` is any of the arena's techniques. `leaves` are
    types of modules that are waited for as a whole. `streams` replaces the device's own, for tests.
    """

    def __init__(
        self, module: nn.Module, *, gpu_bytes: float, host_bytes: float | None = None, nvme_dir: str | Path | None = None,
        technique: Any = None, device: torch.device | str | None = None, fast: str = "gpu", slow: str = "host",
        leaves: tuple[type[nn.Module], ...] = LEAVES, streams: Any = None,
    ) -> None:  # fmt: skip
        from armillary.training.offload.tencache import TenCache

        if (fast, slow) not in (("gpu", "host"), ("ram", "disk")):
            raise InputError(f'fast="{fast}", slow="{slow}"; expected fast="gpu", slow="host" or fast="ram", slow="disk"')
        self.module, self.technique, self.disk = module, technique or TenCache(slack=0), fast == "ram"
        self.params = list(dict.fromkeys(module.parameters()))
        if not self.params:
            raise InputError("the module has no parameters")
        self.names = {p: name for name, p in module.named_parameters()}
        size = [p.numel() * p.element_size() for p in self.params]
        if gpu_bytes < max(size):
            raise InputError(f"gpu_bytes: found {gpu_bytes:.0f}; expected at least {max(size)}, the largest parameter")
        if self.disk and nvme_dir is None:
            raise InputError('fast="ram" needs nvme_dir, the folder for its files')
        self.device = torch.device("cpu") if self.disk else _device(self.params, device)
        self.host_bytes = float("inf") if host_bytes is None else float(host_bytes)
        need = sum(size) + (_STATES * sum(p.numel() for p in self.params) if self.host_bytes < float("inf") else 0)
        folder = SpillFolder(nvme_dir, need) if nvme_dir is not None else None
        self.tiers = Tiers(size, self.device, gpu_bytes, 0.0 if self.disk else min(self.host_bytes, float(sum(size))), folder, streams)
        #: The recorded table, from the second iteration on.
        self.table: PrefetchTable | None = None
        self.work: OffloadWork | None = None
        self.schedule: Schedule | None = None
        #: Iterations begun, times the record was dropped, and the seconds of waiting of each finished iteration.
        self.iterations = self.invalidated = 0
        self.waited_s: list[float] = []
        self._number = {p: i for i, p in enumerate(self.params)}
        self._units = _units(module, leaves, self._number)
        self._at: dict[int, int] = {}  # The address of a resident parameter's memory to its number.
        self._bound: set[int] = set()  # The parameters whose data is their memory in the fast tier.
        self._recent: dict[int, int] = {}
        self._clock = 0
        self._record: list[tuple[int, int, float]] | None = None  # Unit, phase and seconds of each operation.
        self._clock_s: float | None = None
        self._position, self._cycle, self._evaluating = 0, 0, False
        self._now: tuple[int, ...] = ()
        self._saving: list[Any] = []
        self._running: list[int] = []
        self._last: tuple[int, int] | None = None
        self._move = 0
        self._planned: list[tuple[int, int]] = []
        self._handles: list[Any] = []
        self._optimizers: list[OffloadedOptimizer] = []
        for i, p in enumerate(self.params):
            self.tiers.store(i, _flat(p.detach().cpu()))
            p.data = self._absent(p)
        if not self.disk:
            for buffer in module.buffers():
                buffer.data = buffer.data.to(self.device)
        self._hook()

    # Hooks

    def _hook(self) -> None:
        keep = self._handles.append
        keep(self.module.register_forward_pre_hook(self._begin))
        keep(self.module.register_forward_hook(self._end, always_call=True))
        for number, (unit, _) in enumerate(self._units):
            keep(unit.register_forward_pre_hook(lambda module, args, n=number: self._enter(n)))
            keep(unit.register_forward_hook(lambda module, args, out, n=number: self._leave(n, out), always_call=True))

    def _begin(self, module: nn.Module, args: Any) -> None:
        """A forward pass begins: of training, or of an evaluation, which leaves the record alone."""
        self._evaluating = not (torch.is_grad_enabled() and module.training)
        if self._evaluating:
            return
        self._close()
        self.iterations += 1
        if self.iterations > 1:
            self.waited_s.append(self.tiers.take_stall())
        if self._record is not None:
            self._plan()
        elif self.schedule is not None:
            self._next_cycle()
        if self.schedule is None:
            self._record = []
        self._position = 0

    def _next_cycle(self) -> None:
        assert self.work is not None
        if self._position < self.work.order.shape[1]:  # The pass before stopped half-way.
            self._invalidate()
            return
        self._cycle += 1
        if self._cycle >= self.work.iterations:
            self._start_schedule()

    def _end(self, module: nn.Module, args: Any, out: Any) -> None:
        if self._evaluating:
            self._evaluating, self._now = False, ()
            if self.schedule is not None:
                self._rewind()

    def _enter(self, number: int) -> None:
        """A unit runs forward."""
        self._before(number, FORWARD)
        saving = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        saving.__enter__()
        self._saving.append(saving)
        self._running.append(number)

    def _leave(self, number: int, out: Any) -> None:
        if self._saving:
            self._saving.pop().__exit__(None, None, None)
            self._running.pop()
            if self._running:  # The unit around this one goes on, perhaps with its own parameters.
                self._now = self._units[self._running[-1]][1]
                for i in self._now:
                    self._resident(i)
        if torch.is_grad_enabled():
            for each in _tensors(out):
                if each.requires_grad and each.grad_fn is not None:
                    each.register_hook(lambda grad, n=number: self._before(n, BACKWARD))

    def _pack(self, saved: Tensor) -> Any:
        """What is saved for backward: the place in a parameter, if it is a view of one."""
        number = self._at.get(saved.untyped_storage().data_ptr())
        if number is None:
            return saved
        offset = saved.data_ptr() - self.params[number].data_ptr()
        return number, saved.dtype, tuple(saved.shape), saved.stride(), offset

    def _unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        number, dtype, shape, stride, offset = packed
        self._resident(number)
        flat = self.tiers.ready(number)
        width = torch.empty(0, dtype=dtype).element_size()
        return torch.as_strided(flat.view(dtype), shape, stride, flat.view(dtype).storage_offset() + offset // width)

    # What runs

    def _before(self, number: int, phase: int) -> None:
        """An operation begins: what was planned is begun, and its own parameters are waited for."""
        if not self._evaluating and self._last == (number, phase):
            return  # Another output of the same unit.
        if self.schedule is not None and not self._evaluating:
            self._follow(number, phase)
        recording = self._record if not self._evaluating else None
        if recording is not None:
            self._stop_clock()
        self._last = (number, phase)
        self._now = self._units[number][1]
        for i in self._now:
            self._resident(i)
        if recording is not None:  # Its seconds begin when its parameters are there.
            recording.append((number, phase, 0.0))
            self._clock_s = time.perf_counter()
        self._clock += 1
        for i in self._now:
            self._recent[i] = self._clock

    def _stop_clock(self) -> None:
        """The operation that is being recorded has ended, unless that was said before."""
        if self._record and self._clock_s is not None:
            number, phase, _ = self._record[-1]
            self._record[-1] = (number, phase, time.perf_counter() - self._clock_s)
        self._clock_s = None

    def _follow(self, number: int, phase: int) -> None:
        """Takes the next step of the schedule, or drops it if something else runs."""
        assert self.work is not None
        if self._position:
            self._carry_out(2 * (self._position - 1) + 1)
        ops = self.work.order.shape[1]
        if self._position >= ops or self._planned[self._position] != (number, phase):
            self._invalidate()
            return
        self._carry_out(2 * self._position)
        self._position += 1

    def _close(self) -> None:
        """The last operation of an iteration is done."""
        self._stop_clock()
        if self.schedule is not None and self._position:
            self._carry_out(2 * (self._position - 1) + 1)
        self._now, self._last = (), None

    def _carry_out(self, slot: int) -> None:
        """Begins the moves of one slot of the current iteration."""
        assert self.schedule is not None
        assert self.work is not None
        moves, slot = self.schedule.moves, slot + 2 * self._cycle * self.work.order.shape[1]
        while self._move < len(moves) and moves.slot[self._move] <= slot:
            kind, i = int(moves.kind[self._move]), int(moves.tensor[self._move])
            self._move += 1
            if kind == IN:
                self._start(i)
            elif kind in (OUT, DROP):
                self._release(i)
            elif kind == READ:
                self.tiers.prefetch_host(i)
            else:
                self.tiers.spill(i)
        self.tiers.advance()

    def _invalidate(self) -> None:
        """The record no longer holds: on demand from here on, and the next iteration is recorded."""
        self.schedule, self.invalidated = None, self.invalidated + 1
        self._record = None
        self.tiers.pooled = False
        self.tiers.empty_pool()

    def _rewind(self) -> None:
        """Brings back the parameters with which an iteration starts: an evaluation has used others."""
        assert self.schedule is not None
        assert self.work is not None
        if 0 < self._position < self.work.order.shape[1]:
            self._invalidate()
        elif self._position:
            self._settle(self.schedule.home[self._cycle] == GPU)
        else:
            self._settle(self.schedule.resident if not self._cycle else self.schedule.home[self._cycle - 1] == GPU)

    # Residency

    def _resident(self, i: int) -> None:
        """Waits for a parameter, or brings it on demand."""
        if i in self._bound and not self.tiers.pending(i):
            return
        if self.tiers.fast[i] is None:
            self._start(i)
        p, flat = self.params[i], self.tiers.ready(i)
        if i not in self._bound:
            p.data = flat.view(p.dtype).view(p.shape)
            self._at[flat.untyped_storage().data_ptr()] = i
            self._bound.add(i)

    def _start(self, i: int) -> None:
        """Begins to bring a parameter in; the least recently used ones leave if the budget asks for it."""
        tiers = self.tiers
        if tiers.fast[i] is not None:
            return
        if not tiers.pool.get(tiers.size[i]):
            room = tiers.fast_bytes - tiers.allocated - tiers.size[i]
            for j in sorted((j for j, held in enumerate(tiers.fast) if held is not None), key=lambda j: self._recent.get(j, 0)):
                if room >= 0:
                    break
                if j not in self._now and not self._in_use(j):
                    room += tiers.size[j]
                    self._release(j)
                    if tiers.pooled:
                        tiers.empty_pool()
        tiers.start(i)

    def _in_use(self, i: int) -> bool:
        """Whether a unit that runs forward, or contains the one that does, needs a parameter."""
        return any(i in self._units[number][1] for number in self._running)

    def _release(self, i: int) -> None:
        """Frees a parameter's memory in the fast tier."""
        held = self.tiers.fast[i]
        if held is None or self._in_use(i):
            return
        self._at.pop(held.untyped_storage().data_ptr(), None)
        self._bound.discard(i)
        self.params[i].data = self._absent(self.params[i])
        self.tiers.release(i)

    def _absent(self, p: nn.Parameter) -> Tensor:
        empty = torch.full((1,), float("nan") if p.dtype.is_floating_point else 0, dtype=p.dtype, device=self.device)
        return empty.expand(p.shape)

    # Planning

    @property
    def _all_below(self) -> bool:
        """Whether the slower memory holds every parameter, so that no plan needs to count its room."""
        return self.disk or self.tiers.host_bytes >= sum(self.tiers.size)

    def _plan(self) -> None:
        """Makes a schedule from the record of the iteration before."""
        record, self._record = self._record or [], None
        if not record or not any(phase == BACKWARD for _, phase, _ in record):
            return
        ops = [(phase, n, self._units[n][1], seconds) for n, phase, seconds in record]
        self._planned = [(n, phase) for n, phase, _ in record]
        size = self.tiers.size
        # The techniques count gradients and Adam's states too, which have their own place here.
        rest = sum(size) + STATE_BYTES * sum(p.numel() for p in self.params)
        drive = 0.0 if self.disk or self.tiers.folder is None else 1e9
        held = 1e18 if self._all_below else max(self.tiers.host_bytes, 1.0)
        machine = Machine("here", "cpu", self.tiers.fast_bytes + WORKSPACE, held + rest, 1e9, 1e-5, drive, drive)
        names = [self.names[p] for p in self.params]
        self.work = OffloadWork.of(
            "recorded", machine, size, ops, elements=[p.numel() for p in self.params], names=names, iterations=HORIZON
        )
        self.table = PrefetchTable.of(self.work)
        self._start_schedule()

    def _start_schedule(self) -> None:
        from armillary.training.offload.tencache import TenCache

        assert self.work is not None
        technique = self.technique
        if isinstance(technique, TenCache):  # The budgets that were given are for parameters alone.
            host = self.work.machine.host_bytes
            cpu = 1.0 if self._all_below else host / max(self.tiers.host_bytes, 1.0)
            technique = replace(technique, gpu_factor=0.0, cpu_factor=cpu, opt_factor=1.0)
        self.schedule = technique.schedule(self.work)
        self._move = self._cycle = self._position = 0
        pooled = isinstance(technique, TenCache) and technique.reuse
        if not pooled or not self.tiers.pooled:
            self.tiers.empty_pool()
        self.tiers.pooled = pooled
        self._settle(self.schedule.resident)

    def _settle(self, resident: Any) -> None:
        """Brings exactly these parameters into the fast tier."""
        for i in range(len(self.params)):
            if not resident[i]:
                self._release(i)
        self.tiers.empty_pool()
        for i in np.flatnonzero(resident).tolist():
            self.tiers.start(i)

    # For people

    def optimizer(self, kind: Callable[..., torch.optim.Optimizer], **settings: Any) -> OffloadedOptimizer:
        """An optimizer over all parameters: one of `kind` per parameter, whose states stay in the host up to `host_bytes`, or in files."""
        made = OffloadedOptimizer(self, kind, settings)
        self._optimizers.append(made)
        return made

    def state_dict(self) -> dict[str, Tensor]:
        """All parameters by name, copied to the CPU, and the module's buffers."""
        found = {}
        for name, p in self.module.named_parameters(remove_duplicate=False):
            found[name] = self.tiers.value(self._number[p]).clone().view(p.dtype).view(p.shape)
        return found | {name: buffer.detach().cpu().clone() for name, buffer in self.module.named_buffers()}

    @property
    def peak_bytes(self) -> int:
        """The most bytes of parameters that were in the fast tier, free buffers included."""
        return self.tiers.peak

    def close(self) -> None:
        """Takes the hooks off, brings all parameters back into the module, and removes the files."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        with contextlib.suppress(InputError):
            for i, p in enumerate(self.params):
                p.data = self.tiers.value(i).clone().view(p.dtype).view(p.shape).to(self.device)
        self.tiers.close()

    def __enter__(self) -> Offloader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _device(params: list[nn.Parameter], device: torch.device | str | None) -> torch.device:
    found = torch.device(device) if device is not None else params[0].device
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError('there is no GPU here; fast="ram", slow="disk" runs without one')
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", torch.cuda.current_device())
    return found


def _units(
    module: nn.Module, leaves: tuple[type[nn.Module], ...], number: dict[nn.Parameter, int]
) -> list[tuple[nn.Module, tuple[int, ...]]]:
    """The modules that are waited for, each with the numbers of its parameters: those with parameters of their own, and whole leaves."""
    found: list[tuple[nn.Module, tuple[int, ...]]] = []

    def visit(one: nn.Module, seen: set[int]) -> None:
        if id(one) in seen:
            return
        seen.add(id(one))
        own = list(one.parameters(recurse=isinstance(one, leaves)))
        if own:
            found.append((one, tuple(dict.fromkeys(number[p] for p in own))))
        if not isinstance(one, leaves):
            for child in one.children():
                visit(child, seen)

    visit(module, set())
    return found


def _tensors(out: Any) -> Iterable[Tensor]:
    if isinstance(out, Tensor):
        yield out
    elif isinstance(out, dict):
        for each in out.values():
            yield from _tensors(each)
    elif isinstance(out, list | tuple):
        for each in out:
            yield from _tensors(each)


def _flat(value: Tensor) -> Tensor:
    """The bytes of a tensor."""
    return value.contiguous().reshape(-1).view(torch.uint8)
