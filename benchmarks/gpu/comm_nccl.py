"""The nccl backend on one GPU: this script checks its calls and its refusals, and measures its cost over torch.distributed itself.

PYTHONPATH=. python benchmarks/gpu/comm_nccl.py [answer.json]

Needs torch, NumPy and lazy-loader; CuPy where it is to be tried too. Prints a table, then one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
TURNS = 15


def attempt(checks: dict[str, str], name: str, check: Callable[[], None]) -> None:
    """Note "ok", or the last line of what went wrong."""
    try:
        check()
        checks[name] = "ok"
    except Exception as error:
        checks[name] = (
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''} {traceback.format_exc().splitlines()[-2]}"
        )


VALUES = [1.5, -2.0, 4.0, 8.0]


def check(comm: Any) -> dict[str, Any]:
    """Make every call on this rank alone, with tensors and with arrays of CuPy, and compare with known answers."""
    import torch

    checks: dict[str, str] = {}
    _check_calls(comm, "torch", lambda values: torch.tensor(values, device="cuda"), lambda array: array.cpu().numpy(), checks)
    try:
        import cupy

        _check_calls(comm, "cupy", cupy.asarray, lambda array: array.get(), checks)
    except ImportError:
        checks["cupy"] = "not installed"
    attempt(checks, "dup and split", lambda: _groups(comm))
    attempt(checks, "cupy stream", lambda: _other_stream(comm))
    attempt(checks, "adopt torch", lambda: _adopt_torch(comm))
    attempt(checks, "adopt cupy", _adopt_cupy)
    return {"checks": checks, "torch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}


def _check_calls(comm: Any, kind: str, make: Callable[[Any], Any], numbers: Callable[[Any], Any], checks: dict[str, str]) -> None:
    import numpy as np

    from armillary.comm import IN_PLACE, MAX, Op
    from armillary.errors import InputError

    mine = make(VALUES)

    def expect(array: Any, expected: Any) -> None:
        assert type(array) is type(mine), type(array)
        assert np.array_equal(numbers(array), expected), (numbers(array), expected)

    def exchange() -> None:
        got = make([0.0] * 4)
        with comm.group():
            comm.send(mine, 0)
            comm.recv(got, 0)
        expect(got, VALUES)
        again = make([0.0] * 4)
        assert comm.sendrecv(mine, 0, again, 0).nbytes == mine.nbytes
        expect(again, VALUES)

    def reductions() -> None:
        expect(comm.allreduce(mine), VALUES)
        expect(comm.allreduce(mine, op=MAX, order="rank"), VALUES)
        expect(comm.allreduce(mine, op=Op(lambda lower, higher: higher)), VALUES)
        expect(comm.allreduce(IN_PLACE, make(VALUES)), VALUES)
        expect(comm.reduce(mine), VALUES)
        expect(comm.scan(mine), VALUES)
        expect(comm.exscan(mine), [0.0] * 4)
        expect(comm.reduce_scatter(mine), VALUES)
        expect(comm.reduce_scatter(mine, counts=[4], order="rank"), VALUES)

    def gathers() -> None:
        expect(comm.bcast(make(VALUES)), VALUES)
        expect(comm.allgather(mine), [VALUES])
        expect(comm.allgatherv(mine), VALUES)
        expect(comm.gather(mine), [VALUES])
        expect(comm.scatter(mine, make([0.0] * 4)), VALUES)
        expect(comm.alltoall(mine), VALUES)
        expect(comm.alltoallv(mine, [2], make([-1.0] * 8), [2], [1], [5]), [-1, -1, -1, -1, -1, -2, 4, -1])
        comm.barrier()

    def refusals() -> None:
        host = np.zeros(4)
        short = mine.astype("int16") if kind == "cupy" else mine.short()
        for call, args in [
            (comm.send, (mine, 0, 3)),
            (comm.send, (mine, 0)),
            (comm.recv, (mine,)),
            (comm.probe, ()),
            (comm.send, (host, 0)),
            (comm.allreduce, (host,)),
            (comm.send, (mine[::2], 0)),
            (comm.allreduce, (short,)),
        ]:
            try:
                call(*args)
            except InputError:
                continue
            raise AssertionError(f"{call} took {args}")

    for part in (exchange, reductions, gathers, refusals):
        attempt(checks, f"{kind} {part.__name__}", part)


def _groups(comm: Any) -> None:
    import torch

    one = torch.ones(3, device="cuda")
    assert comm.dup().allreduce(one).tolist() == [1, 1, 1]
    assert comm.split(0).allreduce(one).tolist() == [1, 1, 1]
    assert comm.split(None) is None


def _other_stream(comm: Any) -> None:
    import cupy

    with cupy.cuda.Stream(non_blocking=True) as stream:
        big, got = cupy.zeros(1 << 24), cupy.zeros(1 << 24)
        for _ in range(20):
            big += 1
        assert float(comm.allreduce(big).sum()) == 20 * (1 << 24)
        big += 1
        with comm.group():
            comm.send(big, 0)
            comm.recv(got, 0)
        assert float(got.sum()) == 21 * (1 << 24)
        stream.synchronize()


def _adopt_torch(comm: Any) -> None:
    import torch.distributed as dist

    from armillary.comm import Communicator

    ranks = Communicator.adopt(dist.group.WORLD)
    assert ranks.native is dist.group.WORLD
    assert comm.native is dist.group.WORLD
    _groups(ranks)


def _adopt_cupy() -> None:
    import cupy
    from cupy.cuda import nccl

    from armillary.comm import Communicator

    native = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
    ranks = Communicator.adopt(native)
    assert ranks.native is native
    mine, got = cupy.arange(5.0), cupy.zeros(5)
    assert ranks.allreduce(mine).tolist() == [0, 1, 2, 3, 4]
    with ranks.group():
        ranks.send(mine, 0)
        ranks.recv(got, 0)
    assert got.tolist() == [0, 1, 2, 3, 4]
    assert ranks.allgather(mine).shape == (1, 5)
    assert ranks.reduce_scatter(mine).tolist() == [0, 1, 2, 3, 4]
    ranks.barrier()


def measure(comm: Any, kind: str) -> list[dict[str, Any]]:
    """Return the median microseconds per call of torch.distributed and of the layer, turn by turn, and the median of their ratio."""
    import torch
    import torch.distributed as dist

    from armillary.comm import IN_PLACE

    rows: list[dict[str, Any]] = []
    for nbytes in SIZES:
        mine = torch.ones(nbytes // 4, device="cuda")
        room = torch.zeros_like(mine)
        ours, into = mine, room
        if kind == "cupy":
            import cupy

            ours, into = cupy.from_dlpack(mine), cupy.from_dlpack(room)

        def raw_exchange(mine: Any = mine, room: Any = room) -> None:
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, 0), dist.P2POp(dist.irecv, room, 0)]):
                work.wait()

        def own_exchange(ours: Any = ours, into: Any = into) -> None:
            with comm.group():
                comm.send(ours, 0)
                comm.recv(into, 0)

        def raw_allreduce(mine: Any = mine) -> None:
            dist.all_reduce(mine)

        def own_allreduce(ours: Any = ours) -> None:
            comm.allreduce(IN_PLACE, ours)

        calls = max(5, min(300, (256 << 20) // nbytes))
        for what, raw, own in [("exchange", raw_exchange, own_exchange), ("allreduce", raw_allreduce, own_allreduce)]:
            try:
                pairs = [_turn(raw, own, calls, turn % 2 == 1) for turn in range(TURNS + 2)][2:]
            except Exception as error:
                rows.append({"what": what, "buffers": kind, "nbytes": nbytes, "error": str(error).splitlines()[0]})
                continue
            rows.append(
                {
                    "what": what,
                    "buffers": kind,
                    "nbytes": nbytes,
                    "raw_us": statistics.median(a for a, _ in pairs),
                    "comm_us": statistics.median(b for _, b in pairs),
                    "ratio": statistics.median(b / a for a, b in pairs),
                }
            )
    return rows


def _turn(raw: Callable[[], None], own: Callable[[], None], calls: int, own_first: bool) -> tuple[float, float]:
    if own_first:
        second = _us(own, calls)
        return _us(raw, calls), second
    first = _us(raw, calls)
    return first, _us(own, calls)


def _us(call: Callable[[], None], calls: int) -> float:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def main(target: str | None) -> None:
    """Run all checks and measurements, and print them."""
    sys.path.insert(0, str(Path(__file__).parent))
    from armillary import comm
    from armillary.errors import InputError

    answer: dict[str, Any] = {"backends": comm.backends()}
    answer.update(comm.run("comm_nccl:check", backend="nccl", timeout=300)[0])
    import torch

    try:
        comm.run("comm_nccl:check", ranks=torch.cuda.device_count() + 1, backend="nccl", timeout=120)
        answer["one rank too many"] = "was taken"
    except InputError as error:
        answer["one rank too many"] = f"InputError: {error}"
    rows = comm.run("comm_nccl:measure", "torch", backend="nccl", timeout=300)[0]
    if answer["checks"].get("cupy") != "not installed":
        rows += comm.run("comm_nccl:measure", "cupy", backend="nccl", timeout=300)[0]
    answer["speed"] = rows
    for name, said in answer["checks"].items():
        print(f"{name:<20} {said}")
    print(f"{'call':<10} {'arrays':<6} {'bytes':>9} {'torch us':>10} {'comm us':>10} {'ratio':>7}")
    for row in rows:
        if "error" in row:
            print(f"{row['what']:<10} {row['buffers']:<6} {row['nbytes']:>9} {row['error']}")
        else:
            figures = f"{row['raw_us']:>10.2f} {row['comm_us']:>10.2f} {row['ratio']:>7.3f}"
            print(f"{row['what']:<10} {row['buffers']:<6} {row['nbytes']:>9} {figures}")
    text = json.dumps(answer)
    print(text)
    if target:
        Path(target).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
