"""Programs of ranks for the tests of real checkpoints, importable by name."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from armillary.comm import Aborted
from armillary.errors import InputError
from armillary.training.checkpoint import Rckpt, Unrecoverable, read_version


def made(rank: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model that is different on every rank."""
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4, dtype=torch.float32))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int, ckpt: Any = None) -> float:
    """One step on data that depends on its number."""
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(number))
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    if ckpt is not None:
        with ckpt.busy():
            pass
    optimizer.step()
    return float(loss.detach())


def digest(data: torch.Tensor) -> np.ndarray:
    """The SHA-256 of some bytes, as 32 numbers."""
    return np.frombuffer(hashlib.sha256(data.numpy().tobytes()).digest(), np.uint8).copy()


def quiet(comm: Any, folder: str) -> dict[str, Any]:
    """Steps, exports, goes back without anybody having died, and falls back to files."""
    torch.set_num_threads(1)
    model, optimizer = made(comm.rank)
    said = []
    for replicas, per_node in ((3, 1), (2, 2), (1, 1)):
        try:
            Rckpt(model, optimizer, replicas=replicas, per_node=per_node).step()
        except InputError as error:
            said.append(str(error))
    ckpt = Rckpt(model, optimizer, persist=folder, persist_every=2)
    try:
        ckpt.export(Path(folder) / "none")
    except Unrecoverable as error:
        said.append(str(error))
    losses = []
    for number in range(6):
        losses.append(update(model, optimizer, number, ckpt))
        ckpt.step({"number": number})
        comm.barrier()
    ckpt._finish()
    comm.barrier()
    # What was sent has left, and arrives a moment later.
    until = time.monotonic() + 30
    while 6 not in ckpt._held[1 - comm.rank].whole and time.monotonic() < until:
        time.sleep(0.01)
    held = sorted(ckpt._held[1 - comm.rank].whole)
    digests = comm.allgather(digest(ckpt.own.whole[6][1]))
    same = bool((digest(ckpt._held[1 - comm.rank].whole[6][1]) == digests.reshape(2, -1)[1 - comm.rank]).all())
    file = ckpt.export(Path(folder) / f"export-{comm.rank}.safetensors")
    version = read_version(file)[0]
    names = sorted(ckpt.state_dict())[:2]
    back = ckpt.recover()
    extra = dict(ckpt.extra)
    again = [update(model, optimizer, number, ckpt) for number in range(back, 6)]
    # Nobody has a version in memory any more.
    ckpt.own.whole.clear()
    for versions in ckpt._held.values():
        versions.whole.clear()
    filed = ckpt.recover()
    later = [update(model, optimizer, number, ckpt) for number in range(filed, 6)]
    ckpt.disconnect()
    return {"said": said, "losses": losses, "held": held, "same": same, "version": version, "names": names, "back": back, "extra": extra,
            "again": again, "filed": filed, "later": later}  # fmt: skip


def pair_dies(comm: Any, steps: int) -> list[Any]:
    """Ranks 1 and 2, which hold each other's neighbour, are replaced one after the other before anybody recovers."""
    torch.set_num_threads(1)
    model, optimizer = made(comm.rank)
    ckpt, done = Rckpt(model, optimizer), 0
    said = ""
    while True:
        try:
            if comm.generation == 1:
                comm.barrier()
                if comm.rank == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                comm.barrier()
            if comm.generation == 2:
                try:
                    ckpt.recover()
                except Unrecoverable as error:
                    said = str(error)
                break
            while done < steps:
                if done == 3 and comm.rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                update(model, optimizer, done, ckpt)
                ckpt.step()
                done += 1
                comm.allreduce(np.ones(1))
        except Aborted:
            comm = comm.renewed()
    comm.barrier()
    return [said, comm.generation]
