"""Functions that the workers of a pilot import."""

from __future__ import annotations

import os
import time
from pathlib import Path


def pid() -> int:
    return os.getpid()


def add(a: int, b: int = 0) -> int:
    return a + b


def fails(text: str) -> None:
    raise ValueError(text)


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def kills_itself() -> None:
    os.kill(os.getpid(), 9)


def dies_once(mark: str) -> str:
    """Kills its process at the first call, and answers at the next."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), 9)
    return "alive"


def notes(folder: str, name: str, seconds: float = 0.0) -> str:
    """Leaves one line per call, and one more at its end, so that a call that was made twice is seen."""
    with (Path(folder) / name).open("a") as file:
        file.write(f"begin {time.monotonic_ns()}\n")
    time.sleep(seconds)
    with (Path(folder) / name).open("a") as file:
        file.write(f"end {time.monotonic_ns()}\n")
    return name


def large(size: int) -> bytes:
    return bytes(size)


class Unpicklable(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(a)


def odd_error() -> None:
    raise Unpicklable(1, 2)


def no_pickle() -> object:
    return lambda: 0
