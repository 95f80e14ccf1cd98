"""The sliding window: which tensors leave the GPU after each operation, and which ones take their buffers.

The window is the set of tensors on the GPU. The cursor is the next access whose tensor is not in it. When an operation is done, each of its
tensors whose own next access comes later than the cursor's leaves the window, and the cursor's tensor enters it. At the turn from forward
to backward every tensor of the last layers is needed again before the cursor's, so nothing moves. A class with a buffer for each of its
tensors never lets one go.

A tensor enters a buffer of its size class. Where the class has none free, the cursor waits for the next one that is released; a tensor
that an operation needs now takes the buffer of the one in its class that is needed last. A tensor that leaves goes to a free buffer of its
class in the host, or takes one of which the GPU has a copy too, or sends the host's tensor that is needed last to the drive. If the host
still has its copy, it goes without a transfer. A tensor from the drive comes in two steps: to the host after this operation, and to the GPU
after the next one.

If an iteration does not run in the recorded order, next accesses are unknown: tensors then come on demand, those of the following operation
one step ahead, and the tensor of a class leaves whose turn in this pass came first, because a pass touches each tensor once and backward
goes the way of forward back. If none had its turn yet, it is the least recently used one.
"""

# Kernels carry their types in the arrays that they are given.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.training.offload.simulation.machine import MALLOC_S, PIN_S_PER_MIB
from armillary.training.offload.simulation.schedule import DROP, GPU, HOST, IN, NOTHING, NVME, OUT, READ, WRITE, Moves

from .buffers import SizeClasses
from .prefetch_table import PrefetchTable, next_rows

IntArray = npt.NDArray[np.int64]
FORWARD = 0
BoolArray = npt.NDArray[np.bool_]
#: Columns of `tag`: where the tensor is, its buffer on the GPU, its next access, its last access, the last move that involved its copy in
#: the host, and its neighbours in the queue of its class.
PLACE, BUFFER, NEXT, LAST, MOVE, AHEAD, BEHIND = range(7)
#: Columns of `flag`: whether the host has a copy, whether it waits for its second step, and whether the current operation uses it.
COPY, COMING, BUSY = range(3)
#: Columns of `group`: where its ring of GPU buffers begins, its length, head and fill; free host buffers; first and last of the queue of
#: tensors that are on the GPU and still have a copy in the host; and whether there is a GPU buffer for every tensor.
RING, LENGTH, HEAD, FREE, HOST_FREE, FIRST, FINAL, WHOLE = range(8)
#: Entries of `cursor`: the row of the cursor, tensors that may enter, and the number of tensors that wait for their second step.
ROW, CREDIT, WAITING = range(3)
_OK, _NO_ROOM, _NO_DRIVE, _TOO_MANY = range(4)


class State(NamedTuple):
    """What changes from iteration to iteration."""

    tag: np.ndarray  # int64 [tensor, 7]
    flag: np.ndarray  # bool [tensor, 3]
    group: np.ndarray  # int64 [class, 8]
    ring: np.ndarray  # int64 [buffers]: free buffers of each class
    freed: np.ndarray  # int64 [buffers]: the move after which a buffer is free, or −1
    cursor: np.ndarray  # int64 [3]
    waiting: np.ndarray  # int64 [tensors]: those that are being read from the drive


def first_window(table: PrefetchTable, classes: SizeClasses, gpu: IntArray, slack: int) -> BoolArray:
    """The tensors that start on the GPU: in forward order up to the first class that is full, and all of classes with room for each tensor.

    `slack` buffers stay free if there are that many and not every tensor has one, so that a tensor of another class can enter for the one
    that leaves.
    """
    order = list(dict.fromkeys(table.tensor.tolist()))
    whole = gpu >= classes.count
    resident, free = np.zeros(len(table.size), bool), gpu.copy()
    resident[order] = whole[classes.of[order]]
    most = int(gpu.sum())
    if not whole.all() and most > slack:
        most -= slack
    for t in order[:most]:
        g = classes.of[t]
        if not whole[g]:
            if not free[g]:
                break
            resident[t], free[g] = True, free[g] - 1
    return resident


class Window:
    """A window over a table with buffers per size class; `iteration` gives the moves of one iteration after another."""

    def __init__(
        self, table: PrefetchTable, classes: SizeClasses, gpu: IntArray, host: IntArray, resident: BoolArray, *, prefetch: bool = True,
        reuse: bool = True, nvme: bool = True,
    ) -> None:  # fmt: skip
        self.table, self.classes, self.prefetch, self.reuse, self.nvme = table, classes, prefetch, reuse, nvme
        self.tensors = len(table.size)
        self.buffers = int(gpu.sum())
        self.length = int(resident.sum())
        self._state = self._placed(gpu, host, resident)
        self._begun = 0

    def _placed(self, gpu: IntArray, host: IntArray, resident: BoolArray) -> State:
        """The initial placement in forward order: the tensors of the first window, then the host, then the drive."""
        groups, of = len(gpu), self.classes.of
        group = np.zeros((groups, 8), np.int64)
        group[:, RING] = np.cumsum(gpu) - gpu
        group[:, LENGTH] = gpu
        group[:, FREE] = gpu
        group[:, HOST_FREE] = host
        group[:, [FIRST, FINAL]] = NOTHING
        group[:, WHOLE] = gpu >= self.classes.count
        tag = np.full((self.tensors, 7), NOTHING, np.int64)
        ring = np.arange(self.buffers, dtype=np.int64)
        for t in dict.fromkeys(self.table.tensor.tolist()):
            g = of[t]
            if resident[t]:
                tag[t, PLACE], tag[t, BUFFER] = GPU, ring[group[g, RING] + group[g, HEAD]]
                group[g, HEAD], group[g, FREE] = group[g, HEAD] + 1, group[g, FREE] - 1
            elif group[g, HOST_FREE]:
                tag[t, PLACE] = HOST
                group[g, HOST_FREE] -= 1
            elif self.nvme:
                tag[t, PLACE] = NVME
            else:
                raise InputError("the host is too small for the parameters, and there is no drive")
        group[:, HEAD] %= np.maximum(group[:, LENGTH], 1)
        flag = np.zeros((self.tensors, 3), bool)
        flag[:, COPY] = tag[:, PLACE] == HOST
        tag[tag[:, PLACE] == NOTHING, PLACE] = HOST if not self.nvme else NVME  # A tensor that no operation uses.
        return State(tag, flag, group, ring, np.full(max(self.buffers, 1), NOTHING, np.int64), np.zeros(3, np.int64),
                     np.zeros(self.tensors, np.int64))  # fmt: skip

    @property
    def place(self) -> IntArray:
        """Where each tensor is now: 0 on the GPU, 1 in the host, 2 on the drive."""
        found: IntArray = self._state.tag[:, PLACE].copy()
        return found

    @property
    def buffer(self) -> IntArray:
        """The buffer that each tensor has on the GPU, or −1."""
        found: IntArray = np.where(self._state.tag[:, PLACE] == GPU, self._state.tag[:, BUFFER], NOTHING)
        return found

    @property
    def copies(self) -> BoolArray:
        """Whether the host holds each tensor, also beside a copy on the GPU."""
        found: BoolArray = self._state.flag[:, COPY].copy()
        return found

    def known(self, tensor: IntArray) -> bool:
        """Whether an iteration with these accesses runs in the recorded order."""
        return np.array_equal(tensor, self.table.tensor)

    def iteration(self, number: int, tensor: IntArray | None = None, op: IntArray | None = None) -> Moves:
        """The moves of iteration `number`, by default in the recorded order; an unknown order becomes the recorded one."""
        table = self.table
        actual, ops = (table.tensor, table.op) if tensor is None or op is None else (tensor, op)
        known = self.known(actual)
        s = self._state
        if not known:
            self.table = table = replace(table, tensor=actual, op=ops, next=np.zeros(len(actual), np.int64))
        if self._begun == 0 or not known:
            self._begin(number, actual)
        turn = int((table.phase == FORWARD).sum())
        room = 8 * len(actual) + 64
        out, alloc, count = np.empty((4, room), np.int64), np.zeros(room), np.zeros(1, np.int64)
        s.tag[:, MOVE] = NOTHING
        s.freed[:] = NOTHING
        fault = _iteration(
            s, np.array(actual), np.array(ops), np.array(table.next), np.array(self.classes.of), np.array(table.size), turn, number,
            known, self.prefetch, self.reuse, self.nvme, out, alloc, count,
        )  # fmt: skip
        if fault == _NO_DRIVE:
            raise InputError("the host is too small for the parameters, and there is no drive")
        if fault != _OK:
            raise AssertionError("no buffer for a tensor that is needed now" if fault == _NO_ROOM else "too many moves")
        self._begun = number + 1
        if not known:
            self.table = replace(table, next=next_rows(actual))
            self._begin(number + 1, actual)
        n = int(count[0])
        return Moves(out[0, :n], out[1, :n], out[2, :n], out[3, :n], alloc[:n])

    def _begin(self, number: int, tensor: IntArray) -> None:
        """Sets the cursor to the start of an iteration, and every tensor's next access to its first there."""
        s, rows = self._state, len(tensor)
        s.tag[:, NEXT] = np.iinfo(np.int64).max
        s.tag[tensor[::-1], NEXT] = number * rows + np.arange(rows)[::-1]
        s.cursor[ROW] = number * rows
        s.cursor[CREDIT] = max(self.length - int((s.tag[:, PLACE] == GPU).sum()), 0)


@loop
def _put(out, alloc, count, slot, kind, tensor, after, seconds):
    """Adds a move; returns its number, or −1 if there is no room."""
    m = count[0]
    if m >= out.shape[1]:
        return -1
    out[0, m], out[1, m], out[2, m], out[3, m], alloc[m] = slot, kind, tensor, after, seconds
    count[0] += 1
    return m


@loop
def _unqueue(s, t, g):
    """Takes a tensor out of its class's queue of tensors with a copy in the host."""
    ahead, behind = s.tag[t, AHEAD], s.tag[t, BEHIND]
    if ahead >= 0:
        s.tag[ahead, BEHIND] = behind
    else:
        s.group[g, FIRST] = behind
    if behind >= 0:
        s.tag[behind, AHEAD] = ahead
    else:
        s.group[g, FINAL] = ahead
    s.tag[t, AHEAD], s.tag[t, BEHIND] = NOTHING, NOTHING


@loop
def _enqueue(s, t, g):
    final = s.group[g, FINAL]
    s.tag[t, AHEAD], s.tag[t, BEHIND] = final, NOTHING
    if final >= 0:
        s.tag[final, BEHIND] = t
    else:
        s.group[g, FIRST] = t
    s.group[g, FINAL] = t


@loop
def _host_buffer(s, g, of, slot, nvme, out, alloc, count):
    """Frees a buffer of a class in the host; returns the move after which it is free (−1: at once), or −2 if there is none."""
    if s.group[g, HOST_FREE] > 0:
        s.group[g, HOST_FREE] -= 1
        return NOTHING
    u = s.group[g, FIRST]
    if u >= 0:  # The GPU has a copy of it too, which was made from this buffer.
        _unqueue(s, u, g)
        s.flag[u, COPY] = False
        return s.tag[u, MOVE]
    if not nvme:
        return -2
    worst = -1
    for v in range(len(of)):
        held = of[v] == g and s.tag[v, PLACE] == HOST and s.flag[v, COPY] and not s.flag[v, COMING] and not s.flag[v, BUSY]
        if held and (worst < 0 or s.tag[v, NEXT] > s.tag[worst, NEXT]):
            worst = v
    if worst < 0:
        return -2
    s.tag[worst, PLACE] = NVME
    s.flag[worst, COPY] = False
    return _put(out, alloc, count, slot, WRITE, worst, s.tag[worst, MOVE], 0.0)


@loop
def _leave(s, t, of, size, slot, reuse, nvme, out, alloc, count):
    """Sends a tensor from the GPU to the host; false if the host has no place for it."""
    g = of[t]
    if s.flag[t, COMING]:  # It has got no further than the host.
        s.flag[t, COMING] = False
        m = s.freed[s.tag[t, BUFFER]]
    elif s.flag[t, COPY]:
        _unqueue(s, t, g)
        m = _put(out, alloc, count, slot, DROP, t, NOTHING, 0.0)
    else:
        after = _host_buffer(s, g, of, slot, nvme, out, alloc, count)
        if after == -2:
            return False
        pin = 0.0 if reuse else PIN_S_PER_MIB * size[t] / 1048576.0
        m = _put(out, alloc, count, slot, OUT, t, after, pin)
        s.flag[t, COPY] = True
        s.tag[t, MOVE] = m
    s.tag[t, PLACE] = HOST
    b = s.tag[t, BUFFER]
    s.freed[b] = m
    s.ring[s.group[g, RING] + (s.group[g, HEAD] + s.group[g, FREE]) % s.group[g, LENGTH]] = b
    s.group[g, FREE] += 1
    s.cursor[CREDIT] += 1
    s.cursor[ROW] = min(s.cursor[ROW], s.tag[t, NEXT])
    return True


@loop
def _take(s, t, g):
    """Gives a tensor the oldest free buffer of its class."""
    b = s.ring[s.group[g, RING] + s.group[g, HEAD]]
    s.group[g, HEAD] = (s.group[g, HEAD] + 1) % s.group[g, LENGTH]
    s.group[g, FREE] -= 1
    s.tag[t, BUFFER], s.tag[t, PLACE] = b, GPU
    s.cursor[CREDIT] -= 1


@loop
def _enter(s, t, g, slot, reuse, out, alloc, count):
    """Issues the transfer of a tensor to the GPU; its copy stays in the host until its buffer is needed."""
    m = _put(out, alloc, count, slot, IN, t, s.freed[s.tag[t, BUFFER]], 0.0 if reuse else MALLOC_S)
    s.tag[t, MOVE] = m
    _enqueue(s, t, g)
    return m


@loop
def _read(s, t, g, of, slot, nvme, out, alloc, count):
    """Issues the read of a tensor from the drive into a host buffer; returns the move, or −2 if there is no buffer."""
    after = _host_buffer(s, g, of, slot, nvme, out, alloc, count)
    if after == -2:
        return -2
    s.flag[t, COPY] = True
    return _put(out, alloc, count, slot, READ, t, after, 0.0)


@loop
def _later(s, v, worst, known, since):
    """Whether tensor v is needed later than `worst`, as far as can be told; `since` is the first row of this pass."""
    if known:
        return s.tag[v, NEXT] > s.tag[worst, NEXT]
    done, worst_done = s.tag[v, LAST] >= since, s.tag[worst, LAST] >= since
    if done != worst_done:
        return done
    # What the host has too leaves without a transfer, which would wait behind the gradients.
    if s.flag[v, COPY] != s.flag[worst, COPY]:
        return s.flag[v, COPY]
    return s.tag[v, LAST] < s.tag[worst, LAST]


@loop
def _room(s, g, of, size, slot, known, since, reuse, nvme, out, alloc, count):
    """Makes a buffer of a class free, if none is, by sending away the tensor that is needed last; false if all are in use."""
    if s.group[g, FREE] > 0:
        return True
    worst = -1
    for v in range(len(of)):
        if of[v] == g and s.tag[v, PLACE] == GPU and not s.flag[v, BUSY] and (worst < 0 or _later(s, v, worst, known, since)):
            worst = v
    return worst >= 0 and _leave(s, worst, of, size, slot, reuse, nvme, out, alloc, count)


@loop
def _demand(s, t, of, size, slot, known, since, reuse, nvme, out, alloc, count):
    """Brings a tensor to the GPU now; returns a fault."""
    g = of[t]
    if not _room(s, g, of, size, slot, known, since, reuse, nvme, out, alloc, count):
        return _NO_ROOM
    if s.tag[t, PLACE] == NVME and _read(s, t, g, of, slot, nvme, out, alloc, count) == -2:
        return _NO_DRIVE
    _take(s, t, g)
    _enter(s, t, g, slot, reuse, out, alloc, count)
    return _OK


@loop
def _advance(s, tensor, now):
    """Moves the cursor to the next access whose tensor is not in the window; returns false if there is none within one iteration."""
    rows = len(tensor)
    row = max(s.cursor[ROW], now)
    while row < now + rows and s.tag[tensor[row % rows], PLACE] == GPU:
        row += 1
    s.cursor[ROW] = row
    return row < now + rows


@loop
def _iteration(s, tensor, op, following, of, size, turn, number, known, prefetch, reuse, nvme, out, alloc, count):
    rows, base = len(tensor), number * len(tensor)
    ops = op[-1] + 1
    begin = 0
    while begin < rows:
        end = begin
        while end < rows and op[end] == op[begin]:
            s.flag[tensor[end], BUSY] = True
            end += 1
        slot = 2 * (number * ops + op[begin])
        since = base + (turn if begin >= turn else 0)
        for r in range(begin, end):
            t = tensor[r]
            if s.flag[t, COMING]:  # Its second step cannot wait any longer.
                s.flag[t, COMING] = False
                _enter(s, t, of[t], slot, reuse, out, alloc, count)
            elif s.tag[t, PLACE] != GPU:
                fault = _demand(s, t, of, size, slot, known, since, reuse, nvme, out, alloc, count)
                if fault != _OK:
                    return fault
        if not known and prefetch and end < rows:
            later = end
            while later < rows and op[later] == op[end]:
                s.flag[tensor[later], BUSY] = True
                later += 1
            for r in range(end, later):
                if s.tag[tensor[r], PLACE] != GPU:
                    # Without a free buffer it comes on demand.
                    _demand(s, tensor[r], of, size, slot, known, since, reuse, nvme, out, alloc, count)
            for r in range(end, later):
                s.flag[tensor[r], BUSY] = False
            for r in range(begin, end):
                s.flag[tensor[r], BUSY] = True
        for r in range(begin, end):
            s.tag[tensor[r], LAST] = base + r
            if known:
                s.tag[tensor[r], NEXT] = base + following[r]
        slot += 1
        waiting = s.cursor[WAITING]
        s.cursor[WAITING] = 0
        for i in range(waiting):
            t = s.waiting[i]
            if s.flag[t, COMING]:
                s.flag[t, COMING] = False
                _enter(s, t, of[t], slot, reuse, out, alloc, count)
        for r in range(begin, end):
            s.flag[tensor[r], BUSY] = False
        if known and prefetch:
            fault = _slide(s, tensor, of, size, base + end, begin, end, slot, reuse, nvme, out, alloc, count)
            if fault != _OK:
                return fault
        if count[0] >= out.shape[1]:
            return _TOO_MANY
        begin = end
    # Nothing is on its way when the parameters are updated.
    for i in range(s.cursor[WAITING]):
        t = s.waiting[i]
        if s.flag[t, COMING]:
            s.flag[t, COMING] = False
            _enter(s, t, of[t], 2 * (number * ops + ops - 1) + 1, reuse, out, alloc, count)
    s.cursor[WAITING] = 0
    return _OK


@loop
def _slide(s, tensor, of, size, now, begin, end, slot, reuse, nvme, out, alloc, count):
    """Lets the tensors of an operation go that are needed later than the cursor's, and others enter."""
    for r in range(begin, end):
        t = tensor[r]
        if s.tag[t, PLACE] != GPU or s.group[of[t], WHOLE]:
            continue
        if not _advance(s, tensor, now):
            return _OK
        if s.tag[t, NEXT] > s.cursor[ROW] and not _leave(s, t, of, size, slot, reuse, nvme, out, alloc, count):
            return _NO_DRIVE
        while s.cursor[CREDIT] > 0 and _advance(s, tensor, now):
            q = tensor[s.cursor[ROW] % len(tensor)]
            g = of[q]
            if s.group[g, FREE] == 0:
                break
            if s.tag[q, PLACE] == NVME:
                read = _read(s, q, g, of, slot, nvme, out, alloc, count)
                if read == -2:
                    return _NO_DRIVE
                _take(s, q, g)
                s.tag[q, MOVE] = read
                s.flag[q, COMING] = True
                s.waiting[s.cursor[WAITING]] = q
                s.cursor[WAITING] += 1
            else:
                _take(s, q, g)
                _enter(s, q, g, slot, reuse, out, alloc, count)
    return _OK
