"""Bodies that worker processes can import."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from armillary.tasks import current, external


def nothing() -> None:
    return None


def increment(a: np.ndarray) -> None:
    a += 1


def double(a: np.ndarray) -> None:
    a *= 2


def append(letters: str, letter: str) -> str:
    return letters + letter


def fail(*_: Any) -> None:
    raise ArithmeticError("as asked")


def die_once(a: np.ndarray, marker: str) -> None:
    """Spoils its data and kills its process, the first time."""
    a += 1
    if not Path(marker).exists():
        Path(marker).touch()
        a[...] = -99
        os.kill(os.getpid(), signal.SIGKILL)


def die_once_late(marker: str) -> None:
    """Works a little and kills its process, the first time, after it has written how many nanoseconds it worked."""
    began = time.monotonic_ns()
    if not Path(marker).exists():
        sum(range(200_000))
        Path(marker).write_text(str(time.monotonic_ns() - began))
        os.kill(os.getpid(), signal.SIGKILL)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def later() -> int:
    """Ends when another thread says so, after the body has returned."""
    with external(2) as event:
        timer = threading.Timer(0.01, lambda: (event.complete(), event.complete()))
        timer.daemon = True
        timer.start()
    return 5


def forget() -> None:
    with external():
        pass


def fail_later() -> None:
    with external() as event:
        threading.Timer(0.01, event.fail, [ArithmeticError("later")]).start()


def add(a: float, b: float) -> float:
    return a + b


def accumulate(a: np.ndarray, x: float) -> None:
    a += x


def grow(a: np.ndarray) -> int:
    """Adds tasks that double its data, read it, and use each other's results."""
    a += 1
    here = current()
    data = here.data("a")
    here.add(double, data, updates=[data], key="doubled")
    total = here.add(np.sum, data[0:1], key="total")
    here.add(add, total, 1.0, key="more", kwargs=None)
    return 7


def grow_wrongly() -> None:
    current().add(nothing, needs={"licence": 5}, key="never")


def grow_and_fail_once(a: np.ndarray) -> None:
    a += 1
    data = current().data("a")
    current().add(double, data, updates=[data], key="doubled")
    if current().attempt == 1:
        raise ArithmeticError("once")


def fail_twice(a: np.ndarray) -> int:
    """Spoils its data in the first two attempts."""
    a += 1
    attempt = current().attempt
    if attempt < 3:
        a[...] = -99
        raise ArithmeticError("not yet")
    return attempt


def mix(part: np.ndarray, mode: str, k: int) -> float:
    """Changes its part in a way that shows the order; returns what it saw."""
    if mode == "updates":
        part[...] = part * 3 % 1009 + k
    elif mode == "writes":
        part[...] = k
    return float(part.sum())


def never(ready: str) -> None:
    """Says which process it is and never returns, whatever it is asked."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(ready).write_text(str(os.getpid()))
    print("started", flush=True)
    threading.Event().wait()


def never_here(_: str) -> None:
    print("started", flush=True)
    threading.Event().wait()


def shape_and_first(a: np.ndarray) -> tuple[tuple[int, ...], float]:
    return a.shape, float(a.flat[0])


def add_one(k: int) -> int:
    current().add(add, k, 1, key=f"after {k}")
    return k
