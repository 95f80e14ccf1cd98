"""The corpus `python-source`: the `.py` files of the interpreter's own standard library, which every machine with Python has.

Its content depends on the version of Python, so that losses on it are measured figures of one machine.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import numpy as np

from armillary.errors import InputError

#: Bytes that are read at most.
MOST_BYTES = 20_000_000
#: Folders that are no part of the library's own code.
_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}


def python_source(rng: np.random.Generator, most: int = MOST_BYTES) -> list[bytes]:
    """Files of the standard library in the order of their paths: a random choice of them, of at most `most` bytes together."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = []
    for folder, inside, files in os.walk(root):
        inside[:] = sorted(name for name in inside if name not in _LEFT_OUT)
        paths += [Path(folder) / name for name in sorted(files) if name.endswith(".py")]
    chosen, size = [], 0
    for i in rng.permutation(len(paths)).tolist():
        length = paths[i].stat().st_size
        if not length or size + length > most:
            continue
        chosen.append(i)
        size += length
    found = [data for i in sorted(chosen) if _is_text(data := paths[i].read_bytes())]
    if not found:
        raise InputError("found no .py files of the standard library beside this interpreter", where="python-source")
    return found


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
