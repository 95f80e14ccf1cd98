"""Damaged bytes for the decoders of what one process of a job reads from another: frames over Gloo, and the values of a job folder.

    NUMBA_BOUNDSCHECK=1 python tests/comm/damaged_wires.py [--count 20000] [--seed 0]

A decoder gives a value or raises an error of its own, and allocates no more than a small multiple of what it was given.
"""

from __future__ import annotations

import argparse
import tracemalloc
from collections import Counter

import numpy as np

from armillary.comm.failures import CommError
from armillary.comm.jobs.folder import ran
from armillary.comm.jobs.values import dump, load
from armillary.errors import InputError

#: The memory that decoding may take beyond four times its input, in bytes; most of it is what errors and their messages take.
ROOM = 1 << 20
_LARGE = (0, 2**31 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
_DECIMAL = (9, 10**6, 10**12, 10**18, 10**30)


def values():
    """Return encoded values of all kinds that travel, and an answer of a rank."""
    fields = np.zeros(3, [("a", "<i4"), ("b", "<f8", (2,))])
    everything = {
        "a": [1, (2.5, None, True)],
        "b": b"bytes",
        "c": 1 + 2j,
        "d": float("inf"),
        "e": np.arange(6.0).reshape(2, 3),
        "f": fields,
    }
    answer = {"value": [np.arange(5), "text"], "counters": {"": [1, 2, 3, 4, 0.5]}}
    return [dump(everything), dump(np.float32(1)), dump([]), dump(answer), dump({"x": np.zeros((0, 3)), "y": np.array(["ab", "c"])})]


def frames():
    """Return frames of all kinds."""
    from armillary.comm.torch_distributed import frames as f

    made = [f.encode((f.MESSAGE, 0, 7, 1, 3, 5, 0), np.arange(5, dtype=np.uint8)), f.encode((f.END, 0, 0, 0, 0, 0, 0))]
    made += [f.encode((f.MESSAGE, f.SAME | f.REPORTED, 2**63, 2, 32767, 1 << 20, 12)), f.encode((f.ARRIVED, 0, 0, 0, 0, 0, 12))]
    return [frame.tobytes() for frame in made]


def damaged(data, rng):
    """Return the bytes with some of them changed, removed, added, or turned into large numbers."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, max(1, len(out))))
        kind = int(rng.integers(0, 6))
        if kind == 0 and out:
            out[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            del out[at : at + int(rng.integers(1, 9))]
        elif kind == 2:
            out[at:at] = rng.integers(0, 256, int(rng.integers(1, 9)), np.uint8).tobytes()
        elif kind == 3:
            out[at : at + 8] = _LARGE[int(rng.integers(0, len(_LARGE)))].to_bytes(8, "little")
        elif kind == 4:
            digits = [i for i, byte in enumerate(out) if 48 <= byte <= 57]
            if digits:
                i = digits[int(rng.integers(0, len(digits)))]
                out[i : i + 1] = str(_DECIMAL[int(rng.integers(0, len(_DECIMAL)))]).encode()
        else:
            del out[at:]
    return bytes(out)


def decoders():
    """Yield (name, examples, decoder) of each format."""
    yield "values", values(), load
    yield "answers", values()[3:4], lambda data: ran([data])
    try:
        from armillary.comm.torch_distributed.frames import decode
    except ImportError:
        return
    yield "frames", frames(), lambda data: decode(np.frombuffer(data, np.uint8), 4)


def check(count, seed=0):
    """Give each decoder `count` damaged inputs, and return how often each outcome came."""
    rng = np.random.default_rng(seed)
    outcomes = Counter()
    tracemalloc.start()
    try:
        for name, examples, decoder in decoders():
            for example in examples:
                decoder(example)
            for _ in range(count):
                data = damaged(examples[int(rng.integers(0, len(examples)))], rng)
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                try:
                    decoder(data)
                    outcomes[name, "value"] += 1
                except (InputError, CommError):
                    outcomes[name, "refused"] += 1
                taken = tracemalloc.get_traced_memory()[1] - before
                assert taken < 4 * len(data) + ROOM, (name, taken, data)
    finally:
        tracemalloc.stop()
    return outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for (name, outcome), times in sorted(check(given.count, given.seed).items()):
        print(f"{name:10}{outcome:10}{times:>10,}")


if __name__ == "__main__":
    main()
