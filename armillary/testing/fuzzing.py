"""Bad files for every reader: an arena's own example, damaged in ways that tools, disks, networks and strangers damage files.

A reader takes a damaged file or refuses it with an `InputError`. Any other exception is a fault, as are a crash, a hang and memory without
a limit, which `tests/fuzz_readers` looks for in processes of their own.
"""

from __future__ import annotations

import gzip
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from armillary.arena import Arena
from armillary.errors import InputError

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


def reader_faults(arena: Arena, count: int, seed: int = 0) -> Iterator[str]:
    """A line for each damaged file that the arena's reader, or what makes cases of it, answers with anything but an `InputError`."""
    reader = arena._reading
    if reader is None:
        return
    with tempfile.TemporaryDirectory(prefix="armillary-fuzz-") as name:
        for file, options, how in damaged(arena, Path(name), count, seed):
            try:
                checked = reader.checked(options)
                loaded = reader.read(file, checked)
                if reader.make_cases is not None:
                    list(reader.make_cases(loaded, file.name, checked))
            except InputError:
                continue
            except Exception as error:
                yield f"{arena.path}: {how}: {type(error).__name__}: {str(error)[:200]}"
