"""The mean of a tensor over workers, with the same bits on every backend of `armillary.comm`.

Float32 is all-reduced in the order of the ranks. In fewer bits every worker gathers the codes of all and adds them up in float32, so
that rounding does not accumulate; on a ring that moves k − 1 times the payload, where an all-reduce moves 2(k − 1)/k times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from armillary.errors import InputError

from .e3m0 import decoded, encoded, encoded_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.comm import Communicator

#: Bits per element on the wire.
Bits = Literal[32, 16, 4]
#: The phase under which payload is counted, and the one of what only looks.
SYNCHRONISE, DIAGNOSE = "synchronise", "diagnose"


def mean_over(ranks: Communicator | None, flat: Tensor, bits: Bits = 32) -> Tensor:
    """The mean over the ranks of a flat tensor, in its own type and on its own device; one worker alone gets what the wire would keep."""
    import torch

    if bits == 32:
        if ranks is None or ranks.size == 1:
            return flat.detach().clone()
        total = ranks.allreduce(flat.detach().cpu().numpy(), order="rank")
        return torch.from_numpy(total).to(flat.device).div_(ranks.size)
    code = flat.detach().to(torch.bfloat16).view(torch.uint8) if bits == 16 else encoded(flat)
    every = code[None] if ranks is None or ranks.size == 1 else torch.from_numpy(ranks.allgather(code.cpu().numpy())).to(flat.device)
    total = torch.zeros(flat.numel(), dtype=torch.float32, device=flat.device)
    for one in every:
        total += one.clone().view(torch.bfloat16).float() if bits == 16 else decoded(one, flat.numel())
    return (total / len(every)).to(flat.dtype)


def payload_bytes(count: int, bits: Bits) -> int:
    """The payload of one exchange of `count` elements."""
    return encoded_bytes(count) if bits == 4 else count * bits // 8


def ranks_of(group: Any) -> Communicator | None:
    """The communicator of a group: one of `armillary.comm`, a `torch.distributed` group, or torch's default group if there is one."""
    from armillary.comm import Communicator

    if group is None:
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return None
        group = dist.group.WORLD
    return group if isinstance(group, Communicator) else Communicator.adopt(group)


def agreed(ranks: Communicator | None, names: list[tuple[str, tuple[int, ...]]]) -> None:
    """Raise on every rank, with the first parameter, unless all ranks have parameters of these names and shapes in this order."""
    if ranks is None or ranks.size == 1:
        return
    import json

    import numpy as np

    text = np.frombuffer(json.dumps(names).encode(), np.uint8)
    length = ranks.bcast(np.array([text.size]))
    said = ranks.bcast(text.copy() if ranks.rank == 0 else np.empty(int(length[0]), np.uint8))
    first = [(str(name), tuple(shape)) for name, shape in json.loads(bytes(said))]
    differ = next((i for i, (a, b) in enumerate(zip(first, names)) if a != b), -1)
    if differ < 0 and len(first) != len(names):
        differ = min(len(first), len(names))
    found = ranks.allgather(np.array([differ])).ravel().tolist()
    for rank, at in enumerate(found):
        if at >= 0:
            name = f'parameter "{first[at][0]}" of shape {list(first[at][1])}' if at < len(first) else f"{len(first)} parameters"
            mine = f'; here it is "{names[at][0]}" of shape {list(names[at][1])}' if ranks.rank == rank and at < len(names) else ""
            raise InputError(f"worker {rank} has other parameters than worker 0, where number {at} is {name}{mine}", where="DiLoCo")
