"""Checkpoints of real training in the memory of other ranks: `Rckpt(model, optimizer, group)`, with `step()` and `recover()`.

The state after an update travels during the next iteration, from the live tensors, in chunks that fit the spans between the collectives of
training; what is left when the optimizer steps is sent before it changes anything. A rank that is lost is replaced by a new process, which
gets its state from a neighbour, and all ranks go back to the newest version that is whole for all of them.
"""

# Much of PyTorch carries no annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch import nn

from armillary.errors import InputError
from armillary.training.checkpoint.moe_rckpt import MoeRckpt
from armillary.training.checkpoint.planning.policy import Plan, Policy, Seen, Setting

from .state import Description, Flat, tensors_of
from .traffic import Gate, Receiver, Sender
from .version_files import read_version, write_version
from .versions import Versions, newest_on_all

dist: Any = torch.distributed
#: Seconds that a chunk costs besides its bytes, and bytes per second, before any chunk was timed.
ALPHA_S, BETA = 100e-6, 1e9


class Unrecoverable(InputError):
    """No version of the state is left in memory, and none was persisted."""


class Rckpt:
    """In-memory checkpoints of a model and its optimizer over the ranks of a torch process group.

    `replicas` copies of every rank's state exist: its own, and one on each of the next replicas − 1 ranks, `per_node` ranks apart, so that
    they are on other nodes. `technique` decides what travels when (`MoeRckpt()`, `Gemini()`, `Opportunistic()`). With a folder in
    `persist`, every `persist_every`-th version is also written there, for which `step` waits. Wrap the collectives of training in
    `busy()`, so that spans are known; tell `routed` what the router knows. Every rank constructs it, and calls `step` after every update
    of the optimizer.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, group: Any = None, *, replicas: int = 2, per_node: int = 1,
        technique: Any = None, persist: str | Path | None = None, persist_every: int = 0, warm_up: int = 3,
    ) -> None:  # fmt: skip
        self._flat = Flat(model, optimizer)
        self._given = group
        #: One group for each distance on the ring, and one for recovery.
        self._groups: tuple[Any, ...] = ()
        self.replicas, self.per_node = replicas, per_node
        self.technique = MoeRckpt() if technique is None else technique
        self._persist, self._persist_every, self._warm_up = Path(persist) if persist else None, persist_every, warm_up
        #: Updates of the optimizer so far, which is also the number of the newest version.
        self.iteration = 0
        #: The plain values that were given with the version of the last recovery.
        self.extra: dict[str, Any] = {}
        #: Seconds for which updates waited for checkpoint traffic, and CPU seconds that `step` took.
        self.stall_s, self.bookkeeping_s = 0.0, 0.0
        self.own = Versions()
        self._held: dict[int, Versions] = {}
        self._sender: Sender | None = None
        self._receivers: list[Receiver] = []
        self._gate = Gate()
        self._policy: Policy | None = None
        self._plan: Plan | None = None
        self._spans: list[tuple[float, int, bool]] = []
        self._span_began, self._span_of, self._began = 0.0, (-1, False), 0.0
        self._waited_s = 0.0
        self._routing: dict[int, np.ndarray] = {}
        self._hook = optimizer.register_step_pre_hook(lambda *_: self._finish())

    # What a training loop calls

    def step(self, extra: Mapping[str, Any] | None = None) -> None:
        """Begins to send the state as it is now; `extra` are plain values that recovery gives back, such as a position in the data."""
        began, used = time.perf_counter(), time.thread_time()
        if self._sender is None:
            self._connect()
        assert self._sender is not None
        self.iteration += 1
        self._learn(began)
        description = self._flat.describe(extra)
        if self._policy is None and self._spans:
            self._policy = self.technique.policy(self._setting())
        self._plan = self._policy.plan() if self._policy is not None else None
        self._gate.flush(False)
        if self._persist is not None and self._persist_every and (self.iteration - 1) % self._persist_every == 0 and self.own.whole:
            self.export(self._file(max(self.own.whole)))
        chunk = int(self.technique.chunk_mib * 2**20)
        self._sender.begin(self.iteration, description, self._flat.read, self._flat.total, chunk)
        self._spans, self._waited_s = [], 0.0
        self._began = self._span_began = time.perf_counter()
        self._span_of = (-1, False)
        self._open()
        self.bookkeeping_s += time.thread_time() - used

    @contextlib.contextmanager
    def busy(self, after: int = -1, backward: bool = False) -> Iterator[None]:
        """Around a collective of training: no chunk begins inside. `after` is the MoE layer whose experts compute next, if any."""
        now = time.perf_counter()
        self._spans.append((now - self._span_began, *self._span_of))
        self._gate.close()
        try:
            yield
        finally:
            self._span_began, self._span_of = time.perf_counter(), (after, backward)
            self._open()

    def routed(self, layer: int, tokens: Any) -> None:
        """What the router of a layer did: the tokens [E] that each expert got from all ranks."""
        self._routing[layer] = np.asarray(tokens, np.float64)

    @property
    def wish(self) -> float:
        """1 if this rank wants the next iteration to be profiled; the largest over all ranks goes into `agree`."""
        return float(getattr(self._policy, "wish", False))

    def agree(self, wish: float) -> None:
        """Says what all ranks have agreed on, so that they profile together; it can ride on the all-reduce of gradients."""
        take = getattr(self._policy, "agree", None)
        if take is not None:
            take(bool(wish))

    def recover(self, group: Any = None) -> int:
        """After a process was replaced: all ranks, over a new group, go back to the newest common version; returns its iteration.

        A new process calls it instead of its first step. Raises `Unrecoverable` if neither memory nor storage has a version.
        """
        self._given = group if group is not None else self._given
        self.disconnect()
        self._connect()
        rank, size = self._rank, self._size
        mine = {rank: sorted(self.own.whole), **{owner: sorted(held.whole) for owner, held in self._held.items()}}
        told: list[Any] = self._gathered(mine)
        held = [{int(owner): set(known) for owner, known in one.items()} for one in told]
        found = newest_on_all(held)
        if found is None:
            return self._from_files()
        version, source = found
        for owner in range(size):
            if source[owner] == owner:
                continue
            if rank == source[owner]:
                self._give(owner, version)
            elif rank == owner:
                self._get(source[owner], version)
        self._go_back(version)
        return version

    def export(self, path: str | Path, version: int | None = None) -> Path:
        """Writes a version of this rank's state (by default its newest whole one) as a safetensors file."""
        if not self.own.whole:
            raise Unrecoverable("no version is whole yet")
        chosen = max(self.own.whole) if version is None else version
        if chosen not in self.own.whole:
            raise InputError(f"version {chosen}: expected one of {', '.join(map(str, self.own.whole))}")
        description, data = self.own.whole[chosen]
        return write_version(path, description, data, chosen)

    def state_dict(self, version: int | None = None) -> dict[str, Any]:
        """A version of this rank's state as tensors by name, under `rankN.`, for `torch.distributed.checkpoint.save`."""
        if not self.own.whole:
            raise Unrecoverable("no version is whole yet")
        description, data = self.own.whole[max(self.own.whole) if version is None else version]
        return {f"rank{self._rank}.{name}": value for name, value in tensors_of(description, data).items()}

    def close(self) -> None:
        """Sends what is left, and ends the threads; every rank calls it."""
        self._finish()
        self.disconnect()
        self._hook.remove()

    def __enter__(self) -> Rckpt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.disconnect()

    # Inside

    @property
    def _rank(self) -> int:
        return int(dist.get_rank(self._given))

    @property
    def _size(self) -> int:
        return int(dist.get_world_size(self._given))

    def _connect(self) -> None:
        size, rank = self._size, self._rank
        nodes = size // self.per_node
        if size % self.per_node or not 2 <= self.replicas <= nodes:
            raise InputError(f"replicas: found {self.replicas} for {nodes} nodes; expected 2 to {nodes}, one per node")
        members = dist.get_process_group_ranks(self._given if self._given is not None else dist.group.WORLD)
        self._groups = tuple(dist.new_group(members, backend="gloo") for _ in range(self.replicas))
        away = [distance * self.per_node for distance in range(1, self.replicas)]
        self._gate = Gate()
        peers = [((rank + d) % size, group) for d, group in zip(away, self._groups, strict=False)]
        self._receivers = []
        for d, group in zip(away, self._groups, strict=False):
            owner = (rank - d) % size
            self._receivers.append(Receiver(owner, group, self._held.setdefault(owner, Versions())))
        self._sender = Sender(peers, self._gate, self.own)

    def disconnect(self) -> None:
        """Ends the threads; whoever lost a rank calls it before its groups are made anew."""
        self._gate.stop()
        if self._sender is not None:
            self._sender.end()
            for receiver in self._receivers:
                receiver.end()
        self._sender, self._receivers = None, []

    def _open(self) -> None:
        number = len(self._spans)
        if self._plan is None:
            self._gate.open(float("inf"))
        else:
            self._gate.open(float(self._plan.room[number]) if number < len(self._plan.room) else 0.0)

    def _finish(self) -> None:
        """The optimizer is about to change the state: whatever has not been sent goes now."""
        if self._sender is None:
            return
        began = time.perf_counter()
        self._spans.append((began - self._span_began, *self._span_of))
        self._gate.flush(True)
        self._sender.wait()
        self._waited_s = time.perf_counter() - began
        self.stall_s += self._waited_s

    def _learn(self, now: float) -> None:
        """Tells the policy what the iteration showed."""
        if self._policy is None or self._plan is None:
            return
        spans = np.zeros(len(self._plan.room))
        seconds = [one[0] for one in self._spans[: len(spans)]]
        spans[: len(seconds)] = seconds
        loads = [self._routing[layer] for layer in sorted(self._routing)]
        tokens = np.stack(loads) if loads else np.zeros((0, 1))
        shares = tokens / np.maximum(tokens.sum(axis=1, keepdims=True), 1)
        spread = tokens.size > 0 and tokens.shape[1] % self._size == 0
        load = tokens.reshape(len(tokens), self._size, -1).sum(axis=2).max(axis=1) if spread else tokens.max(axis=1)
        plain = max(1e-9, now - self._began - self._waited_s)
        self._policy.observe(Seen(spans if self._plan.profile else None, plain, self._waited_s, shares, load))

    def _setting(self) -> Setting:
        sender = self._sender
        assert sender is not None
        launches_s = ALPHA_S * sender.chunks
        beta = sender.sent_bytes / (sender.sent_s - launches_s) if sender.sent_s > 2 * launches_s else BETA
        expert = np.array([one[1] for one in self._spans], np.int64)
        # A layer that the router never spoke of has no load to go by.
        expert = np.where(np.isin(expert, sorted(self._routing)), expert, -1)
        return Setting(float(self._flat.total), ALPHA_S, beta, expert, np.array([one[2] for one in self._spans]), 1, self._warm_up)

    def _gathered(self, value: Any) -> list[Any]:
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        group = self._groups[-1]
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self._size)]
        dist.all_gather(sizes, torch.tensor([len(text)]), group=group)
        most = max(int(size) for size in sizes)
        padded = torch.zeros(most, dtype=torch.uint8)
        padded[: len(text)] = torch.from_numpy(text.copy())
        rooms = [torch.zeros(most, dtype=torch.uint8) for _ in range(self._size)]
        dist.all_gather(rooms, padded, group=group)
        return [json.loads(bytes(room[: int(size)].numpy())) for room, size in zip(rooms, sizes, strict=True)]

    def _give(self, owner: int, version: int) -> None:
        description, data = self._held[owner].whole[version]
        text = torch.frombuffer(bytearray(json.dumps(description).encode()), dtype=torch.uint8)
        group = self._groups[-1]
        dist.send(torch.tensor([len(text), len(data)]), group=group, group_dst=owner)
        dist.send(text, group=group, group_dst=owner)
        dist.send(data, group=group, group_dst=owner)

    def _get(self, source: int, version: int) -> None:
        group, sizes = self._groups[-1], torch.empty(2, dtype=torch.int64)
        dist.recv(sizes, group=group, group_src=source)
        text = torch.empty(int(sizes[0]), dtype=torch.uint8)
        data = torch.empty(int(sizes[1]), dtype=torch.uint8)
        dist.recv(text, group=group, group_src=source)
        dist.recv(data, group=group, group_src=source)
        self.own.whole[version] = (json.loads(bytes(text.numpy())), data)

    def _go_back(self, version: int) -> None:
        description, data = self.own.whole[version]
        self._load(version, description, data)
        for versions in (self.own, *self._held.values()):
            versions.forget_after(version)

    def _load(self, version: int, description: Description, data: torch.Tensor) -> None:
        self._flat.load(description, data)
        self.iteration, self.extra = version, description["extra"]
        # The new connections are measured and planned for anew.
        self._policy, self._plan, self._spans = None, None, []
        self._began = self._span_began = time.perf_counter()

    def _file(self, version: int) -> Path:
        assert self._persist is not None
        return self._persist / f"rank{self._rank}-{version:08d}.safetensors"

    def _from_files(self) -> int:
        """The newest version that every rank has persisted."""
        known = []
        if self._persist is not None:
            known = [int(path.stem.partition("-")[2]) for path in self._persist.glob(f"rank{self._rank}-*.safetensors")]
        told = [set(one) for one in self._gathered(known)]
        common = set.intersection(*told)
        if not common:
            raise Unrecoverable("unrecoverable from memory, and no version of all ranks was persisted")
        version, description, data = read_version(self._file(max(common)))
        self._load(version, description, data)
        self.own, self._held = Versions(), {owner: Versions() for owner in self._held}
        self.disconnect()
        self._connect()
        return version
