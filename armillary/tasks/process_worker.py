"""The loop of a worker process: it takes a task, calls its body, and reports the outcome."""

from __future__ import annotations

import pickle
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from armillary.tasks import events
from armillary.tasks.blocks import Attached, Place
from armillary.tasks.elsewhere import Added, Named, Request
from armillary.tasks.messages import receive, send


@dataclass(frozen=True, slots=True)
class Shared:
    """An argument in shared memory: its place, and the part."""

    place: Place
    index: Any


def work(pipe: Connection, begun: Any) -> None:
    """Serves tasks until the pipe closes; `begun` tells the other side when the last body began, and how many have, even after a kill."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    attached, lock = Attached(), threading.Lock()
    #: Tasks that were sent in advance and arrived while a body waited for an answer.
    inbox: deque[Any] = deque()
    while True:
        try:
            number, key, attempt, call, args, kwargs = inbox.popleft() if inbox else receive(pipe)
        except (EOFError, OSError):
            return
        ask = partial(_add, pipe, lock, inbox, number)
        events.enter(partial(events.Context, key, attempt, lambda context: None, ask, Named))
        result = error = None
        started, used = time.monotonic_ns(), time.thread_time_ns()
        begun[0] = started
        begun[1] += 1
        try:
            if call is not None:
                result = call(*_arguments(args, attached), **{k: _argument(v, attached) for k, v in kwargs.items()})
        except BaseException as raised:
            error = raised
        used, ended = time.thread_time_ns() - used, time.monotonic_ns()
        context = events.leave()
        reply = partial(_reply, pipe, lock)
        waits = context is not None
        reply(("body", number, started, ended, used, waits, result, error if not waits else None))
        if context is not None:
            context._settle = partial(_settled, reply, number)
            context.settle(1, error)


def _add(pipe: Connection, lock: threading.Lock, inbox: deque[Any], number: int, call: Any, *args: Any, **how: Any) -> Added:
    """Asks the process that runs the graph to add a task, and waits for its answer."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("current().add is for the thread that runs the body")
    with lock:
        send(pipe, ("add", number, Request(call, args, how)))
    while (message := receive(pipe))[0] != "added":
        inbox.append(message)
    _, task, error = message
    if error is not None:
        raise error
    added: Added = task
    return added


def _arguments(args: Any, attached: Attached) -> list[Any]:
    return [_argument(a, attached) for a in args]


def _argument(value: Any, attached: Attached) -> Any:
    if isinstance(value, Shared):
        array = attached.array(value.place)
        return array if value.index is None else array[value.index]
    if isinstance(value, list | tuple):
        items = _arguments(value, attached)
        return items if isinstance(value, list) else tuple(items)
    return value


def _settled(reply: Callable[[Any], None], number: int, context: events.Context) -> None:
    reply(("settled", number, time.monotonic_ns(), context.abandoned, context.error))


def _reply(pipe: Connection, lock: threading.Lock, message: tuple[Any, ...]) -> None:
    error = message[-1]
    if error is not None:
        message = (*message[:-1], portable(error))
    with lock:
        try:
            send(pipe, message)
        except (pickle.PicklingError, TypeError, AttributeError) as why:
            send(pipe, (*message[:-2], None, RuntimeError(f"the result cannot travel between processes: {why}")))


def portable(error: BaseException) -> BaseException:
    """The exception, or one with the same message if it cannot travel between processes."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 (our own)
    except Exception:
        text = "".join(traceback.format_exception_only(error)).strip()
        return RuntimeError(text)
    error.add_note("in a worker process:\n" + "".join(traceback.format_tb(error.__traceback__)[-3:]).rstrip())
    return error
