"""What every rank does to measure the ladder: check that all rungs compute the same bits as one rank, and then time them in turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from armillary import extras
from armillary.network.halo.clover.block import FIELDS, HALO, Block, block
from armillary.network.halo.clover.deck import Deck, deck_of

from .kernels import Compiled, Launched, hosted, owned
from .ladder import Access, Rung
from .streams import COMPUTE, CudaStreams, HostStreams

Array = np.ndarray[Any, Any]
#: Fields that are compared: what a step leaves for the next one.
STATE = ("density0", "energy0", "xvel0", "yvel0")


def measure(comm: Any, work: Mapping[str, Any], rungs: Sequence[Mapping[str, bool]], rounds: int) -> list[dict[str, Any]]:
    """Return for each rung its seconds by round (the host's own, and all of a step), conversions per step, and what it fell back from.

    `work` has a deck, the decomposition, the library that owns the fields, the steps of a round, and `device` ("cpu" or "cuda").
    """
    deck, dims = deck_of(work["deck"]), tuple(work["decomposition"])
    part = block(deck, (dims[0], dims[1]), divmod(comm.rank, dims[1]))
    device, steps = work["device"], work["steps"]
    made = [_rung(comm, part, dims, Access(**given), work["library"], device) for given in rungs]
    wanted = None if device == "cuda" else _alone(deck, steps)
    for number, rung in enumerate(made):
        _go(rung, steps)
        found = hosted(rung.fields, STATE)
        if wanted is None:
            # Another device rounds in its own way, so the rungs are held against the first of them there.
            wanted = found
        right = all(np.array_equal(_inside(part, name, found[name]), _share(part, name, wanted[name], comm.size)) for name in STATE)
        if not _everywhere(comm, right):
            raise RuntimeError(f"fields differ: rung {number} after {steps} steps")
    seconds = _rounds(comm, made, steps, rounds)
    for rung in made:
        rung.free()
    return [
        {
            "own": seconds[0, i].tolist(), "step": seconds[1, i].tolist(), "fault": rung.fault,
            "conversions": rung.spent.conversions / max(1, rung._number),
        }
        for i, rung in enumerate(made)
    ]  # fmt: skip


def _rung(comm: Any, part: Block, dims: Sequence[int], access: Access, library: str, device: str) -> Rung:
    fields = owned(part.start(), library, device)
    if device == "cpu":
        return Rung(comm, part, fields, dims, access, Compiled(), HostStreams())
    first = next(iter(fields.values()))
    if library == "cupy":
        # CuPy owns the memory, and PyTorch, whose communicator and graphs are used, sees it through views made once.
        torch = extras.need("torch")
        fields = {name: torch.from_dlpack(field) for name, field in fields.items()}
        first = next(iter(fields.values()))
    return Rung(comm, part, fields, dims, access, Launched(first), CudaStreams("torch"))


def _alone(deck: Deck, steps: int) -> dict[str, Array]:
    """The fields of a run on one rank in this process."""
    from armillary import comm

    found: dict[str, Array] = comm.run(_reference, deck.given(), steps, ranks=1, backend="one").values[0]
    return found


def _reference(comm: Any, given: Mapping[str, Any], steps: int) -> dict[str, Array]:
    whole = block(deck_of(given))
    fields = whole.start()
    rung = Rung(comm, whole, fields, (1, 1), Access(), Compiled())
    _go(rung, steps)
    return {name: fields[name] for name in STATE}


def _go(rung: Rung, steps: int) -> None:
    with rung.streams.on(COMPUTE):
        for _ in range(steps):
            rung.step()
        rung.streams.synchronise()


def _inside(part: Block, name: str, field: Array) -> Array:
    extra = FIELDS[name].extra
    return field[HALO : HALO + part.rows + extra[0], HALO : HALO + part.columns + extra[1]]


def _share(part: Block, name: str, whole: Array, ranks: int) -> Array:
    """The part of a one-rank field that belongs to a block; a field of a block's own size is taken as it is."""
    extra = FIELDS[name].extra
    if whole.shape == part.shape:
        return _inside(part, name, whole)
    rows = slice(HALO + part.row0, HALO + part.row1 + extra[0])
    return whole[rows, HALO + part.column0 : HALO + part.column1 + extra[1]]


def _everywhere(comm: Any, right: bool) -> bool:
    from armillary.comm import MIN

    return bool(int(_reduced(comm, np.array([float(right)]), MIN)[0]))


def _reduced(comm: Any, values: Array, op: Any) -> Array:
    """The reduction over ranks of numbers on the host; ranks with GPUs reduce tensors."""
    if getattr(comm, "device", None) is None and not type(comm).__name__.startswith("Device"):
        found = np.empty_like(values)
        comm.allreduce(values, found, op)
        return found
    torch = extras.need("torch")
    tensor = torch.tensor(values, device="cuda")
    comm.allreduce(tensor, tensor, op)
    return np.asarray(tensor.cpu())


def _rounds(comm: Any, made: Sequence[Rung], steps: int, rounds: int) -> Array:
    """Return (the host's own seconds, all seconds) of a step by rung and round, on the slowest rank; the order of rungs alternates."""
    from armillary.comm import MAX

    seconds = np.zeros((2, len(made), rounds))
    clock = time.perf_counter
    collected = gc.isenabled()
    gc.disable()
    try:
        for turn in range(-1, rounds):
            for i in range(len(made)) if turn % 2 else reversed(range(len(made))):
                rung = made[i]
                comm.barrier()
                with rung.streams.on(COMPUTE):
                    away, began = rung.spent.away_s, clock()
                    for _ in range(steps):
                        rung.step()
                    issued = clock() - began
                    rung.streams.synchronise()
                if turn >= 0:
                    seconds[:, i, turn] = (issued - (rung.spent.away_s - away)) / steps, (clock() - began) / steps
    finally:
        if collected:
            gc.enable()
    return _reduced(comm, seconds.ravel(), MAX).reshape(seconds.shape)
