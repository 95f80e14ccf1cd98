"""Runs random operations without compilation, records every store with its bytes, and prints a pickle, which the crash test cuts.

The arguments are the number of sequences, the operations in each, and the seed.
"""

import os
import pickle
import sys
import warnings

os.environ["NUMBA_DISABLE_JIT"] = "1"
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
from random_operations import add_random  # noqa: E402

from armillary.storage.metadata.mdsec import Mdsec  # noqa: E402
from armillary.storage.metadata.record_groups import groups, operations  # noqa: E402
from armillary.storage.metadata.simulation.accesses import FENCE, HINT, WRITE, emit  # noqa: E402
from armillary.storage.metadata.workload import CREATE, MKDIR, RENAME, RMDIR, SETATTR, UNLINK, WorkBuilder  # noqa: E402

#: At first a tree grows; then everything happens.
GROWING = {CREATE: 0.8, MKDIR: 0.2}
BUSY = {CREATE: 0.35, MKDIR: 0.12, UNLINK: 0.13, RMDIR: 0.05, RENAME: 0.25, SETATTR: 0.1}
#: More names than a growing tree has operations, so that some create is always possible.
NAMES = [b"a", b"b", b"c" * 140, b"d" * 141, b"e" * 255, b"\xff\xfe", *(b"n%d" % i for i in range(30))]


def random_work(rng, length):
    """Returns the work, its first recorded operation, and the tree before and after each recorded one."""
    builder = WorkBuilder(clients=4)
    directories = [1]
    trees = []
    prefix = int(rng.integers(0, 30))
    for step in range(prefix + length):
        if step >= prefix:
            trees.append(builder.expected())
        while not add_random(builder, directories, rng, NAMES, GROWING if step < prefix else BUSY, to_root=True):
            pass
    trees.append(builder.expected())
    return builder.build(), prefix, trees


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
    out = []
    for sequence in range(sequences):
        rng = np.random.default_rng([seed, sequence])
        work, prefix, trees = random_work(rng, length)
        # The group sets are small, so that sharing, moving and splitting all happen.
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
