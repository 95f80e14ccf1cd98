"""The update of offloaded parameters: one after another in the order of use, with states that stay in the host or stream from files.

Every parameter has an optimizer of its own, so any optimizer that treats parameters separately (SGD, Adam, AdamW…) gives the same values as
one over all of them. Parameters of 16 bits have a master copy of 32 bits. On a GPU, gradients leave for the host as soon as they are
complete.
"""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from armillary.errors import InputError

if TYPE_CHECKING:
    from .offloader import Offloader
    from .spill import SpillFile


#: The key of a 32-bit master copy among the states of its parameter.
MASTER = object()


class OffloadedOptimizer:
    """`step` and `zero_grad` of all parameters of an `Offloader`."""

    def __init__(self, offloader: Offloader, kind: Callable[..., torch.optim.Optimizer], settings: dict[str, Any]) -> None:
        self.offloader, self._kind, self._settings = offloader, kind, settings
        self._of: dict[int, torch.optim.Optimizer] = {}
        self._master: dict[int, nn.Parameter] = {}
        self._grads: dict[int, Tensor] = {}
        self._pending: dict[int, Any] = {}
        #: The files of states that are not in memory, and the tensors in each, in order: (key, shape, dtype).
        self._files: dict[int, SpillFile] = {}
        self._layout: dict[int, list[tuple[Any, torch.Size, torch.dtype]]] = {}
        self._held = 0
        self._wide: Tensor | None = None
        if not offloader.disk:
            for i, p in enumerate(offloader.params):
                if p.requires_grad:
                    offloader._handles.append(p.register_post_accumulate_grad_hook(lambda p, n=i: self._take_gradient(n, p)))

    def zero_grad(self) -> None:
        """Forgets all gradients."""
        self._grads.clear()
        self._pending.clear()
        for p in self.offloader.params:
            p.grad = None

    def _take_gradient(self, i: int, p: Tensor) -> None:
        """Moves a complete gradient to the host and frees it on the device."""
        grad, p.grad = p.grad, None
        if grad is None:
            return
        tiers = self.offloader.tiers
        streams = tiers.streams
        if streams is None:
            self._grads[i] = grad.cpu() if i not in self._grads else self._grads[i] + grad.cpu()
            return
        if i in self._grads:  # A further micro-batch is added on the device.
            self._pending[i].synchronize()
            grad = grad + self._grads[i].to(grad.device)
        host = streams.empty(grad.shape, grad.dtype)
        streams.back.wait_event(streams.event(streams.now()))
        streams.copy(host, grad, streams.back)
        self._pending[i], self._grads[i] = streams.event(streams.back), host

    def gradient(self, i: int) -> Tensor | None:
        """The gradient of parameter i on the CPU, or None."""
        if self.offloader.disk:
            return self.offloader.params[i].grad
        event = self._pending.pop(i, None)
        if event is not None:
            event.synchronize()
        return self._grads.get(i)

    @torch.no_grad()
    def step(self) -> None:
        """Updates every parameter that has a gradient, in the order of use, and sends new values to where the parameters live."""
        off = self.offloader
        off._close()
        order = list(range(len(off.params)))
        if off.table is not None:
            order = list(dict.fromkeys([*off.table.tensor.tolist(), *order]))
        here = [held is not None for held in off.tiers.fast]
        for n, i in enumerate(order):
            grad = self.gradient(i)
            if grad is None:
                continue
            for j in order[n + 1 : n + 2]:  # The next one is on its way while this one is updated.
                if off.disk and off.tiers.fast[j] is None and self._room(j):
                    off.tiers.start(j)
            self._update(i, grad, here[i])

    def _room(self, j: int) -> bool:
        tiers = self.offloader.tiers
        return tiers.allocated + tiers.size[j] <= tiers.fast_bytes or bool(tiers.pool.get(tiers.size[j]))

    def _update(self, i: int, grad: Tensor, stays: bool) -> None:
        off, p = self.offloader, self.offloader.params[i]
        tiers = off.tiers
        if off.disk:
            off._resident(i)
            target: nn.Parameter = p
        else:
            target = self._master_of(i, p)
        made = self._of.get(i)
        if made is None:
            made = self._of[i] = self._kind([target], **self._settings)
        self._load(i, made, target)
        target.grad = grad if grad.dtype == target.dtype else self._widened(grad, target.dtype)
        made.step()
        if off.disk:
            self._store(i, made, target)
            flat = tiers.ready(i)
            tiers.store(i, flat)
            if not stays:
                off._release(i)
            return
        target.grad = None
        tiers.assign(i, target.detach(), p.dtype)
        self._store(i, made, target)
        if target.dtype == p.dtype:  # The value is in one of the memories, and the host's budget counts it there.
            target.data = torch.empty(0, dtype=p.dtype)

    def _widened(self, grad: Tensor, dtype: torch.dtype) -> Tensor:
        """The gradient in more bits, in memory that all parameters share: fresh pages would cost more than the update itself."""
        if self._wide is None or self._wide.numel() < grad.numel() or self._wide.dtype != dtype:
            self._wide = torch.empty(max(p.numel() for p in self.offloader.params), dtype=dtype)
        found = self._wide[: grad.numel()].view(grad.shape)
        return found.copy_(grad)

    def _master_of(self, i: int, p: nn.Parameter) -> nn.Parameter:
        """The parameter on the CPU that is updated: in 32 bits where the module's own has 16."""
        if p.dtype in (torch.float16, torch.bfloat16):
            if i not in self._master:
                value = self.offloader.tiers.value(i).clone().view(p.dtype).view(p.shape)
                self._master[i] = nn.Parameter(value.float())
            return self._master[i]
        made = self._master.get(i)
        value = self.offloader.tiers.taken(i).view(p.dtype).view(p.shape)
        if made is None:
            made = self._master[i] = nn.Parameter(value)
        else:
            made.data = value
        return made

    # States

    def _load(self, i: int, made: torch.optim.Optimizer, target: nn.Parameter) -> None:
        """Reads the states of parameter i from their file, if they are there."""
        if i not in self._files:
            return
        layout = self._layout[i]
        total = sum(shape.numel() * dtype.itemsize for _, shape, dtype in layout)
        data = torch.empty(total, dtype=torch.uint8)
        self._files[i].read_into(memoryview(data.numpy()))  # type: ignore[arg-type]
        at, state = 0, made.state[target]
        for key, shape, dtype in layout:
            count = shape.numel() * dtype.itemsize
            value = data[at : at + count].clone().view(dtype).view(shape)
            if key is MASTER:
                target.data = value
            else:
                state[key] = value
            at += count

    def _store(self, i: int, made: torch.optim.Optimizer, target: nn.Parameter) -> None:
        """Keeps the states in memory while the budget lasts, and otherwise in a file."""
        off = self.offloader
        tensors: list[tuple[Any, Tensor]] = [
            (key, value) for key, value in made.state[target].items() if isinstance(value, Tensor) and value.dim()
        ]
        if target.dtype != off.params[i].dtype:
            tensors.append((MASTER, target.data))
        count = sum(value.numel() * value.element_size() for _, value in tensors)
        if i not in self._layout:
            room = off.host_bytes if off.disk else off.host_bytes - off.tiers.host_bytes
            if self._held + count <= room or not tensors:
                self._held += count
                self._layout[i] = []
                return
            if off.tiers.folder is None:
                raise InputError(f"host_bytes: found {off.host_bytes:.0f}; the optimizer's states need more, or nvme_dir")
            self._files[i] = off.tiers.folder.file(f"state-{i}")
            self._layout[i] = [(key, value.shape, value.dtype) for key, value in tensors]
        if i in self._files:
            parts = [value.detach().contiguous().reshape(-1).view(torch.uint8) for _, value in tensors]
            self._files[i].write(memoryview(torch.cat(parts).numpy()))  # type: ignore[arg-type]
            for key, _ in tensors:
                if key is MASTER:
                    target.data = torch.empty(0)
                else:
                    made.state[target][key] = torch.empty(0)
