"""Bodies that worker processes can import."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np

from armillary.tasks import external


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
