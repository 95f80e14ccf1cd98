"""The fused products as Triton kernels: every virtual device is a group of programs, and all of them share the memory of one GPU.

Both kernels are persistent. Program p works for device p mod n and takes the tiles w, w + stride, … of that device, as compute SMs of the
template do. `reduce_scatter_kernel` adds each tile to its owner's rows as it finishes, which is the intra-SM schedule. In
`all_reduce_kernel` the first `COMM` programs of each device only communicate: they wait until all devices have signalled a tile that they
own, add the copies in the order of the devices, and write the sum to every device. Such waits spin, so all programs must be resident at
once, which the caller asserts. A wait gives up after `SPINS` polls and leaves the number of its tile in `stuck`, so that a lost signal
cannot hang the GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(a, b, row, column, m, n, k, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The TM × TN tile of a·b whose first element is (row, column), accumulated in float32; rows of a and b are contiguous."""
    rows = row + tl.arange(0, TM)
    columns = column + tl.arange(0, TN)
    inner = tl.arange(0, TK)
    left = a + rows[:, None].to(tl.int64) * k + inner[None, :]
    right = b + inner[:, None].to(tl.int64) * n + columns[None, :]
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for start in range(0, k, TK):
        x = tl.load(left, mask=(rows[:, None] < m) & (inner[None, :] < k - start), other=0.0)
        y = tl.load(right, mask=(inner[:, None] < k - start) & (columns[None, :] < n), other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
        left += TK
        right += TK * n
    return total


@triton.jit
def _corner(task, tiles_m, tiles_n, TM: tl.constexpr, TN: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """First row and column of a tile; tasks go down GROUP rows of tiles before they go right, so that a wave shares operands in L2."""
    width = GROUP * tiles_n
    first = (task // width) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    return (first + (task % width) % height) * TM, ((task % width) // height) * TN


@triton.jit
def product_kernel(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, tiles_m, tiles_n, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """c = a·b with one program per tile: the tile's body alone, for tests and for the product without communication."""
    row, column = _corner(tl.program_id(0), tiles_m, tiles_n, TM, TN, GROUP)
    total = _tile(a, b, row, column, m, n, k, TM, TN, TK)
    rows, columns = row + tl.arange(0, TM), column + tl.arange(0, TN)
    place = c + rows[:, None].to(tl.int64) * n + columns[None, :]
    tl.store(place, total.to(c.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def reduce_scatter_kernel(  # type: ignore[no-untyped-def]
    a, b, out, m, n, k, tiles_m, tiles_n, devices, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    """out[owner] += tile, as each tile finishes.

    a is devices × m × k, b is devices × k × n, and out is devices × (m / devices) × n in float32, zero at first. Rows of out over all
    devices are the rows of the product, so a tile may cross the border of two owners.
    """
    device = tl.program_id(0) % devices
    stride = tl.num_programs(0) // devices
    mine = a + device.to(tl.int64) * m * k
    weights = b + device.to(tl.int64) * k * n
    # Each device starts at another owner's rows; otherwise all of them would add to the same rows at the same time.
    count = tiles_m * tiles_n
    for number in range(tl.program_id(0) // devices, count, stride):
        task = (number + device * (count // devices)) % count
        row, column = _corner(task, tiles_m, tiles_n, TM, TN, GROUP)
        total = _tile(mine, weights, row, column, m, n, k, TM, TN, TK)
        rows, columns = row + tl.arange(0, TM), column + tl.arange(0, TN)
        place = out + rows[:, None].to(tl.int64) * n + columns[None, :]
        tl.atomic_add(place, total, mask=(rows[:, None] < m) & (columns[None, :] < n), sem="relaxed")


@triton.jit
def all_reduce_kernel(  # type: ignore[no-untyped-def]
    a, b, partial, out, flags, stuck, m, n, k, tiles_m, tiles_n, devices, SPINS,
    COMM: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """out[d] = Σ a[i]·b[i] on every device d, equal to the last bit.

    a is devices × m × k, b is devices × k × n, partial and out are devices × m × n, flags has one int32 per tile, zero at first, and
    stuck is one int32, −1 at first. Tile t belongs to device t mod devices.
    """
    device = tl.program_id(0) % devices
    worker = tl.program_id(0) // devices
    workers = tl.num_programs(0) // devices
    count = tiles_m * tiles_n
    # A size of 1 arrives as a constant, which has no type of its own.
    size = (tl.zeros((), dtype=tl.int64) + m) * n
    if worker >= COMM:
        mine = a + device.to(tl.int64) * m * k
        weights = b + device.to(tl.int64) * k * n
        local = partial + device * size
        for task in range(worker - COMM, count, workers - COMM):
            row, column = _corner(task, tiles_m, tiles_n, TM, TN, GROUP)
            total = _tile(mine, weights, row, column, m, n, k, TM, TN, TK)
            rows, columns = row + tl.arange(0, TM), column + tl.arange(0, TN)
            place = rows[:, None].to(tl.int64) * n + columns[None, :]
            tl.store(local + place, total.to(partial.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))
            # All threads of the program have stored before the one that signals releases their stores.
            tl.debug_barrier()
            tl.atomic_add(flags + task, 1, sem="release", scope="gpu")
    else:
        for number in range(worker, (count - device + devices - 1) // devices, COMM):
            task = device + number * devices
            seen = tl.atomic_add(flags + task, 0, sem="acquire", scope="gpu")
            spins = 0
            while (seen < devices) & (spins < SPINS):
                seen = tl.atomic_add(flags + task, 0, sem="acquire", scope="gpu")
                spins += 1
            if seen < devices:
                tl.atomic_max(stuck, task)
            tl.debug_barrier()
            row, column = _corner(task, tiles_m, tiles_n, TM, TN, GROUP)
            rows, columns = row + tl.arange(0, TM), column + tl.arange(0, TN)
            inside = (rows[:, None] < m) & (columns[None, :] < n)
            place = rows[:, None].to(tl.int64) * n + columns[None, :]
            total = tl.zeros((TM, TN), dtype=tl.float32)
            for other in range(devices):
                # From L2, because a line of this tile in L1 may be older than the signal.
                total += tl.load(partial + other * size + place, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
            for other in range(devices):
                tl.store(out + other * size + place, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def ping_pong_kernel(flags, stuck, rounds, SPINS):  # type: ignore[no-untyped-def]
    """Two programs signal each other in turns through device memory; `flags` has two int32 that lie 128 bytes apart, zero at first."""
    me = tl.program_id(0)
    if me < 2:
        for turn in range(1, rounds + 1):
            if me == 0:
                tl.atomic_add(flags, 1, sem="release", scope="gpu")
            seen = tl.atomic_add(flags + 32 * (1 - me), 0, sem="acquire", scope="gpu")
            spins = 0
            while (seen < turn) & (spins < SPINS):
                seen = tl.atomic_add(flags + 32 * (1 - me), 0, sem="acquire", scope="gpu")
                spins += 1
            if seen < turn:
                tl.atomic_max(stuck, turn)
            if me == 1:
                tl.atomic_add(flags + 32, 1, sem="release", scope="gpu")


@triton.jit
def nothing_kernel(x):  # type: ignore[no-untyped-def]
    """Does nothing, so that a launch can be timed."""
    tl.store(x, 0, mask=tl.program_id(0) < 0)
