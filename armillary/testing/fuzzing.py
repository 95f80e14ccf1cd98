"""Bad files for every reader: an arena's own example, damaged in ways that tools, disks, networks and strangers damage files.

A reader accepts a damaged file or refuses it with an `InputError`. Any other exception is a fault, as are a crash, a hang and memory
without a limit, which `tests/fuzz_readers` and `tests/fuzz_decoders` look for in processes of their own (`isolated`).
"""

from __future__ import annotations

import gzip
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from armillary.arena import Arena
from armillary.errors import InputError

Array = np.ndarray[Any, Any]
Damage = Callable[[bytes, random.Random], bytes]

NUMBERS = (b"-1", b"0", b"nan", b"inf", b"1e999", b"4294967296", b"9223372036854775807", b"99999999999999999999", b"0.5", b"", b"x")


def _flipped(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 16))):
        made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _without_a_piece(data: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(data))
    return data[:begin] + data[begin + rng.randrange(1, 64) :]


def _with_a_piece_twice(data: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(data))
    end = begin + rng.randrange(1, 256)
    return data[:end] + data[begin:end] * rng.choice((1, 1, 50)) + data[end:]


def _with_noise(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.randbytes(rng.randrange(1, 40)) + data[at:]


def _with_another_number(data: bytes, rng: random.Random) -> bytes:
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data[:1_000_000]))
    if not found:
        return _flipped(data, rng)
    one = rng.choice(found)
    return data[: one.start()] + rng.choice(NUMBERS) + data[one.end() :]


def _with_an_extreme_word(data: bytes, rng: random.Random) -> bytes:
    """A 2-, 4- or 8-byte integer of a binary format made extreme."""
    width = rng.choice((2, 4, 8))
    value = rng.choice((0, 1, 2 ** (8 * width - 1) - 1, 2 ** (8 * width) - 1, rng.randrange(2**16)))
    at = rng.randrange(max(1, len(data) - width))
    return data[:at] + value.to_bytes(width, "little") + data[at + width :]


def _with_lines_moved(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    if rng.random() < 0.5:
        del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def _packed_and_cut(data: bytes, rng: random.Random) -> bytes:
    packed = gzip.compress(data, mtime=0)
    return packed[: rng.randrange(2, len(packed))]


DAMAGES: tuple[Damage, ...] = (
    _flipped, _cut, _without_a_piece, _with_a_piece_twice, _with_noise, _with_another_number, _with_another_number, _with_an_extreme_word,
    _with_lines_moved, _packed_and_cut,
)  # fmt: skip


#: Numbers with which counts, offsets, ids and flags are tempted, besides those nearby.
TEMPTING = (
    0, 1, 2, 3, 7, 8, 63, 64, 65, 255, 256, 1000, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 62,
    (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1, -2, -(1 << 31), -(1 << 63),
)  # fmt: skip


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """`data` after one of the `DAMAGES`; empty data gets a byte."""
    return rng.choice(DAMAGES)(data, rng) if data else rng.randbytes(1)


def damaged_number(value: int, rng: random.Random) -> int:
    """Another whole number, which is a tempting one or one nearby."""
    return rng.choice(TEMPTING) if rng.random() < 0.6 else value + rng.choice((-64, -8, -2, -1, 1, 2, 8, 64))


def damaged_value(value: Any, rng: random.Random) -> Any:
    """A JSON value with one of its parts changed, left out, repeated, or replaced by one of another type."""
    if isinstance(value, dict | list) and value and rng.random() < 0.95:
        made = value.copy()
        at = rng.choice(list(made)) if isinstance(made, dict) else rng.randrange(len(made))
        if rng.random() < 0.85:
            made[at] = damaged_value(made[at], rng)
        elif isinstance(made, list) and rng.random() < 0.5:
            made.insert(at, made[at])
        else:
            del made[at]
        return made
    if rng.random() < 0.4:
        return rng.choice((None, True, "", "x", [], {}, [[]], 0.5, 1e300, float("inf"), float("nan"), "../x", "\0", "9" * 40))
    if isinstance(value, str) and value:
        return damaged_bytes(value.encode(), rng).decode("utf-8", "replace")
    if isinstance(value, int | float):
        return damaged_number(int(value), rng)
    return rng.choice(TEMPTING)


def damaged_array(array: Array, rng: random.Random) -> Array:
    """A flat copy of an array of whole numbers or floats with some elements changed, or cut, extended, moved or of another type."""
    made = np.array(array, order="C").reshape(-1)
    how = rng.random()
    if not len(made) or how < 0.05:
        return np.concatenate([made, np.zeros(rng.randrange(1, 9), made.dtype)])
    if how < 0.15:
        return made[: rng.randrange(len(made))].copy()
    if how < 0.2:
        begin, end = sorted(rng.randrange(len(made)) for _ in range(2))
        made[begin:end] = made[begin:end][::-1]
        return made
    if how < 0.25:
        return made.view(rng.choice([kind for kind in ("u1", "i4", "u8", "f8") if made.nbytes % np.dtype(kind).itemsize == 0]))
    for _ in range(rng.choice((1, 1, 2, 5, 40))):
        at = rng.randrange(len(made))
        if made.dtype.kind in "iu":
            made[at] = np.array(damaged_number(int(made[at]), rng) % (1 << 64), np.uint64).astype(made.dtype)
        elif made.dtype.kind == "f":
            made[at] = rng.choice((0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, np.finfo(made.dtype).max, np.finfo(made.dtype).tiny))
        else:
            made.view(np.uint8)[at * made.itemsize] = rng.randrange(256)
    return made


def damaged(arena: Arena, folder: Path, count: int, seed: int = 0) -> Iterator[tuple[Path, dict[str, str], str]]:
    """(file, options, how it was damaged) of `count` damaged examples; each is gone when the next is asked for.

    Of an example that has several files (those that its options name, or those of a folder) one is damaged at a time.
    """
    example = folder / "example"
    example.mkdir()
    file, options = arena.write_example(example)
    originals = sorted(path for path in example.rglob("*") if path.is_file() and path.stat().st_size)
    for number in range(count):
        rng = random.Random(f"{arena.path} {seed} {number}")
        target = rng.choice(originals)
        damage = rng.choice(DAMAGES)
        copy = folder / "damaged"
        shutil.copytree(example, copy)
        (copy / target.relative_to(example)).write_bytes(damage(target.read_bytes(), rng))
        moved = {name: str(value).replace(str(example), str(copy)) for name, value in options.items()}
        yield copy / file.relative_to(example), moved, f"{target.name} {damage.__name__.strip('_').replace('_', ' ')}, number {number}"
        shutil.rmtree(copy)


#: What is done with one damaged input: how it was damaged, and the act that accepts it, or refuses it with an `InputError`.
Attempt = tuple[str, Callable[[], object]]


def reader_attempts(arena: Arena, count: int, seed: int = 0) -> Iterator[Attempt]:
    """One attempt per damaged file, which is to read it and to make cases of it."""
    reader = arena._reading
    if reader is None:
        return
    with tempfile.TemporaryDirectory(prefix="armillary-fuzz-") as name:
        for file, options, how in damaged(arena, Path(name), count, seed):

            def act(file: Path = file, options: dict[str, str] = options) -> None:
                checked = reader.checked(options)
                loaded = reader.read(file, checked)
                if reader.make_cases is not None:
                    list(reader.make_cases(loaded, file.name, checked))

            yield how, act


@dataclass
class Tally:
    """How the damaged inputs of one reader or decoder ended: accepted, refused with an `InputError`, or as a fault, which is described."""

    accepted: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        total = self.accepted + self.refused + len(self.faults)
        return f"{total} files, {self.refused} refused, {self.accepted} accepted, {len(self.faults)} faults"


def tally(attempts: Iterable[Attempt], tell: Callable[[str], object] = lambda line: None) -> Tally:
    """Makes every attempt in this process; `tell` hears of each before and after it."""
    found = Tally()
    for how, act in attempts:
        tell(f"at {how}")
        try:
            act()
            found.accepted += 1
            tell("accepted")
        except InputError:
            found.refused += 1
            tell("refused")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            found.faults.append(f"{how}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            tell(f"fault {found.faults[-1]}")
    return found


def work_isolated(attempts: Iterable[Attempt], first: int, memory_bytes: int, patience_s: int) -> None:
    """The part of `isolated` in the other process: limits itself, skips `first` attempts, and prints how the others end.

    The alarm has no handler, so that it also ends a process that hangs in compiled code.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))

    def told(line: str) -> None:
        signal.alarm(patience_s)
        print(line, flush=True)  # noqa: T201

    tally((attempt for number, attempt in enumerate(attempts) if number >= first), told)


def isolated(command: list[str], count: int) -> Tally:
    """Runs `command` followed by the number of attempts to skip, which calls `work_isolated`, with bounds checked in compiled loops.

    After a crash or a hang, which are faults, a new process goes on with the next of the `count` attempts.
    """
    found, done = Tally(), 0
    surroundings = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "PYTHONWARNINGS": "ignore"}
    while done < count:
        process = subprocess.run([*command, str(done)], capture_output=True, text=True, env=surroundings)
        lines = process.stdout.splitlines()
        found.accepted += lines.count("accepted")
        found.refused += lines.count("refused")
        found.faults += [line.removeprefix("fault ") for line in lines if line.startswith("fault ")]
        begun = [line.removeprefix("at ") for line in lines if line.startswith("at ")]
        if process.returncode == 0:
            break
        why = "did not end" if process.returncode == -signal.SIGALRM else f"ended with status {process.returncode}"
        said = process.stderr.strip().splitlines()[-1:]
        found.faults.append(f"{begun[-1] if begun else 'before the first'}: {why} {' '.join(said)[:200]}".rstrip())
        if not begun:
            break
        done += len(begun)
    return found


def this_program(*arguments: str) -> list[str]:
    """The command that runs the running script again with other arguments."""
    return [sys.executable, str(Path(sys.argv[0]).resolve()), *arguments]
