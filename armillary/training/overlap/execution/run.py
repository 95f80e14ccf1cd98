"""Real runs of tile programs: ranks as processes with shared memory, ranks as threads, or virtual devices on one GPU.

from armillary.training.overlap import Operator, program_for, run, Tile
program = program_for(Operator("gemm_ar", devices=4, m=512, n=512, k=128), Tile(), inter=True, fabric=True)
print(run(program, ranks=4, executor="cpu").error)
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import shared_memory
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.training.overlap.programs.primitives import DeadlockFound
from armillary.training.overlap.programs.template import TileProgram

from .memory import STRIPES, Memory, create, size_of
from .rank import Rank, Stopped, filled

EXECUTORS = ("cpu", "threads", "gpu")


@dataclass(frozen=True)
class Ran:
    """`results` of every device, wall-clock `seconds` of the slowest rank, and the largest `error` relative to the largest element."""

    results: list[npt.NDArray[Any]]
    seconds: float
    error: float


def run(
    program: TileProgram, *, ranks: int | None = None, executor: Literal["cpu", "threads", "gpu"] = "cpu", sms: int = 2, comm_sms: int = 0,
    inputs: Sequence[dict[str, npt.NDArray[Any]]] | None = None, seed: int = 0, timeout: float = 60.0,
) -> Ran:  # fmt: skip
    """Runs a program on `inputs` (one dictionary of layouts per device), or on random ones, and compares the result with NumPy's.

    `sms` compute SMs and `comm_sms` communicators per rank are threads; with 0, one communicator runs beside each compute SM. A wait
    that lasts longer than `timeout` seconds raises DeadlockFound with the task that waits.
    """
    if executor not in EXECUTORS:
        raise unknown("executor", executor, EXECUTORS)
    if ranks is not None and ranks != program.devices:
        raise InputError(f"{ranks} ranks for a program of {program.devices} devices; expected the same number")
    if sms < 1 or comm_sms < 0:
        raise InputError(f"{sms} compute SMs and {comm_sms} communicators per rank; expected at least 1 and 0")
    given = list(inputs) if inputs is not None else program.inputs(np.random.default_rng(seed))
    if len(given) != program.devices:
        raise InputError(f"inputs for {len(given)} devices; expected {program.devices}")
    if executor == "gpu":
        results, seconds = _on_gpu(program, given, comm_sms)
    elif executor == "threads":
        results, seconds = _in_threads(program, given, sms, comm_sms, timeout)
    else:
        results, seconds = _in_processes(program, given, sms, comm_sms, timeout)
    expected = program.expected(given)
    size = max(float(np.abs(e).max(initial=0.0)) for e in expected) or 1.0
    error = max(float(np.abs(r - e).max(initial=0.0)) for r, e in zip(results, expected, strict=True)) / size
    return Ran(results, seconds, error if np.isfinite(error) else np.inf)


def _in_threads(program: TileProgram, inputs: list[dict[str, Any]], sms: int, comm_sms: int, timeout: float) -> tuple[list[Any], float]:
    memory = Memory(program, [bytearray(size_of(program)) for _ in range(program.devices)], [threading.Lock() for _ in range(STRIPES)])
    for dev in range(program.devices):
        filled(program, memory, dev, inputs[dev])
    ranks = [Rank(program, dev, memory, sms, comm_sms, timeout) for dev in range(program.devices)]
    failures: list[BaseException] = []

    def one(rank: Rank) -> None:
        try:
            rank.run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in ranks]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    _raise(failures)
    return [memory.arrays[dev][program.outputs()].copy() for dev in range(program.devices)], seconds


def _in_processes(program: TileProgram, inputs: list[dict[str, Any]], sms: int, comm_sms: int, timeout: float) -> tuple[list[Any], float]:
    context: Any = multiprocessing.get_context("spawn")
    blocks = create(size_of(program), program.devices)
    memory = None
    started: list[Any] = []
    try:
        locks, ready, told = [context.Lock() for _ in range(STRIPES)], context.Barrier(program.devices), context.Queue()
        memory = Memory(program, [block.buf for block in blocks], [])
        for dev in range(program.devices):
            filled(program, memory, dev, inputs[dev])
        names = [block.name for block in blocks]
        for dev in range(program.devices):
            process = context.Process(target=_process, args=(program, dev, names, locks, ready, told, sms, comm_sms, timeout), daemon=True)
            process.start()
            started.append(process)
        heard = _heard(told, started, timeout)
        _raise([error for error, _ in heard if error is not None])
        results = [memory.arrays[dev][program.outputs()].copy() for dev in range(program.devices)]
        return results, max(seconds for _, seconds in heard)
    finally:
        for process in started:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()
        if memory is not None:
            memory.release()
        for block in blocks:
            block.close()
            block.unlink()


def _heard(told: Any, started: list[Any], timeout: float) -> list[tuple[BaseException | None, float]]:
    """What every process says; one that died without a word is an error."""
    heard: list[tuple[BaseException | None, float]] = []
    deadline = time.monotonic() + timeout + 60.0
    while len(heard) < len(started):
        try:
            kind, text, seconds = told.get(timeout=0.2)
            error = {"": None, "deadlock": DeadlockFound(text), "input": InputError(text), "stopped": Stopped(text)}.get(
                kind, RuntimeError(text)
            )
            heard.append((error, seconds))
        except queue.Empty:
            dead = [i for i, process in enumerate(started) if process.exitcode not in (None, 0)]
            if dead or time.monotonic() > deadline:
                heard.append((RuntimeError(f"rank {dead[0] if dead else '?'} ended without a result"), 0.0))
                break
    return heard


def _process(
    program: TileProgram, dev: int, names: list[str], locks: Any, ready: Any, told: Any, sms: int, comm_sms: int, timeout: float
) -> None:
    blocks = [shared_memory.SharedMemory(name) for name in names]
    memory = Memory(program, [block.buf for block in blocks], locks)
    rank = Rank(program, dev, memory, sms, comm_sms, timeout)
    kind, text, seconds = "", "", 0.0
    try:
        ready.wait(60.0)
        start = time.perf_counter()
        rank.run()
        seconds = time.perf_counter() - start
    except DeadlockFound as error:
        kind, text = "deadlock", str(error)
    except InputError as error:
        kind, text = "input", str(error)
    except Stopped as error:
        kind, text = "stopped", str(error)
    except BaseException as error:
        kind, text = "other", f"{type(error).__name__}: {error}"
    told.put((kind, text, seconds))
    rank.failures.clear()
    memory.release()
    for block in blocks:
        with contextlib.suppress(BufferError):  # A failed task may still hold a view; the process ends here anyway.
            block.close()


def _raise(failures: list[BaseException]) -> None:
    """Raises the failure that says most."""
    for failure in sorted(failures, key=lambda f: isinstance(f, Stopped)):
        raise failure


def _on_gpu(program: TileProgram, inputs: list[dict[str, Any]], comm_sms: int) -> tuple[list[Any], float]:
    if program.op not in ("gemm_rs", "gemm_ar"):
        raise InputError(f"{program.op} has no kernel for one GPU; expected gemm_rs or gemm_ar")
    from armillary.extras import need

    torch = need("torch")
    if not torch.cuda.is_available():
        raise InputError("there is no CUDA device here")
    from armillary.timing import Stopwatch
    from armillary.training.overlap.gpu.virtual_devices import gemm_ar, gemm_rs

    a, b = (torch.from_numpy(np.stack([x[name] for x in inputs])).cuda() for name in ("a", "b"))
    with Stopwatch(a) as watch:
        found = gemm_rs(a, b) if program.op == "gemm_rs" else gemm_ar(a, b, comm_sms=comm_sms or 8)
    return list(found.cpu().numpy()), watch.seconds
