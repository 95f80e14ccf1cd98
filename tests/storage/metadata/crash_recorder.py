"""Runs random operations without compilation and records every store with its bytes: what the crash test cuts. Prints a pickle.

Run with NUMBA_DISABLE_JIT=1; arguments: sequences, operations each, seed.
"""

import os
import pickle
import sys
import warnings

os.environ["NUMBA_DISABLE_JIT"] = "1"
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402

from armillary.storage.metadata.mdsec import Mdsec  # noqa: E402
from armillary.storage.metadata.record_groups import groups, operations  # noqa: E402
from armillary.storage.metadata.simulation.accesses import FENCE, HINT, LENGTH, WRITE, emit  # noqa: E402
from armillary.storage.metadata.workload import CREATE, MKDIR, RENAME, RMDIR, SETATTR, UNLINK, WorkBuilder  # noqa: E402

NAMES = [b"a", b"b", b"c" * 140, b"d" * 141, b"e" * 255, b"\xff\xfe", *(b"n%d" % i for i in range(14))]


def random_work(rng, length):
    """(work, first recorded operation, the tree before and after each recorded one)."""
    builder = WorkBuilder(clients=4)
    directories = [1]
    trees = []
    prefix = int(rng.integers(0, 30))
    for step in range(prefix + length):
        if step >= prefix:
            trees.append(builder.expected())
        while not one(builder, directories, rng, busy=step < prefix):
            pass
    trees.append(builder.expected())
    return builder.build(), prefix, trees


def one(builder, directories, rng, busy):
    kind = int(
        rng.choice(
            [CREATE, MKDIR, UNLINK, RMDIR, RENAME, SETATTR], p=[0.8, 0.2, 0, 0, 0, 0] if busy else [0.35, 0.12, 0.13, 0.05, 0.25, 0.1]
        )
    )
    directory = int(rng.choice(directories))
    name = NAMES[int(rng.integers(len(NAMES)))]
    child = builder.find(directory, name)
    if kind in (CREATE, MKDIR):
        if child is not None:
            return False
        number = builder.add(kind, directory, name, size=int(rng.integers(1000)))
        if kind == MKDIR:
            directories.append(number)
        return True
    if child is None:
        return False
    folder = builder.is_directory(child)
    if (kind == UNLINK and not folder) or (kind == RMDIR and folder and not builder.children(child)):
        builder.add(kind, directory, name)
        if folder:
            directories.remove(child)
        return True
    if kind == SETATTR:
        builder.add(kind, directory, name, size=int(rng.integers(1000)))
        return True
    if kind == RENAME:
        to = (int(rng.choice(directories)), NAMES[int(rng.integers(len(NAMES)))])
        target = builder.find(*to)
        # A directory may not move below itself: only files and, to the root, directories move here.
        if (folder and (to[0] != 1 or target is not None)) or (target is not None and builder.is_directory(target)):
            return False
        builder.add(kind, directory, name, to=to)
        return True
    return False


def main() -> None:
    sequences, length, seed = map(int, sys.argv[1:])
    stores = []
    space = np.zeros(0, np.uint8)

    def recording(accesses, offset, size, kind):
        emit(accesses, offset, size, kind)
        if kind & WRITE and kind < HINT:
            stores.append([int(offset), space[offset : offset + size].tobytes(), bool(kind & FENCE)])

    def fencing(accesses):
        accesses[accesses[0, 0], 1] |= np.int64(FENCE) << 32
        stores[-1][2] = True

    for module in (groups, operations):
        module.emit, module.fence_last = recording, fencing
    assert LENGTH
    out = []
    for sequence in range(sequences):
        rng = np.random.default_rng([seed, sequence])
        work, prefix, trees = random_work(rng, length)
        # Small groups sets, so that sharing, moving and splitting all happen.
        engine = Mdsec(handlers=4, tiny=3, chain=1, extent=2).start(work, 1 << 16)
        space = engine.space
        engine.do(0, prefix) if prefix else None
        top = 4096 * (int(engine.layout.m[groups.HIGH]) + 64)
        image = engine.space[:top].tobytes()
        recorded = []
        for i in range(prefix, prefix + length):
            stores.clear()
            engine.do(i)
            assert not engine.status[i], (engine.status[i], work.ops[i])
            recorded.append([tuple(s) for s in stores])
        out.append((image, recorded, trees, work.ops[prefix:, 0].tolist()))
    sys.stdout.buffer.write(pickle.dumps(out))


if __name__ == "__main__":
    main()
