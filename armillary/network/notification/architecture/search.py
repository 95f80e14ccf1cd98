"""Every interleaving of senders, one receiver and its kernel, looked at state by state: is a vector ever lost, or entered without a send?

The machine is `UserInterrupts` itself, not a copy of its rules: a state is loaded into it, one step is made, and the state is read back. A
core's send is one step and its notification's arrival another; a device's send is two steps. The receiver may at any time keep interrupts
out and let them in, make system calls, be taken off its core and put back on this core or another one. A state in which all sends are
made, no notification is on its way, and the thread runs in user mode with interrupts let in must have nothing left to deliver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from armillary.errors import InputError
from armillary.network.notification.architecture.user_interrupts import Sender, Thread, Upid, UserInterrupts

#: (steps made by each sender, ON, SN, NDST, PIR, UIRR, UIF, core or -1, in the kernel, handlers, messages, owed, surplus)
#: `owed` has a bit per vector that was posted and not entered since, and `surplus` a (vector, posts minus entries) for each that has any.
_Pairs: TypeAlias = tuple[tuple[int, int], ...]
State: TypeAlias = tuple[tuple[int, ...], bool, bool, int, int, int, bool, int, bool, tuple[int, ...], _Pairs, int, _Pairs]

_CORES = (0, 1)
_NV = 0xEC


@dataclass(frozen=True)
class Found:
    """What the search has seen."""

    #: The number of different states, and of those in which everything must have been delivered.
    states: int
    settled: int
    #: The names of the steps that lead to a fault, from the start; empty if there is none.
    fault: tuple[str, ...] = ()
    #: What is wrong there.
    what: str = ""


def search(
    sends: Sequence[Sequence[int]] = ((1, 3), (1,)),
    machine: Callable[[], UserInterrupts] = UserInterrupts,
    devices: bool = False,
    most: int = 1_000_000,
) -> Found:
    """Look at every state that senders, which send these vectors in order, and a receiver can reach; stop at the first fault.

    With `devices` the senders post and notify in two operations. `machine` makes the architecture, so that a wrong one can be tried. More
    than `most` states are refused.
    """
    for vector in (v for one in sends for v in one):
        Sender(vector, Upid(64, _NV, 0))
    start: State = (tuple(0 for _ in sends), False, False, 0, 0, 0, True, 0, False, (), (), 0, ())
    came: dict[State, tuple[State, str] | None] = {start: None}
    waiting = deque([start])
    settled = 0
    while waiting:
        state = waiting.popleft()
        if _is_settled(state, sends, devices):
            settled += 1
            if state[11] or state[4] or state[5]:
                return Found(len(came), settled, _way(came, state), f"vectors {_bits(state[11] | state[4] | state[5])} are lost")
        for name, after, spurious in _steps(state, sends, machine, devices):
            if after not in came:
                came[after] = (state, name)
                waiting.append(after)
                if len(came) > most:
                    raise InputError(f"found more than {most} states; expected fewer sends")
            if spurious:
                return Found(len(came), settled, (*_way(came, state), name), f"vectors {_bits(spurious)} are entered without a send")
    return Found(len(came), settled)


def _is_settled(state: State, sends: Sequence[Sequence[int]], devices: bool) -> bool:
    """Whether nothing is left to happen by itself: what is not delivered here never will be."""
    made = all(steps == (1 + devices) * len(own) for steps, own in zip(state[0], sends))
    return made and not state[10] and state[7] >= 0 and not state[8] and state[6] and not state[9]


def _steps(
    state: State, sends: Sequence[Sequence[int]], machine: Callable[[], UserInterrupts], devices: bool
) -> Iterator[tuple[str, State, int]]:
    """Yield (name, state after, vectors entered without a send) for each step that is possible."""
    progress, core, in_kernel, handlers = state[0], state[7], state[8], state[9]

    def after(
        name: str, step: Callable[[UserInterrupts, Thread], object], made: tuple[int, ...] = progress, post: int = -1
    ) -> tuple[str, State, int]:
        world, thread = _load(state, machine)
        step(world, thread)
        owed, surplus, spurious = state[11], dict(state[12]), 0
        if post >= 0:
            owed |= 1 << post
            surplus[post] = surplus.get(post, 0) + 1
        for vector in thread.entered:
            owed &= ~(1 << vector)
            surplus[vector] = surplus.get(vector, 0) - 1
            if surplus[vector] < 0:
                spurious |= 1 << vector
        upid = thread.upid
        found: State = (
            made, upid.on, upid.sn, upid.ndst, upid.pir, thread.uirr, thread.uif, -1 if thread.core is None else thread.core,
            thread.in_kernel, tuple(thread.handlers), tuple(sorted(world.messages)), owed,
            tuple(sorted((v, n) for v, n in surplus.items() if n)),
        )  # fmt: skip
        return name, found, spurious

    for i, own in enumerate(sends):
        steps = progress[i]
        if steps == (1 + devices) * len(own):
            continue
        vector = own[steps // (1 + devices)]
        made = (*progress[:i], steps + 1, *progress[i + 1 :])
        if not devices:
            yield after(f"sender {i} sends {vector}", lambda w, t, v=vector: w.send(w.sender(t, v)), made, vector)  # type: ignore[misc]
        elif steps % 2 == 0:
            yield after(f"device {i} posts {vector}", lambda w, t, v=vector: w.post(w.sender(t, v)), made, vector)  # type: ignore[misc]
        else:
            yield after(f"device {i} notifies", lambda w, t, v=vector: w.raise_notification(w.sender(t, v)), made)  # type: ignore[misc]
    for place, message in enumerate(state[10]):
        if message not in state[10][:place]:
            yield after(f"core {message[0]} is notified", lambda w, _, p=place: w.deliver(p))  # type: ignore[misc]
    if core < 0:
        for other in _CORES:
            yield after(f"resumed on core {other}", lambda w, t, c=other: w.resume(t, c))  # type: ignore[misc]
        return
    yield after("taken off its core", lambda w, t: w.deschedule(t))
    if in_kernel:
        yield after("returns from the kernel", lambda w, t: w.leave_kernel(t))
        return
    yield after("calls the kernel", lambda w, t: w.enter_kernel(t))
    if handlers:
        yield after("UIRET", lambda w, t: w.uiret(t))
    elif state[6]:
        yield after("CLUI", lambda w, t: w.clui(t))
    else:
        yield after("STUI", lambda w, t: w.stui(t))


def _load(state: State, machine: Callable[[], UserInterrupts]) -> tuple[UserInterrupts, Thread]:
    _, on, sn, ndst, pir, uirr, uif, core, in_kernel, handlers, messages, *_ = state
    world = machine()
    thread = world.register(0, _NV)
    thread.upid.on, thread.upid.sn, thread.upid.ndst, thread.upid.pir = on, sn, ndst, pir
    thread.uirr, thread.uif, thread.in_kernel = uirr, uif, in_kernel
    thread.core = None if core < 0 else core
    thread.handlers.extend(handlers)
    world.messages.extend(messages)
    return world, thread


def _way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names: list[str] = []
    while (before := came[state]) is not None:
        state, name = before
        names.append(name)
    return tuple(reversed(names))


def _bits(found: int) -> str:
    return ", ".join(str(v) for v in range(found.bit_length()) if found >> v & 1)
